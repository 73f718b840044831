//! The commands of detached leases.
//!
//! A process that gets the lease gets a new id with it. So a late command of an earlier holder finds another id and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;

use super::{acquired, claimed, end, of_release, replies};
use crate::few::Few;
use crate::protocol::{Order, Reply, Then, When};
use crate::store::mongo::millis;
use crate::store::{
    AcquireReply, AcquireRequest, Admission, Claimed, Detachment, Extended, LeaseId, Sending, Store,
};
use crate::{FencingToken, LockError, LossReason};

impl Store {
    /// Gives the leases of these claims the id of a handle; the replies are for the claims with that id. Repeating it is
    /// harmless: a repetition finds the id of the handle and changes nothing. For a set a query follows, and the inner error is
    /// that of the query. The caller has the admission.
    ///
    /// The command comes to the first lock of a set last: a call that resumes the lease too early gets nothing, and not a
    /// part of it.
    pub(crate) async fn detach(
        &self,
        keys: &Few<LeaseId>,
        detachment: &Detachment,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        let then = Then::Rename {
            to: Arc::clone(&detachment.lock_id),
            ttl: millis(detachment.ttl),
            min_hold: millis(detachment.min_hold),
        };
        let mut tokens = detachment.tokens.iter();
        let mut rows = keys.map(|key| {
            let own = When::Own {
                id: Arc::clone(&key.lock_id),
                token: tokens.next().map(|token| token.get()),
                runs: None,
            };
            key.row(own, then.clone())
        });
        rows.reverse();
        let mut ran = self.run(Sending::DETACHMENT, &rows, Order::Each, limit).await;
        if let Ok(Ok(replies)) = &mut ran {
            replies.reverse();
        }
        let detached = keys.map(|key| key.with_id(&detachment.lock_id));
        let mut tokens = detachment.tokens.iter();
        let reply = |key: &LeaseId, reply: Result<Reply, LockError>| {
            let token = tokens.next().copied().unwrap_or(FencingToken::NONE);
            match reply {
                Ok(Reply {
                    is_applied: Some(true),
                    sight: None,
                }) => Ok(AcquireReply::of_token(token)),
                reply => acquired(key, AcquireRequest::plain(detachment.ttl), reply),
            }
        };
        replies(&detached, ran, reply)
    }

    /// Gives these claims the lease that has the id of a handle, if it still runs. Repeating it with the same keys is harmless.
    /// For a set a query follows, and the inner error is that of the query.
    ///
    /// The command stops at the first lock that has neither the id of the handle nor that of the claims. So of two calls at
    /// the same time the one that gets the first lock gets all.
    pub(crate) async fn resume(
        &self,
        keys: &Few<LeaseId>,
        handle_id: &Arc<str>,
        request: AcquireRequest,
        limit: Duration,
        _admission: Admission,
    ) -> Result<Claimed, LockError> {
        let row = |key: &LeaseId| {
            let id = Arc::clone(&key.lock_id);
            let (expiry, tokens) = (millis(request.expiry), request.tokens);
            key.row(When::runs(handle_id), Then::Adopt { id, expiry, tokens })
        };
        let ran = self
            .run(Sending::CLAIM, &keys.map(row), Order::StopAtMiss, limit)
            .await;
        claimed(keys, request, ran)
    }

    /// Has a detached lease that still runs last for this time from now on, and returns its end. It shortens no lease; that of
    /// a set ends with the first of its locks, and the command stops at the first one whose lease is lost. For a set a query
    /// follows. The caller has the admission.
    pub(crate) async fn extend(
        &self,
        keys: &Few<LeaseId>,
        ttl: Duration,
        limit: Duration,
    ) -> Result<Extended, LockError> {
        let extended = Then::Extend { ttl: millis(ttl) };
        let row = |key: &LeaseId| key.row(When::runs(&key.lock_id), extended.clone());
        let ran = self
            .run(Sending::EXTENSION, &keys.map(row), Order::StopAtMiss, limit)
            .await;
        let request = AcquireRequest {
            wants_dates: true,
            ..AcquireRequest::plain(ttl)
        };
        let ends = claimed(keys, request, ran)??;
        let ends = ends.iter().map(end_of).collect::<Result<Vec<DateTime>, _>>();
        Ok(ends.and_then(|ends| ends.into_iter().min().ok_or(LossReason::Gone)))
    }

    /// Releases a detached lease; `false` if no lock was taken by it. The caller has the admission.
    pub(crate) async fn release_detached(
        &self,
        keys: &Few<LeaseId>,
        min_hold: Duration,
        takeover_margin: Duration,
        limit: Duration,
    ) -> Result<bool, LockError> {
        let row = |key: &LeaseId| {
            let taken = When::Own {
                id: Arc::clone(&key.lock_id),
                token: None,
                runs: Some(millis(takeover_margin)),
            };
            key.row(taken, end(min_hold))
        };
        let ran = self
            .run(Sending::RELEASE, &keys.map(row), Order::Each, limit)
            .await;
        let replies = of_release(keys, ran.flatten())?;
        let is_missed = |reply: &Result<Reply, LockError>| {
            reply.as_ref().is_ok_and(|reply| reply.is_applied == Some(false))
        };
        Ok(!replies.iter().all(is_missed))
    }
}

impl AcquireReply {
    /// The reply for a claim whose document has this token, if no more is known.
    fn of_token(last_token: FencingToken) -> Self {
        Self::Acquired {
            last_token,
            remaining: None,
            dates: None,
        }
    }
}

/// The end of a lease that was extended.
fn end_of(reply: &AcquireReply) -> Extended {
    match reply {
        AcquireReply::Acquired {
            dates: Some(dates), ..
        } if dates.expires_at > dates.now => Ok(dates.expires_at),
        AcquireReply::Acquired { .. } => Err(LossReason::Expired),
        AcquireReply::Held { .. } => Err(LossReason::Gone),
    }
}
