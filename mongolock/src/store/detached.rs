//! The commands on detached leases.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;

use super::Store;
use super::error::unfit;
use crate::duration::millis;
use crate::protocol::{Ms, Row, RowOrder, Then, When};
use crate::timing::COMMAND_LIMIT;
use crate::{LeaseHandle, LockError, LossReason};

/// The end of a detached lease that was extended, or why it was lost.
pub(crate) type Extended = Result<DateTime, LossReason>;

impl Store {
    /// Extends a detached lease that has not ended to this time from now on, and returns its end. It never shortens a
    /// lease. The lease of a set ends with the first of its locks, and the command stops at the first one whose lease
    /// is lost. For a set a query follows.
    pub(crate) async fn extend(&self, handle: &LeaseHandle, ttl: Duration) -> Result<Extended, LockError> {
        let then = Then::Extend { ttl: millis(ttl) };
        let rows = rows(handle, &When::runs(handle.lock_id()), &then);
        let replies = self.change(&rows, RowOrder::StopAtMiss, COMMAND_LIMIT).await?;
        let mut earliest = Ms::MAX;
        for (row, reply) in rows.iter().zip(replies) {
            let Some(sight) = reply.sight.filter(|sight| sight.has(handle.lock_id())) else {
                return Ok(Err(LossReason::Gone));
            };
            let expires_at = &sight.document.expires_at;
            let wrong = || unfit(&row.name, "expiresAt", expires_at, "a date");
            let end = expires_at.date().ok_or_else(wrong)?;
            if sight.now.is_some_and(|now| now >= end) {
                return Ok(Err(LossReason::Expired));
            }
            earliest = earliest.min(end);
        }
        Ok(Ok(DateTime::from_millis(earliest)))
    }

    /// Releases a detached lease; `false` if no lock was taken by it.
    pub(crate) async fn release_detached(
        &self,
        handle: &LeaseHandle,
        takeover_margin: Duration,
    ) -> Result<bool, LockError> {
        let taken = When::Own {
            id: Arc::clone(handle.lock_id()),
            token: None,
            runs: Some(millis(takeover_margin)),
        };
        let end = Then::End {
            min_hold: millis(handle.lease().min_hold),
            unused: 0,
        };
        let rows = rows(handle, &taken, &end);
        let replies = self.change(&rows, RowOrder::Each, COMMAND_LIMIT).await?;
        Ok(!replies.iter().all(|reply| reply.is_applied == Some(false)))
    }
}

/// The same change of each lock of a lease.
fn rows(handle: &LeaseHandle, when: &When, then: &Then) -> Vec<Row> {
    let row = |name: &Arc<str>| Row {
        name: Arc::clone(name),
        when: when.clone(),
        then: then.clone(),
    };
    handle.lease().ids.iter().map(row).collect()
}
