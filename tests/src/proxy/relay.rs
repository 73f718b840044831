//! One connection through the proxy.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::sleep;

use super::fault::{Effect, Hit};
use super::frame::Frame;
use super::{Direction, Shared};
use crate::error::locked;

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
            end = forward(from_client, to_server, shared, Direction::ToServer, &pending) => end?,
            end = forward(from_server, to_client, shared, Direction::ToClient, &pending) => end?,
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
        End::Silent => swallow(client, resets).await?,
    }
    Ok(())
}

/// Keeps a connection open until a reset, and forwards nothing.
pub(super) async fn swallow(client: TcpStream, mut resets: watch::Receiver<()>) -> io::Result<()> {
    // This fails only without a sender, and then the proxy has ended as well.
    let _ = resets.changed().await;
    client.set_zero_linger()
}

async fn forward(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    shared: &Shared,
    direction: Direction,
    pending: &Pending,
) -> io::Result<End> {
    while let Some(frame) = Frame::read(&mut from).await? {
        let hit = match direction {
            Direction::ToServer => request(&frame, shared, pending),
            Direction::ToClient => frame.response_to().and_then(|id| locked(pending).remove(&id)),
        };
        if let Some(hit) = hit {
            hit.count();
            match hit.effect {
                Effect::Close => return Ok(End::Closed),
                Effect::Delay(delay) => sleep(delay).await,
                Effect::CloseAndDelay(delay) => return Ok(End::Late(frame, delay)),
                Effect::Silence => return Ok(End::Silent),
            }
        }
        let delay = shared.delay(direction);
        if !delay.is_zero() {
            sleep(delay).await;
        }
        shared.thawed().await;
        to.write_all(frame.bytes()).await?;
    }
    Ok(End::Closed)
}

/// The fault that hits a request; one that hits its reply waits for that.
fn request(frame: &Frame, shared: &Shared, pending: &Pending) -> Option<Hit> {
    let hit = shared.observe(frame.command()?)?;
    match (hit.direction, frame.request_id()) {
        (Direction::ToServer, _) => Some(hit),
        (Direction::ToClient, Some(id)) => {
            locked(pending).insert(id, hit);
            None
        }
        (Direction::ToClient, None) => None,
    }
}
