//! What the proxy does to single messages.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::SupportError;

/// Background traffic of every client: a fault for any command must not be used up by it.
const BACKGROUND: [&str; 7] = [
    "hello",
    "ismaster",
    "isMaster",
    "ping",
    "saslStart",
    "saslContinue",
    "endSessions",
];

/// Something to happen to the next message of a kind: for [`Proxy::inject`](crate::Proxy::inject).
#[derive(Clone, Debug)]
#[must_use]
pub struct Fault {
    action: Action,
    command: Option<String>,
    times: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    DropReply,
    DropRequest,
    DelayReply(Duration),
    DelayRequest(Duration),
    LateRequest(Duration),
    SwallowReply,
    SwallowRequest,
}

impl Fault {
    /// The server does it, but its answer never arrives: the connection is closed instead.
    pub fn drop_reply() -> Self {
        Self::new(Action::DropReply)
    }

    /// The server never hears of it: the connection is closed.
    pub fn drop_request() -> Self {
        Self::new(Action::DropRequest)
    }

    /// The answer arrives later.
    pub fn delay_reply(delay: Duration) -> Self {
        Self::new(Action::DelayReply(delay))
    }

    /// The server hears of it later.
    pub fn delay_request(delay: Duration) -> Self {
        Self::new(Action::DelayRequest(delay))
    }

    /// The client's connection is closed at once, and the server hears of it later all the same.
    pub fn late_request(delay: Duration) -> Self {
        Self::new(Action::LateRequest(delay))
    }

    /// The server executes it, but its reply never arrives. The connection stays open and carries nothing any more, in
    /// either direction: as through a router that has forgotten it.
    pub fn swallow_reply() -> Self {
        Self::new(Action::SwallowReply)
    }

    /// The server never receives it. The connection stays open and carries nothing any more, in either direction.
    pub fn swallow_request() -> Self {
        Self::new(Action::SwallowRequest)
    }

    fn new(action: Action) -> Self {
        Self {
            action,
            command: None,
            times: 1,
        }
    }

    /// Only commands of this name, as the server knows it: `findAndModify`, `update`, `find`, and so on. If not set:
    /// any command except the driver's own background traffic (handshakes, pings, log-ins).
    pub fn command(mut self, name: &str) -> Self {
        self.command = Some(name.to_owned());
        self
    }

    /// This many times instead of once.
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    fn applies_to(&self, command: &str) -> bool {
        self.command
            .as_deref()
            .map_or(!BACKGROUND.contains(&command), |wanted| wanted == command)
    }
}

/// A fault that has been injected: tells how often it has happened.
#[derive(Clone, Debug)]
pub struct Injected {
    hits: watch::Receiver<u32>,
    times: u32,
}

impl Injected {
    /// How many messages it has hit so far.
    #[must_use]
    pub fn hits(&self) -> u32 {
        *self.hits.borrow()
    }

    /// Waits until it has hit as many messages as it was to hit.
    ///
    /// # Errors
    /// [`SupportError::Deadline`] after `limit`.
    pub async fn happened(&self, limit: Duration) -> Result<(), SupportError> {
        let mut hits = self.hits.clone();
        let waiting = hits.wait_for(|hits| *hits >= self.times);
        // Without its sender it cannot happen any more, which is just as late.
        let happened = timeout(limit, waiting).await.is_ok_and(|hits| hits.is_ok());
        let late = || SupportError::Deadline {
            what: "the fault that was injected".to_owned(),
            limit,
        };
        happened.then_some(()).ok_or_else(late)
    }
}

/// The faults that wait for their messages.
#[derive(Debug, Default)]
pub(super) struct Armed(Vec<(Fault, Arc<watch::Sender<u32>>)>);

impl Armed {
    pub(super) fn add(&mut self, fault: Fault) -> Injected {
        let (sender, hits) = watch::channel(0);
        let injected = Injected {
            hits,
            times: fault.times,
        };
        self.0.push((fault, Arc::new(sender)));
        injected
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What is to happen to this request or to its reply: the oldest fault that fits is used up by one.
    pub(super) fn take(&mut self, command: &str) -> Option<Hit> {
        let index = self
            .0
            .iter()
            .position(|(fault, _)| fault.times > 0 && fault.applies_to(command))?;
        let (fault, counter) = &mut self.0[index];
        fault.times -= 1;
        let hit = Hit {
            action: fault.action,
            counter: Arc::clone(counter),
        };
        // The counter's last sender may go now: what it has counted stays readable.
        if fault.times == 0 {
            drop(self.0.remove(index));
        }
        Some(hit)
    }
}

/// A message that a fault was made for.
#[derive(Debug)]
pub(super) struct Hit {
    pub(super) action: Action,
    counter: Arc<watch::Sender<u32>>,
}

impl Hit {
    /// To be called when it happens: for a reply, later than the choice.
    pub(super) fn count(&self) {
        self.counter.send_modify(|hits| *hits += 1);
    }
}
