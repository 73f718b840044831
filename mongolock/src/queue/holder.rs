use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::Instant;

use crate::lock_id;
use crate::store::{ProviderMark, RunningLease};
use crate::{Busy, LockError};

/// The holder of a lock as the last reply named it; both parts are `None` if no reply did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holder {
    /// The id of the claim that has the lock; empty during a minimum hold.
    lock_id: Option<Arc<str>>,
    /// The time at which the hold began, on this process's clock: by the server's clock it was not later before the reply.
    since: Option<Instant>,
    /// The time at which the lock is free without a renewal, on this process's clock. It is counted from the reply, so that it comes no earlier than at
    /// the server.
    until: Option<Instant>,
    /// The period of the work under the lock, for calls whose work may succeed once in each period.
    period: Option<Period>,
}

/// One of the periods in which work may succeed once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Period {
    /// Its end at the server.
    pub(crate) end: DateTime,
    /// Its end on this process's clock, which comes no earlier.
    pub(crate) ends: Instant,
}

impl Holder {
    /// The holder that a reply has just named.
    pub(crate) fn new(
        now: Instant,
        lock_id: Option<Arc<str>>,
        held_for: Option<Duration>,
        remaining: Option<Duration>,
    ) -> Self {
        Self {
            lock_id,
            since: held_for.and_then(|held_for| now.checked_sub(held_for)),
            until: remaining.map(|remaining| now + remaining),
            period: None,
        }
    }

    /// The holder that a look has just found.
    pub(crate) fn of_lease(now: Instant, lease: &RunningLease) -> Self {
        Self::new(now, lease.holder.clone(), lease.held_for, Some(lease.remaining))
    }

    /// A caller in this process since this time, whose lease is renewed without this queue knowing.
    pub(crate) fn local(lock_id: &Arc<str>, since: Instant) -> Self {
        Self {
            lock_id: Some(Arc::clone(lock_id)),
            since: Some(since),
            until: None,
            period: None,
        }
    }

    /// The same holder with the period that a call has learned from the reply.
    pub(crate) fn in_period(self, period: Option<Period>) -> Self {
        Self { period, ..self }
    }

    /// The id of the claim that has the lock, if a reply has named it.
    pub(crate) fn lock_id(&self) -> Option<&Arc<str>> {
        self.lock_id.as_ref()
    }

    pub(crate) fn period(&self) -> Option<Period> {
        self.period
    }

    /// The time until the lock is free without a renewal; zero if it has passed.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(now))
    }

    pub(crate) fn timeout_error(
        &self,
        now: Instant,
        name: &str,
        waited: Duration,
        own: &ProviderMark,
    ) -> LockError {
        LockError::timeout(self.busy(now, name, own), waited)
    }

    pub(crate) fn busy_error(&self, now: Instant, name: &str, own: &ProviderMark) -> LockError {
        LockError::busy(self.busy(now, name, own))
    }

    /// What a caller of the provider with this mark learns of the lock.
    fn busy(&self, now: Instant, name: &str, own: &ProviderMark) -> Busy {
        let mut busy = Busy::new(name);
        // A lock that is taken by a minimum hold has no holder.
        if let Some(id) = self.lock_id.as_deref().filter(|id| !id.is_empty()) {
            busy.holder = lock_id::owner(id).map(str::to_owned);
            busy.in_this_process = own.is_in(id);
            busy.held_for = self.since.map(|since| now - since);
        }
        busy.remaining = self.remaining(now);
        busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Kind;

    fn busy(now: Instant, holder: &Holder) -> Busy {
        holder.busy(now, "n", &ProviderMark::random())
    }

    #[test]
    fn the_remaining_time_counts_down_to_zero_and_the_hold_goes_on() {
        let mut now = Instant::now();
        let second = Duration::from_secs(1);
        now += second * 9;
        let holder = Holder::new(now, Some(Arc::from("a#b#1")), Some(second * 7), Some(second * 2));
        assert_eq!(busy(now, &holder).holder.as_deref(), Some("a#b"));
        for (elapsed, remaining) in [(0, 2), (1, 1), (2, 0), (3, 0)] {
            let seen = busy(now, &holder);
            assert_eq!(seen.remaining, Some(second * remaining));
            assert_eq!(seen.held_for, Some(second * (7 + elapsed)));
            now += second;
        }
    }

    /// An id of the provider itself has its mark, whatever the owners are called.
    #[test]
    fn a_hold_of_the_provider_itself_is_one_of_this_process() {
        let now = Instant::now();
        let (own, other) = (ProviderMark::random(), ProviderMark::random());
        let holder = Holder::local(&own.new_lock_id("us", Kind::Single), now);
        assert!(holder.busy(now, "n", &own).in_this_process);
        assert!(!holder.busy(now, "n", &other).in_this_process);
        assert!(!busy(now, &Holder::default()).in_this_process);
    }

    #[test]
    fn a_call_passes_on_the_period_that_it_has_learned() {
        let now = Instant::now();
        let period = Period {
            end: DateTime::from_millis(1),
            ends: now,
        };
        assert!(Holder::default().period().is_none());
        let known = Holder::default().in_period(Some(period)).period();
        assert_eq!(known.map(|known| known.end), Some(period.end));
    }

    #[test]
    fn an_id_without_an_owner_names_no_holder() {
        let now = Instant::now();
        let zero = Some(Duration::ZERO);
        let of_id = |id: &str| busy(now, &Holder::new(now, Some(Arc::from(id)), zero, None));
        // During a minimum hold the lock has no holder, and another program has no owner.
        assert_eq!((of_id("").holder, of_id("").held_for), (None, None));
        let other_program = of_id("0b3c8f6e4b7a4c0f9a5c");
        assert_eq!((other_program.holder, other_program.held_for), (None, zero));
        assert_eq!(busy(now, &Holder::default()), Busy::new("n"));
        let local = busy(now, &Holder::local(&Arc::from("us#1"), now));
        assert_eq!((local.holder.as_deref(), local.remaining), (Some("us"), None));
    }
}
