//! What is on its way: commands, replies, events of the change stream, and one task of a process.

use std::time::Duration;

use crate::LockError;
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
    /// An acquire request. No process reads the reply to the echo of one: the driver has repeated it, or its connection has ended.
    Claim {
        id: Id,
        tokens: i64,
        expiry: Duration,
        is_echo: bool,
    },
    Release(Id),
    Look,
    Claimed(Result<AcquireReply, Failure>),
    /// Whether the release has found its claim.
    Released(Result<bool, Failure>),
    Looked(Result<Option<Running>, Failure>),
    Event(Event),
}

/// How a command fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Failure {
    /// It may have been applied.
    Unclear,
    /// Another operation blocks the document.
    Blocked,
}

impl Failure {
    pub(crate) fn error(self) -> LockError {
        match self {
            Self::Unclear => LockError::Unclear,
            Self::Blocked => LockError::Blocked,
        }
    }
}

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

    /// The error that this command or its reply ends with, if it can. An applied command was not blocked.
    pub(crate) fn failed(&self, failure: Failure) -> Option<Self> {
        if failure == Failure::Blocked && !self.is_command() {
            return None;
        }
        let body = match self.body {
            Body::Claim { is_echo: false, .. } | Body::Claimed(Ok(_)) => Body::Claimed(Err(failure)),
            Body::Release(_) | Body::Released(Ok(_)) => Body::Released(Err(failure)),
            Body::Look | Body::Looked(Ok(_)) if failure == Failure::Unclear => Body::Looked(Err(failure)),
            _ => return None,
        };
        Some(Self { body, ..*self })
    }
}
