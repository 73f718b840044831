//! The locks and the options of a call.

use std::sync::Arc;
use std::time::Duration;

use super::plan::Knob::{Drops, Long};
use super::plan::{Plan, Work};
use super::{chance, choice, millis};
use crate::protocol::Name;
use crate::timing::SHORT_CALL;
use crate::{Lock, LockKind, permit_id};

/// The semaphore of a run.
pub(super) const SEMAPHORE: &str = "permits";

/// The patience of a caller that never drops a call.
const PATIENT: Duration = Duration::from_secs(100_000);

#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) work: Work,
    /// The names that users see: one name, or those of a set.
    pub(super) names: Vec<String>,
    /// The names of its documents: for a semaphore, those of all permits.
    pub(super) documents: Vec<Name>,
    pub(super) expiry: Duration,
    pub(super) limit: Option<Duration>,
    pub(super) min_hold: Duration,
    pub(super) max_hold: Option<Duration>,
    pub(super) holds: Duration,
    pub(super) is_try: bool,
    /// Whether the call runs a body.
    pub(super) runs: bool,
    /// After this time the caller drops the call.
    pub(super) patience: Duration,
}

impl Wish {
    pub(super) fn draw(plan: &Plan, work: Work, now: i64) -> Self {
        let names = names(plan, work, now);
        let documents = match work {
            Work::Permit => (0..plan.permits)
                .map(|number| permit_id::new(SEMAPHORE, number))
                .collect(),
            _ => names.iter().map(|name| Arc::from(&**name)).collect(),
        };
        let has_once = matches!(work, Work::Period | Work::Once);
        let is_plain = !has_once;
        let is_kept = is_plain && chance(150);
        let (usual, other) = (plan.has(Long) || chance(900), millis(300..=3000));
        Self {
            work,
            names,
            documents,
            expiry: if usual { plan.expiry } else { other },
            limit: choice(&[None, Some(50), Some(500), Some(3000), Some(10_000)]).map(Duration::from_millis),
            min_hold: millis(1..=400) * u32::from(is_kept),
            max_hold: (is_plain && chance(100)).then(|| millis(500..=4000)),
            holds: millis(0..=plan.holds) * if chance(50) { 10 } else { 1 },
            is_try: chance(200),
            runs: is_plain && chance(250) || has_once && chance(500),
            patience: patience(plan, 1500),
        }
    }

    /// Whether the call needs all of the documents.
    pub(super) fn wants_all(&self) -> bool {
        self.work == Work::Set
    }

    pub(super) fn of<K: LockKind>(&self, lock: Lock<K>) -> Lock<K> {
        let lock = lock.expiry(self.expiry).acquire_timeout(self.limit);
        let lock = lock.min_hold(self.min_hold);
        match self.max_hold {
            Some(most) => lock.max_hold(most),
            None => lock,
        }
    }

    /// The time after which the call must have ended.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let is_single = self.is_try && !self.runs;
        self.limit.or(is_single.then_some(SHORT_CALL))
    }
}

/// The time after which a caller drops a future: at most this number of milliseconds, if it drops it at all.
pub(super) fn patience(plan: &Plan, most: u64) -> Duration {
    if chance(plan.knob(Drops)) {
        millis(0..=most)
    } else {
        PATIENT
    }
}

fn names(plan: &Plan, work: Work, now: i64) -> Vec<String> {
    let lock = |number: usize| format!("lock-{number}");
    match work {
        Work::Set => {
            let mut numbers: Vec<usize> = (0..3).collect();
            fastrand::shuffle(&mut numbers);
            let some = numbers.into_iter().take(fastrand::usize(2..=3));
            some.map(lock).collect()
        }
        Work::Permit => vec![SEMAPHORE.to_owned()],
        Work::Period => vec![format!("period-{}", fastrand::usize(0..plan.names))],
        Work::Once => vec![format!("once-{}", now / 700)],
        Work::Lock => vec![lock(fastrand::usize(0..plan.names))],
    }
}
