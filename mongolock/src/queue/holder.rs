use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::Instant;

use crate::LockError;
use crate::lock_id;

/// The holder of a lock as the last reply named it; both parts are `None` if no reply did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holder {
    /// The id of the claim that has the lock; empty during a minimum hold.
    lock_id: Option<Arc<str>>,
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
    pub(crate) fn new(lock_id: Option<Arc<str>>, remaining: Option<Duration>) -> Self {
        Self {
            lock_id,
            until: remaining.map(|remaining| Instant::now() + remaining),
            period: None,
        }
    }

    /// A caller in this process, whose lease is renewed without this queue knowing.
    pub(crate) fn local(lock_id: &Arc<str>) -> Self {
        Self {
            lock_id: Some(Arc::clone(lock_id)),
            until: None,
            period: None,
        }
    }

    /// The same holder with the period that a call has learned from the reply.
    pub(crate) fn in_period(self, period: Option<Period>) -> Self {
        Self { period, ..self }
    }

    pub(crate) fn period(&self) -> Option<Period> {
        self.period
    }

    /// The time until the lock is free without a renewal; zero if it has passed.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.until
            .map(|until| until.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn timeout_error(&self, name: &str, waited: Duration) -> LockError {
        LockError::Timeout {
            name: name.to_owned(),
            waited,
            holder: self.owner(),
            remaining: self.remaining(),
        }
    }

    pub(crate) fn busy_error(&self, name: &str) -> LockError {
        LockError::Busy {
            name: name.to_owned(),
            holder: self.owner(),
            remaining: self.remaining(),
        }
    }

    fn owner(&self) -> Option<String> {
        lock_id::owner(self.lock_id.as_deref()?).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(holder: &Holder) -> (Option<String>, Option<Duration>) {
        match holder.busy_error("n") {
            LockError::Busy {
                holder, remaining, ..
            } => (holder, remaining),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_remaining_time_counts_down_to_zero() {
        let second = Duration::from_secs(1);
        let holder = Holder::new(Some(Arc::from("a#b#1")), Some(second * 2));
        assert_eq!(parts(&holder), (Some("a#b".to_owned()), Some(second * 2)));
        tokio::time::advance(second).await;
        assert_eq!(parts(&holder).1, Some(second));
        tokio::time::advance(second * 2).await;
        assert_eq!(parts(&holder).1, Some(Duration::ZERO));
    }

    #[test]
    fn a_call_passes_on_the_period_that_it_has_learned() {
        let period = Period {
            end: DateTime::from_millis(1),
            ends: Instant::now(),
        };
        assert!(Holder::default().period().is_none());
        let known = Holder::default().in_period(Some(period)).period();
        assert_eq!(known.map(|known| known.end), Some(period.end));
    }

    #[test]
    fn an_id_without_an_owner_names_no_holder() {
        for id in ["", "0b3c8f6e4b7a4c0f9a5c"] {
            assert_eq!(
                parts(&Holder::new(Some(Arc::from(id)), None)),
                (None, None),
                "{id:?}"
            );
        }
        assert_eq!(parts(&Holder::default()), (None, None));
        assert_eq!(
            parts(&Holder::local(&Arc::from("us#1"))),
            (Some("us".to_owned()), None)
        );
    }
}
