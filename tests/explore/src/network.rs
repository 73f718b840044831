//! What is on its way: commands, replies, events of the change stream, and one task of a process.

use std::time::Duration;

use crate::id::Id;
use crate::store::AcquireReply;
use crate::time::Instant;

/// One message. It arrives after any of the others, but the events for one process arrive in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Message {
    /// The process that has sent the command, or that gets the event.
    pub(crate) process: u8,
    /// The number of the command or of the event in its process.
    pub(crate) no: u32,
    pub(crate) sent: Instant,
    pub(crate) body: Body,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Body {
    /// An acquire request. Nobody reads the reply to the echo of one, which the driver has sent before it repeated the command.
    Claim {
        id: Id,
        tokens: i64,
        expiry: Duration,
        is_echo: bool,
    },
    Release(Id),
    Look,
    Claimed(Result<AcquireReply, Unclear>),
    /// Whether the release has found its claim.
    Released(Result<bool, Unclear>),
    Looked(Result<Option<Running>, Unclear>),
    Event(Event),
    /// The task runs that releases a hold which was left for the next caller.
    Left,
}

/// An error after which the command may have been applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Unclear;

/// A lease that a look has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Running {
    pub(crate) holder: Option<Id>,
    pub(crate) remaining: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Event {
    Released,
    Acquired(Id),
}

impl Message {
    pub(crate) fn is_command(&self) -> bool {
        matches!(self.body, Body::Claim { .. } | Body::Release(_) | Body::Look)
    }

    /// Whether the network can lose it.
    pub(crate) fn can_be_lost(&self) -> bool {
        !matches!(self.body, Body::Left)
    }

    /// The unclear error that this command or its reply ends with, if it can.
    pub(crate) fn failed(&self) -> Option<Self> {
        let body = match self.body {
            Body::Claim { is_echo: false, .. } | Body::Claimed(Ok(_)) => Body::Claimed(Err(Unclear)),
            Body::Release(_) | Body::Released(Ok(_)) => Body::Released(Err(Unclear)),
            Body::Look | Body::Looked(Ok(_)) => Body::Looked(Err(Unclear)),
            _ => return None,
        };
        Some(Self { body, ..*self })
    }
}
