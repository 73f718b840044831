//! The metrics of the feature `metrics`, on the facade of the crate `metrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use ::metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use super::{CommandKind, Measure, OUTCOMES};
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

/// The values of the label `command`, in the order of [`CommandKind`].
const KINDS: [&str; 9] = [
    "acquire", "renew", "release", "commit", "look", "stream", "index", "hello", "admin",
];

/// The reasons of losses, in the order of their declaration.
const REASONS: [LossReason; 3] = [LossReason::Expired, LossReason::Gone, LossReason::ShutDown];

/// The metrics of all locks of a provider.
#[derive(Default)]
pub(crate) struct Meter {
    locks: Mutex<BTreeMap<&'static str, LockMeter>>,
}

/// The metrics of the locks with one label.
#[derive(Clone)]
pub(crate) struct LockMeter(Arc<Handles>);

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

impl Meter {
    /// The metrics of the locks with this label. The first call for a label makes their handles, and with them its time
    /// series; later calls allocate nothing.
    pub(crate) fn of(&self, label: Option<&'static str>) -> LockMeter {
        let label = label.unwrap_or(NO_LABEL);
        let mut locks = lock(&self.locks);
        if locks.is_empty() {
            describe();
            // The series must begin with 0: Prometheus would not see an increase to the first value 1.
            counter!(STALE_WRITES).increment(0);
        }
        let meter = locks.entry(label).or_insert_with(|| LockMeter::new(label));
        meter.clone()
    }
}

impl LockMeter {
    fn new(label: &'static str) -> Self {
        Self(Arc::new(Handles {
            acquires: OUTCOMES.map(|outcome| counter!(ACQUIRES, "lock" => label, "outcome" => outcome)),
            wait: histogram!(WAIT, "lock" => label),
            hold: histogram!(HOLD, "lock" => label),
            held: gauge!(HELD, "lock" => label),
            waiting: gauge!(WAITING, "lock" => label),
            lost: REASONS.map(|reason| counter!(LOST, "lock" => label, "reason" => reason.as_str())),
            handed_over: counter!(HANDOVERS, "lock" => label),
            renewal_age: histogram!(RENEWAL_AGE, "lock" => label),
        }))
    }

    pub(crate) fn record(&self, measure: Measure) {
        let handles = &*self.0;
        match measure {
            Measure::WaitBegins => handles.waiting.increment(1.0),
            Measure::WaitEnds(outcome, waited) => {
                handles.waiting.decrement(1.0);
                handles.wait.record(waited);
                handles.acquires[outcome as usize].increment(1);
            }
            Measure::HoldBegins => handles.held.increment(1.0),
            Measure::HoldEnds(held) => {
                handles.held.decrement(1.0);
                handles.hold.record(held);
            }
            Measure::Lost(reason) => handles.lost[reason as usize].increment(1),
            Measure::HandedOver => handles.handed_over.increment(1),
            Measure::Renewed(age) => handles.renewal_age.record(age),
        }
    }
}

/// The commands of a provider, by kind: failed ones and confirmed ones.
#[derive(Default)]
pub(crate) struct CommandMeter(OnceLock<[[Counter; 2]; KINDS.len()]>);

impl CommandMeter {
    /// Counts a command that has ended. A reply may also be an error.
    pub(crate) fn count(&self, kind: CommandKind, is_ok: bool) {
        let counters = self.0.get_or_init(|| {
            let of = |kind, outcome| counter!(COMMANDS, "command" => kind, "outcome" => outcome);
            KINDS.map(|kind| ["error", "ok"].map(|outcome| of(kind, outcome)))
        });
        counters[kind as usize][usize::from(is_ok)].increment(1);
    }
}

/// A write of a stale holder was refused. This is rare and does not depend on a provider, so the handle is not kept.
pub(crate) fn stale_write() {
    counter!(STALE_WRITES).increment(1);
}

fn describe() {
    for (name, text) in [
        (ACQUIRES, "Calls that waited for a lock, by outcome"),
        (LOST, "Leases that ended before their work, by reason"),
        (HANDOVERS, "Holds that passed on in the process without a command"),
        (STALE_WRITES, "Writes of stale lock holders that were refused"),
        (COMMANDS, "Commands to MongoDB that have ended, by kind"),
    ] {
        describe_counter!(name, Unit::Count, text);
    }
    for (name, text) in [
        (WAIT, "How long calls waited for a lock, whatever the outcome"),
        (HOLD, "How long locks were held"),
        (RENEWAL_AGE, "The age of leases when their renewal was confirmed"),
    ] {
        describe_histogram!(name, Unit::Seconds, text);
    }
    describe_gauge!(HELD, Unit::Count, "Locks that are held");
    describe_gauge!(WAITING, Unit::Count, "Calls that wait for a lock");
}
