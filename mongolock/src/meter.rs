//! The metrics of a provider; without the feature `metrics` their types are empty and cost nothing.
//!
//! The handles of the metrics are created once for each provider and label, at the first acquire. After that, a
//! measurement is a few atomic operations. A label is a constant of the program, never the name of a lock: there may be
//! very many names, and each label is a time series of its own.

// Only the feature records what is measured.
#![cfg_attr(
    not(feature = "metrics"),
    expect(dead_code, unused_variables, clippy::unused_self)
)]

#[cfg(feature = "metrics")]
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

#[cfg(feature = "metrics")]
use ::metrics::{Counter, Gauge, Histogram, Unit, counter, describe_counter, gauge, histogram};

use crate::LossReason;

/// A measurement of a lock.
#[derive(Clone, Copy)]
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

/// The values of the label `command`, in the order of [`CommandKind`].
const KINDS: [&str; 9] = [
    "acquire", "renew", "release", "commit", "look", "stream", "index", "hello", "admin",
];

/// The reasons of losses, in the order of their declaration.
const REASONS: [LossReason; 3] = [LossReason::Expired, LossReason::Gone, LossReason::ShutDown];

/// The commands that have ended.
const COMMANDS: &str = "mongolock_commands_total";

/// The metrics of all locks of a provider.
#[derive(Default)]
pub(crate) struct Meter {
    #[cfg(feature = "metrics")]
    locks: Mutex<std::collections::BTreeMap<&'static str, Arc<Handles>>>,
}

/// The metrics of the locks with one label.
#[derive(Clone)]
pub(crate) struct LockMeter {
    #[cfg(feature = "metrics")]
    handles: Arc<Handles>,
}

/// The commands of a provider, by kind: failed ones and confirmed ones.
#[derive(Default)]
pub(crate) struct CommandMeter {
    #[cfg(feature = "metrics")]
    counters: OnceLock<[[Counter; 2]; KINDS.len()]>,
}

impl Meter {
    /// The metrics of the locks with this label; `-` stands for names without a template. The first call for a label makes their handles, and with them its time
    /// series; later calls allocate nothing.
    pub(crate) fn of(&self, label: Option<&'static str>) -> LockMeter {
        LockMeter {
            #[cfg(feature = "metrics")]
            handles: self.handles(label.unwrap_or("-")),
        }
    }

    #[cfg(feature = "metrics")]
    fn handles(&self, label: &'static str) -> Arc<Handles> {
        let mut locks = crate::sync::lock(&self.locks);
        if locks.is_empty() {
            describe_counter!(COMMANDS, Unit::Count, "Commands that have ended, by kind");
            // The series must begin with 0: Prometheus would not see an increase to the first value 1.
            stale_writes().increment(0);
        }
        let new = || Arc::new(Handles::new(label));
        Arc::clone(locks.entry(label).or_insert_with(new))
    }
}

impl LockMeter {
    pub(crate) fn record(&self, measure: Measure) {
        #[cfg(feature = "metrics")]
        self.handles.record(measure);
    }
}

impl CommandMeter {
    /// Counts a command that has ended. A reply may also be an error.
    pub(crate) fn count(&self, kind: CommandKind, is_ok: bool) {
        #[cfg(feature = "metrics")]
        self.counters.get_or_init(commands)[kind as usize][usize::from(is_ok)].increment(1);
    }
}

/// A write of a stale holder was refused. This is rare and does not depend on a provider, so the handle is not kept.
pub(crate) fn stale_write() {
    #[cfg(feature = "metrics")]
    stale_writes().increment(1);
}

/// The registered metrics of one label.
#[cfg(feature = "metrics")]
struct Handles {
    acquires: [Counter; OUTCOMES.len()],
    wait: Histogram,
    hold: Histogram,
    held: Gauge,
    waiting: Gauge,
    lost: [Counter; REASONS.len()],
    handed_over: Counter,
    renewal_age: Histogram,
}

#[cfg(feature = "metrics")]
impl Handles {
    fn new(label: &'static str) -> Self {
        type Text = &'static str;
        let time = |name: Text, text: Text| histogram!(description: text, unit: Unit::Seconds, name, "lock" => label);
        let now =
            |name: Text, text: Text| gauge!(description: text, unit: Unit::Count, name, "lock" => label);
        let acquires = |outcome: Text| {
            counter!(
                description: "Calls that waited for a lock, by outcome", unit: Unit::Count,
                "mongolock_acquires_total", "lock" => label, "outcome" => outcome
            )
        };
        let lost = |reason: LossReason| {
            counter!(
                description: "Leases that ended before their work, by reason", unit: Unit::Count,
                "mongolock_lost_total", "lock" => label, "reason" => reason.as_str()
            )
        };
        Self {
            acquires: OUTCOMES.map(acquires),
            wait: time("mongolock_wait_seconds", "How long calls waited for a lock"),
            hold: time("mongolock_hold_seconds", "How long locks were held"),
            held: now("mongolock_held", "Locks that are held"),
            waiting: now("mongolock_waiting", "Calls that wait for a lock"),
            lost: REASONS.map(lost),
            handed_over: counter!(
                description: "Holds that passed on in the process without a command", unit: Unit::Count,
                "mongolock_handovers_total", "lock" => label
            ),
            renewal_age: time("mongolock_renewal_age_seconds", "The age of renewed leases"),
        }
    }

    fn record(&self, measure: Measure) {
        match measure {
            Measure::WaitBegins => self.waiting.increment(1.0),
            Measure::WaitEnds(outcome, waited) => {
                self.waiting.decrement(1.0);
                self.wait.record(waited);
                self.acquires[outcome as usize].increment(1);
            }
            Measure::HoldBegins => self.held.increment(1.0),
            Measure::HoldEnds(held) => {
                self.held.decrement(1.0);
                self.hold.record(held);
            }
            Measure::Lost(reason) => self.lost[reason as usize].increment(1),
            Measure::HandedOver => self.handed_over.increment(1),
            Measure::Renewed(age) => self.renewal_age.record(age),
        }
    }
}

#[cfg(feature = "metrics")]
fn commands() -> [[Counter; 2]; KINDS.len()] {
    let of = |kind, outcome| counter!(COMMANDS, "command" => kind, "outcome" => outcome);
    KINDS.map(|kind| ["error", "ok"].map(|outcome| of(kind, outcome)))
}

#[cfg(feature = "metrics")]
fn stale_writes() -> Counter {
    counter!(
        description: "Writes of stale lock holders that were refused", unit: Unit::Count,
        "mongolock_stale_writes_total"
    )
}
