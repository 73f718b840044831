//! Network faults on demand: a TCP proxy on the loopback address that parses MongoDB's messages.

mod fault;
mod frame;
mod relay;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::error::{SupportError, locked, must};
use crate::purpose::{Meant, Seen};
use fault::{Armed, Hit};
pub use fault::{Fault, Injected};
use relay::{relay, swallow};

/// The direction of a message through a [`Proxy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Requests.
    ToServer,
    /// Replies.
    ToClient,
}

/// A proxy in front of one [`Node`](crate::Node) that drops, delays or swallows messages. It runs on the runtime that
/// started it, and all its tasks and connections end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    target: String,
    armed: Mutex<Armed>,
    seen: Mutex<HashMap<Seen, u64>>,
    /// The delay of requests, and the delay of replies.
    delays: Mutex<[Duration; 2]>,
    frozen: watch::Sender<bool>,
    resets: watch::Sender<()>,
    new_connections: Mutex<NewConnections>,
    /// The number of connections that were refused or swallowed.
    kept_out: AtomicU64,
}

/// What happens to a connection that a client opens.
#[derive(Clone, Copy, Debug, Default)]
enum NewConnections {
    #[default]
    Relayed,
    Refused,
    Swallowed,
}

impl Proxy {
    /// A proxy on a free port of its own, in front of `target` (host and port).
    pub async fn start(target: &str) -> Result<Self, SupportError> {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.map_err(SupportError::at("cannot listen on 127.0.0.1"))?;
        let address = must(listener.local_addr()).to_string();
        let shared = Arc::new(Shared {
            target: target.to_owned(),
            ..Shared::default()
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            accepting,
        })
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A connection string for the node behind it.
    pub fn uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.address)
    }

    /// Applies a fault to the next message of its kind. Several faults for the same kind of message are applied one
    /// after the other, in the order of the calls.
    pub fn inject(&self, fault: Fault) -> Injected {
        locked(&self.shared.armed).add(fault)
    }

    /// Removes the faults that have not hit yet.
    pub fn clear_faults(&self) {
        locked(&self.shared.armed).clear();
    }

    /// The number of commands of this name or of this purpose that have arrived, including those that a fault has hit.
    pub fn seen(&self, meant: impl Into<Meant>) -> u64 {
        let meant = meant.into();
        let seen = locked(&self.shared.seen);
        let counts = seen.iter().filter(|(command, _)| meant.includes(command));
        counts.map(|(_, count)| count).sum()
    }

    /// Delays every message in one direction from now on; zero ends it.
    pub fn set_delay(&self, direction: Direction, delay: Duration) {
        locked(&self.shared.delays)[direction as usize] = delay;
    }

    /// Holds back all messages, in both directions. Connections stay open, and new ones seem to succeed.
    pub fn freeze(&self) {
        self.shared.frozen.send_replace(true);
    }

    /// Ends the freeze: the messages that were held back arrive now.
    pub fn thaw(&self) {
        self.shared.frozen.send_replace(false);
    }

    /// Breaks all connections that exist, as a crashed machine would (TCP reset).
    pub fn reset_connections(&self) {
        self.shared.resets.send_replace(());
    }

    /// Resets new connections at once from now on; those that exist stay.
    pub fn refuse_connections(&self) {
        *locked(&self.shared.new_connections) = NewConnections::Refused;
    }

    /// Accepts new connections from now on, but forwards nothing on them, in either direction, until they are reset. Those
    /// that exist stay.
    pub fn swallow_connections(&self) {
        *locked(&self.shared.new_connections) = NewConnections::Swallowed;
    }

    /// The number of connections that were refused or swallowed so far.
    pub fn kept_out(&self) -> u64 {
        self.shared.kept_out.load(Ordering::Relaxed)
    }

    /// Relays new connections again. Those that were swallowed before stay silent.
    pub fn accept_connections(&self) {
        *locked(&self.shared.new_connections) = NewConnections::Relayed;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    /// Counts a request and returns the fault that applies to it.
    fn observe(&self, command: Seen) -> Option<Hit> {
        let hit = locked(&self.armed).take(&command);
        *locked(&self.seen).entry(command).or_default() += 1;
        hit
    }

    fn delay(&self, direction: Direction) -> Duration {
        locked(&self.delays)[direction as usize]
    }

    async fn thawed(&self) {
        // This fails only without a sender, which lives as long as `self`.
        let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
    }
}

/// The connections' tasks belong to the set, so they end with this one.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { return };
                let new = *locked(&shared.new_connections);
                if !matches!(new, NewConnections::Relayed) {
                    shared.kept_out.fetch_add(1, Ordering::Relaxed);
                }
                let shared = Arc::clone(&shared);
                // A broken connection is expected, and both sides notice it.
                match new {
                    NewConnections::Relayed => connections.spawn(async move { relay(client, &shared).await.ok() }),
                    NewConnections::Refused => connections.spawn(async move { client.set_zero_linger().ok() }),
                    NewConnections::Swallowed => {
                        let resets = shared.resets.subscribe();
                        connections.spawn(async move { swallow(client, resets).await.ok() })
                    }
                };
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
