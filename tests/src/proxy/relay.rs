//! One connection through the proxy.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::sleep;

use super::fault::{Action, Hit};
use super::frame::Frame;
use super::{Direction, Shared, lock};

/// The faults that wait for a reply, by the id of its request.
type Pending = Mutex<HashMap<i32, Hit>>;

/// Why a connection ends.
enum End {
    Closed,
    Reset,
    /// The client's connection is closed now, and the server gets this message later.
    Late(Frame, Duration),
    /// Both sides keep their connection, but no message is forwarded any more.
    Silent,
}

/// Forwards messages until one side closes the connection, an error occurs, or a fault or a reset ends it.
pub(super) async fn relay(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut resets = shared.resets.subscribe();
    let mut server = TcpStream::connect(&shared.target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let pending = Pending::default();
    let end = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::select! {
            end = requests(from_client, to_server, shared, &pending) => end?,
            end = replies(from_server, to_client, shared, &pending) => end?,
            _ = resets.changed() => End::Reset,
        }
    };
    match end {
        End::Closed => {}
        End::Reset => client.set_zero_linger()?,
        End::Late(frame, delay) => {
            drop(client);
            sleep(delay).await;
            server.write_all(frame.bytes()).await?;
            // Closing before the server has answered could make it drop the message.
            Frame::read(&mut server).await?;
        }
        End::Silent => {
            // This fails only without a sender, and then the proxy has ended as well.
            let _ = resets.changed().await;
            client.set_zero_linger()?;
        }
    }
    Ok(())
}

/// Keeps a connection open until a reset, and forwards nothing.
pub(super) async fn swallow(client: TcpStream, shared: &Shared) -> io::Result<()> {
    // This fails only without a sender, and then the proxy has ended as well.
    let _ = shared.resets.subscribe().changed().await;
    client.set_zero_linger()
}

async fn requests(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    shared: &Shared,
    pending: &Pending,
) -> io::Result<End> {
    while let Some(frame) = Frame::read(&mut from).await? {
        if let Some(hit) = frame.command().and_then(|command| shared.observe(command)) {
            match hit.action {
                Action::DropReply | Action::DelayReply(_) | Action::SwallowReply => {
                    remember(pending, &frame, hit);
                }
                Action::DropRequest => {
                    hit.count();
                    return Ok(End::Closed);
                }
                Action::DelayRequest(delay) => {
                    hit.count();
                    sleep(delay).await;
                }
                Action::LateRequest(delay) => {
                    hit.count();
                    return Ok(End::Late(frame, delay));
                }
                Action::SwallowRequest => {
                    hit.count();
                    return Ok(End::Silent);
                }
            }
        }
        pass(&frame, &mut to, shared, Direction::ToServer).await?;
    }
    Ok(End::Closed)
}

async fn replies(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    shared: &Shared,
    pending: &Pending,
) -> io::Result<End> {
    while let Some(frame) = Frame::read(&mut from).await? {
        if let Some(hit) = recall(pending, &frame) {
            hit.count();
            match hit.action {
                Action::DelayReply(delay) => sleep(delay).await,
                Action::SwallowReply => return Ok(End::Silent),
                _ => return Ok(End::Closed),
            }
        }
        pass(&frame, &mut to, shared, Direction::ToClient).await?;
    }
    Ok(End::Closed)
}

async fn pass(
    frame: &Frame,
    to: &mut WriteHalf<'_>,
    shared: &Shared,
    direction: Direction,
) -> io::Result<()> {
    let delay = shared.delay(direction);
    if !delay.is_zero() {
        sleep(delay).await;
    }
    shared.thawed().await;
    to.write_all(frame.bytes()).await
}

fn remember(pending: &Pending, request: &Frame, hit: Hit) {
    if let Some(id) = request.request_id() {
        lock(pending).insert(id, hit);
    }
}

fn recall(pending: &Pending, reply: &Frame) -> Option<Hit> {
    lock(pending).remove(&reply.response_to()?)
}
