//! The metrics of a provider; without the feature `metrics` they are empty types and cost nothing.
//!
//! The handles of the metrics are made once for each provider and label, at the first acquire: after that, a measurement is
//! a few atomic operations. A label is a constant of the program, never the name of a lock: there may be very many names,
//! and each label is a time series of its own.

#[cfg(feature = "metrics")]
mod recorded;
#[cfg(not(feature = "metrics"))]
mod silent;

#[cfg(feature = "metrics")]
pub(crate) use recorded::{CommandMeter, LockMeter, Meter, stale_write};
#[cfg(not(feature = "metrics"))]
pub(crate) use silent::{CommandMeter, LockMeter, Meter, stale_write};

/// How a call that waited for a lock ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcquireOutcome {
    Acquired,
    Busy,
    Timeout,
    /// The work under the lock is done and succeeds only once.
    Done,
    ShutDown,
    /// The server rejects commands for overload.
    Overloaded,
    Error,
    /// The caller has dropped the future.
    Cancelled,
}

/// What a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandKind {
    Acquire,
    Renew,
    Release,
    /// The statement that guards a commit.
    Commit,
    /// One query that looks at the locks of many waiters.
    Look,
    /// The opening of a change stream.
    Stream,
    Index,
    Hello,
    Admin,
}

impl CommandKind {
    /// The value of the label `command`.
    #[cfg(feature = "metrics")]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Commit => "commit",
            Self::Look => "look",
            Self::Stream => "stream",
            Self::Index => "index",
            Self::Hello => "hello",
            Self::Admin => "admin",
        }
    }
}

impl AcquireOutcome {
    /// The value of the label `outcome`, and of the field of the span `mongolock.acquire`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::Done => "done",
            Self::ShutDown => "shut_down",
            Self::Overloaded => "overloaded",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
        }
    }
}
