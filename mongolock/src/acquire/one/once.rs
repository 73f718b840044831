//! Work that may succeed only once: the period that a call belongs to, and the mark of work that is done.

use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::Instant;

use super::Acquire;
use crate::acquire::asking::Held;
use crate::lease::{Entry, Hold};
use crate::once::Once;
use crate::queue::Holder;
use crate::{LockError, lock_id, trace};

impl Acquire<'_> {
    /// Waits until the time of a call is up that ends with its period as well.
    pub(super) async fn time_or_period_is_up(&self, entry: &Entry, once: Once) {
        let known = |period| {
            self.period.adopt(once, period, self.call.begun);
            self.period.known()
        };
        let period_end = async {
            let period = entry.front().until_period(known).await;
            // By this process's clock, a period does not end before its end at the server.
            tokio::time::sleep_until(period.ends).await;
        };
        tokio::select! {
            biased;
            () = self.call.time_is_up(entry) => {}
            () = period_end => {}
        }
    }

    /// The hold, unless it may have been granted after the period of the call: it is then released. The work would use up a later
    /// period, or run once more in this one, whose mark has ended: a request that is delayed in the server acquires the lock at the
    /// time of its arrival.
    pub(super) fn in_period(&self, hold: Hold) -> Result<Hold, LockError> {
        if let (Some(once), Some(grant)) = (self.call.options.once, hold.lease().once) {
            // The request of the first answer may be older than the grant, which a later copy of it got.
            self.answered(once, grant.requested_at.min(grant.acquired_at));
            let arrived = grant.requested_at.max(grant.acquired_at);
            if self.period.is_over_at(arrived, hold.lease().acquired.elapsed()) {
                return Err(self.call.timeout_error(self.name(), &Holder::default()));
            }
        }
        Ok(hold)
    }

    /// The holder that a reply has named; an error if it is the mark of work that is done, or if the call's period is
    /// over. A lock whose work may succeed any number of times is held by a mark as by any holder.
    pub(super) fn unless_done(&self, held: Held) -> Result<Held, LockError> {
        let lock_id = held.holder.lock_id();
        let (Some(once), Some(dates)) = (self.call.options.once, held.dates) else {
            return Ok(held);
        };
        self.answered(once, dates.now);
        if self.period.is_over_at(dates.now, Duration::ZERO) {
            return Err(self.call.timeout_error(self.name(), &held.holder));
        }
        match lock_id.filter(|id| lock_id::is_mark(id)) {
            Some(mark) => Err(LockError::Done {
                name: self.name().to_string(),
                by: lock_id::owner(mark).unwrap_or_default().to_owned(),
                until: dates.expires_at,
            }),
            None => Ok(Held {
                holder: held.holder.in_period(self.period.known()),
                ..held
            }),
        }
    }

    /// Notes an answer with this time of the server; the first one decides which period the call belongs to.
    fn answered(&self, once: Once, now: DateTime) {
        if self.period.known().is_some() {
            return;
        }
        let waited = self.waited.get().copied().unwrap_or_default();
        self.period.answered(Instant::now(), once, now, waited);
        if let Once::PerPeriod(period) = once
            && once.is_close_to_boundary(now)
            && self.call.engine.is_first_warning(self.name())
        {
            trace::close_to_boundary(self.name(), period);
        }
    }
}
