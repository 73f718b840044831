//! The faults that the proxy applies to single messages.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::Direction;
use crate::error::SupportError;
use crate::purpose::{Meant, Seen};

/// The background commands of every client: they do not count for a fault without a command name.
const BACKGROUND: &str = "hello ismaster isMaster ping saslStart saslContinue endSessions";

/// A fault for the next message of a kind, to be passed to [`Proxy::inject`](crate::Proxy::inject).
#[derive(Clone, Debug)]
#[must_use]
pub struct Fault {
    /// Whether it hits requests or replies.
    direction: Direction,
    effect: Effect,
    meant: Option<Meant>,
    times: u32,
}

/// What happens to a message, and to its connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// The message never arrives, and the connection is closed.
    Close,
    /// The message arrives later.
    Delay(Duration),
    /// The connection of the client is closed, and the message arrives later.
    CloseAndDelay(Duration),
    /// Neither this message nor a later one of the connection arrives.
    Silence,
}

impl Fault {
    /// The server executes the command, but its reply never arrives: the connection is closed instead.
    pub fn drop_reply() -> Self {
        Self::new(Direction::ToClient, Effect::Close)
    }

    /// The server never receives the command: the connection is closed.
    pub fn drop_request() -> Self {
        Self::new(Direction::ToServer, Effect::Close)
    }

    /// The reply arrives later.
    pub fn delay_reply(delay: Duration) -> Self {
        Self::new(Direction::ToClient, Effect::Delay(delay))
    }

    /// The server receives the command later.
    pub fn delay_request(delay: Duration) -> Self {
        Self::new(Direction::ToServer, Effect::Delay(delay))
    }

    /// The client's connection is closed at once, but the server still receives the command later.
    pub fn late_request(delay: Duration) -> Self {
        Self::new(Direction::ToServer, Effect::CloseAndDelay(delay))
    }

    /// The server executes the command, but its reply never arrives. The connection stays open and forwards nothing any
    /// more, in either direction, as after a router has dropped its state.
    pub fn swallow_reply() -> Self {
        Self::new(Direction::ToClient, Effect::Silence)
    }

    /// The server never receives the command. The connection stays open and forwards nothing any more, in either
    /// direction.
    pub fn swallow_request() -> Self {
        Self::new(Direction::ToServer, Effect::Silence)
    }

    fn new(direction: Direction, effect: Effect) -> Self {
        Self {
            direction,
            effect,
            meant: None,
            times: 1,
        }
    }

    /// Hits only commands of this name or of this purpose. Without it the fault hits any command except the driver's own
    /// background traffic (handshakes, pings, log-ins).
    pub fn command(mut self, meant: impl Into<Meant>) -> Self {
        self.meant = Some(meant.into());
        self
    }

    /// Hits this many messages instead of one.
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    fn applies_to(&self, command: &Seen) -> bool {
        match &self.meant {
            Some(meant) => meant.includes(command),
            None => !BACKGROUND.split(' ').any(|name| name == command.name),
        }
    }
}

/// An injected fault, which counts its hits.
#[derive(Clone, Debug)]
pub struct Injected {
    hits: watch::Receiver<u32>,
    times: u32,
}

impl Injected {
    /// The number of messages that it has hit so far.
    pub fn hits(&self) -> u32 {
        *self.hits.borrow()
    }

    /// Waits until it has hit all its messages.
    pub async fn happened(&self, limit: Duration) -> Result<(), SupportError> {
        let mut hits = self.hits.clone();
        let waiting = hits.wait_for(|hits| *hits >= self.times);
        // Without its sender the fault cannot hit any more, which is the same as a missed deadline.
        let happened = timeout(limit, waiting).await.is_ok_and(|hits| hits.is_ok());
        let late = || SupportError(format!("the injected fault has not hit all within {limit:?}"));
        happened.then_some(()).ok_or_else(late)
    }
}

/// The faults that wait for their messages, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Armed(Vec<(Fault, Arc<watch::Sender<u32>>)>);

impl Armed {
    pub(super) fn add(&mut self, fault: Fault) -> Injected {
        let (sender, hits) = watch::channel(0);
        let times = fault.times;
        self.0.push((fault, Arc::new(sender)));
        Injected { hits, times }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The fault for this request or its reply: the oldest one that applies, whose count is reduced by one.
    pub(super) fn take(&mut self, command: &Seen) -> Option<Hit> {
        let index = self.0.iter().position(|(fault, _)| fault.applies_to(command))?;
        let (fault, counter) = &mut self.0[index];
        fault.times -= 1;
        let hit = Hit {
            direction: fault.direction,
            effect: fault.effect,
            counter: Arc::clone(counter),
        };
        // The last sender of the counter may be dropped: receivers can still read the count.
        if fault.times == 0 {
            drop(self.0.remove(index));
        }
        Some(hit)
    }
}

/// A fault that applies to one message.
#[derive(Debug)]
pub(super) struct Hit {
    pub(super) direction: Direction,
    pub(super) effect: Effect,
    counter: Arc<watch::Sender<u32>>,
}

impl Hit {
    /// Counts the hit. The caller calls this when the fault takes effect: for a reply, that is later than the choice.
    pub(super) fn count(&self) {
        self.counter.send_modify(|hits| *hits += 1);
    }
}
