//! The metrics of a provider; without the feature `metrics` they are empty types and cost nothing.
//!
//! The handles of the metrics are created once for each provider and label, at the first acquire. After that, a
//! measurement is a few atomic operations. A label is a constant of the program, never the name of a lock: there may be
//! very many names, and each label is a time series of its own.

#[cfg(feature = "metrics")]
mod recorded;
#[cfg(not(feature = "metrics"))]
mod silent;

use std::time::Duration;

#[cfg(feature = "metrics")]
pub(crate) use recorded::{CommandMeter, LockMeter, Meter, stale_write};
#[cfg(not(feature = "metrics"))]
pub(crate) use silent::{CommandMeter, LockMeter, Meter, stale_write};

use crate::LossReason;

/// A measurement of a lock.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(feature = "metrics"),
    expect(dead_code, reason = "only the feature reads the fields")
)]
pub(crate) enum Measure {
    WaitBegins,
    /// A call has waited for this time.
    WaitEnds(AcquireOutcome, Duration),
    HoldBegins,
    /// The lock was held for this time.
    HoldEnds(Duration),
    Lost(LossReason),
    /// The hold was handed over to another caller of the process, without a command.
    HandedOver,
    /// A renewal was confirmed, this time after the one before it.
    Renewed(Duration),
}

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

/// The values of the label `outcome`, in the order of [`AcquireOutcome`].
const OUTCOMES: [&str; 8] = [
    "acquired",
    "busy",
    "timeout",
    "done",
    "shut_down",
    "overloaded",
    "error",
    "cancelled",
];

impl AcquireOutcome {
    /// The value of the label `outcome`, and of the field of the span `mongolock.acquire`.
    pub(crate) const fn as_str(self) -> &'static str {
        OUTCOMES[self as usize]
    }
}

/// The purpose of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandKind {
    Acquire,
    Renew,
    Release,
    /// The statement that guards a commit.
    Commit,
    /// One query for the locks of many waiters.
    Look,
    /// The opening of a change stream.
    Stream,
    Index,
    Hello,
    Admin,
}
