//! The metrics of the feature `metrics`, on the facade of the crate `metrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ::metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use super::{AcquireOutcome, CommandKind};
use crate::LossReason;
use crate::sync::lock;

const ACQUIRES: &str = "mongolock_acquires_total";
const WAIT: &str = "mongolock_wait_seconds";
const HOLD: &str = "mongolock_hold_seconds";
const HELD: &str = "mongolock_held";
const WAITING: &str = "mongolock_waiting";
const LOST: &str = "mongolock_lost_total";
const HANDOVERS: &str = "mongolock_handovers_total";
const RENEWAL_AGE: &str = "mongolock_renewal_age_seconds";
const STALE_WRITES: &str = "mongolock_stale_writes_total";
const COMMANDS: &str = "mongolock_commands_total";

/// The label of locks whose names have no template.
const NO_LABEL: &str = "-";

/// The metrics of all locks of a provider.
#[derive(Default)]
pub(crate) struct Meter {
    locks: Mutex<BTreeMap<&'static str, LockMeter>>,
}

/// The metrics of the locks with one label.
#[derive(Clone)]
pub(crate) struct LockMeter(Arc<Handles>);

struct Handles {
    acquired: Counter,
    busy: Counter,
    timeout: Counter,
    done: Counter,
    shut_down: Counter,
    overloaded: Counter,
    error: Counter,
    cancelled: Counter,
    wait: Histogram,
    hold: Histogram,
    held: Gauge,
    waiting: Gauge,
    expired: Counter,
    gone: Counter,
    lost_at_shutdown: Counter,
    handed_over: Counter,
    renewal_age: Histogram,
}

/// The commands of a provider.
#[derive(Default)]
pub(crate) struct CommandMeter {
    counters: OnceLock<Counters>,
}

/// The counters by kind: confirmed commands and failed ones.
type Counters = [[Counter; 2]; KINDS.len()];

/// All kinds, in the order of their declaration: each is the index of its counters.
const KINDS: [CommandKind; 9] = [
    CommandKind::Acquire,
    CommandKind::Renew,
    CommandKind::Release,
    CommandKind::Commit,
    CommandKind::Look,
    CommandKind::Stream,
    CommandKind::Index,
    CommandKind::Hello,
    CommandKind::Admin,
];

impl Meter {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The metrics of the locks with this label. The first call for a label makes their handles, and with them its time
    /// series; later calls allocate nothing.
    pub(crate) fn of(&self, label: Option<&'static str>) -> LockMeter {
        let label = label.unwrap_or(NO_LABEL);
        let mut locks = lock(&self.locks);
        if locks.is_empty() {
            describe();
            // A series that begins with 1 has no increase for Prometheus.
            counter!(STALE_WRITES).increment(0);
        }
        let meter = locks
            .entry(label)
            .or_insert_with(|| LockMeter(Arc::new(Handles::new(label))));
        meter.clone()
    }
}

impl Handles {
    fn new(label: &'static str) -> Self {
        let acquires =
            |outcome: AcquireOutcome| counter!(ACQUIRES, "lock" => label, "outcome" => outcome.as_str());
        let lost = |reason: LossReason| counter!(LOST, "lock" => label, "reason" => reason.as_str());
        Self {
            acquired: acquires(AcquireOutcome::Acquired),
            busy: acquires(AcquireOutcome::Busy),
            timeout: acquires(AcquireOutcome::Timeout),
            done: acquires(AcquireOutcome::Done),
            shut_down: acquires(AcquireOutcome::ShutDown),
            overloaded: acquires(AcquireOutcome::Overloaded),
            error: acquires(AcquireOutcome::Error),
            cancelled: acquires(AcquireOutcome::Cancelled),
            wait: histogram!(WAIT, "lock" => label),
            hold: histogram!(HOLD, "lock" => label),
            held: gauge!(HELD, "lock" => label),
            waiting: gauge!(WAITING, "lock" => label),
            expired: lost(LossReason::Expired),
            gone: lost(LossReason::Gone),
            lost_at_shutdown: lost(LossReason::ShutDown),
            handed_over: counter!(HANDOVERS, "lock" => label),
            renewal_age: histogram!(RENEWAL_AGE, "lock" => label),
        }
    }
}

impl LockMeter {
    pub(crate) fn wait_begins(&self) {
        self.0.waiting.increment(1.0);
    }

    pub(crate) fn wait_ends(&self, outcome: AcquireOutcome, waited: Duration) {
        let handles = &self.0;
        handles.waiting.decrement(1.0);
        handles.wait.record(waited);
        let counter = match outcome {
            AcquireOutcome::Acquired => &handles.acquired,
            AcquireOutcome::Busy => &handles.busy,
            AcquireOutcome::Timeout => &handles.timeout,
            AcquireOutcome::Done => &handles.done,
            AcquireOutcome::ShutDown => &handles.shut_down,
            AcquireOutcome::Overloaded => &handles.overloaded,
            AcquireOutcome::Error => &handles.error,
            AcquireOutcome::Cancelled => &handles.cancelled,
        };
        counter.increment(1);
    }

    pub(crate) fn hold_begins(&self) {
        self.0.held.increment(1.0);
    }

    pub(crate) fn hold_ends(&self, held: Duration) {
        self.0.held.decrement(1.0);
        self.0.hold.record(held);
    }

    pub(crate) fn lost(&self, reason: LossReason) {
        let counter = match reason {
            LossReason::Expired => &self.0.expired,
            LossReason::Gone => &self.0.gone,
            LossReason::ShutDown => &self.0.lost_at_shutdown,
        };
        counter.increment(1);
    }

    pub(crate) fn handed_over(&self) {
        self.0.handed_over.increment(1);
    }

    /// A renewal was confirmed, this time after the one before it.
    pub(crate) fn renewed(&self, age: Duration) {
        self.0.renewal_age.record(age);
    }
}

impl CommandMeter {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Counts a command that has ended. An error may also be a reply.
    pub(crate) fn count(&self, kind: CommandKind, is_ok: bool) {
        let counters = self.counters.get_or_init(|| {
            KINDS.map(|kind| {
                let of = |outcome| counter!(COMMANDS, "command" => kind.as_str(), "outcome" => outcome);
                ["error", "ok"].map(of)
            })
        });
        counters[kind as usize][usize::from(is_ok)].increment(1);
    }
}

/// A write of a stale holder was refused. It is rare, and needs no provider, so its handle is not kept.
pub(crate) fn stale_write() {
    counter!(STALE_WRITES).increment(1);
}

fn describe() {
    let seconds = Unit::Seconds;
    describe_counter!(ACQUIRES, Unit::Count, "Calls that waited for a lock, by outcome");
    describe_histogram!(
        WAIT,
        seconds,
        "How long calls waited for a lock, whatever the outcome"
    );
    describe_histogram!(HOLD, seconds, "How long locks were held");
    describe_gauge!(HELD, Unit::Count, "Locks that are held");
    describe_gauge!(WAITING, Unit::Count, "Calls that wait for a lock");
    describe_counter!(
        LOST,
        Unit::Count,
        "Leases that ended before their work, by reason"
    );
    describe_counter!(
        HANDOVERS,
        Unit::Count,
        "Holds that passed to another caller in the process without a command"
    );
    describe_histogram!(
        RENEWAL_AGE,
        seconds,
        "The age of leases when their renewal was confirmed"
    );
    describe_counter!(
        STALE_WRITES,
        Unit::Count,
        "Writes of stale lock holders that were refused"
    );
    describe_counter!(
        COMMANDS,
        Unit::Count,
        "Commands to MongoDB that have ended, by kind"
    );
}
