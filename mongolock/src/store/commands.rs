//! The commands of claims and leases, each as rows.

mod detached;
#[cfg(all(test, server_tests))]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;

use super::error::{any_of_claims, of_change, unfit};
use super::gather::{Gathered, was_released};
use super::look::{duration, held_permits};
use super::mongo::millis;
use super::{
    AcquireReply, AcquireRequest, Admission, AdmissionClass, ClaimEnd, Claimed, Dates, HeldPermits, LeaseId,
    Looked, MarkReply, MarkRequest, Ran, RenewReply, Sending, Store, driver_error,
};
use crate::few::Few;
use crate::protocol::{Order, Reply, Row, Then, Until, Value, When};
use crate::timing::RELEASE_LIMIT;
use crate::{FencingToken, LockError, lock_id};

impl Store {
    /// Takes those of these locks that are free. Several keys have one id in common and different names: one command claims
    /// their locks, and a query finds out which of them the claims have. Repeating it with the same keys is harmless. An
    /// error of the query alone is the inner one. A claim that was admitted together with others goes in one command with
    /// them.
    pub(crate) async fn claim(
        &self,
        keys: &Few<LeaseId>,
        request: AcquireRequest,
        limit: Duration,
        admission: Admission,
    ) -> Result<Claimed, LockError> {
        let _admission = match admission.into_member() {
            Ok(member) => {
                let row = claim(&keys[0], request);
                // It is on the heap, so that the task of a claim alone has no room for it.
                let answer = Box::pin(self.together(Gathered::CLAIMS, member, row, limit)).await;
                let reply = acquired(&keys[0], request, answer.map(|(reply, _)| reply))?;
                return Ok(Ok(Few::one(reply)));
            }
            Err(admission) => admission,
        };
        self.claim_alone(keys, request, limit).await
    }

    /// [`Self::claim`] with a command of its own.
    pub(super) async fn claim_alone(
        &self,
        keys: &Few<LeaseId>,
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        let rows = keys.map(|key| claim(key, request));
        let ran = self.run(Sending::CLAIM, &rows, Order::Each, limit).await;
        claimed(keys, request, ran)
    }

    /// Renews these claims, each for its expiry. If not all of them have their locks, a second command finds out which do.
    pub(crate) async fn renew(
        &self,
        claims: &[(LeaseId, Duration)],
        limit: Duration,
    ) -> Result<RenewReply, LockError> {
        let row = |(key, expiry): &(LeaseId, Duration)| {
            let expiry = millis(*expiry);
            own(key, Then::Renew { expiry })
        };
        let rows = Few::collected(claims.iter().map(row));
        let ran = self.run(Sending::RENEWAL, &rows, Order::Each, limit).await;
        let replies = ran.flatten()?;
        let is_held = |(key, reply): (&LeaseId, &Result<Reply, LockError>)| {
            let reply = reply.as_ref().ok();
            reply.is_some_and(|reply| reply.is_applied == Some(true) || reply.has(&key.lock_id))
        };
        let keys = claims.iter().map(|(key, _)| key).zip(replies.iter());
        let held: HashSet<LeaseId> = keys
            .filter(|pair| is_held(*pair))
            .map(|(key, _)| key.clone())
            .collect();
        Ok(if held.len() == claims.len() {
            RenewReply::All
        } else {
            RenewReply::Only(held)
        })
    }

    /// Releases the claims of one hold; `false` if one of them does not have its lock. The server ends the command at the
    /// limit, also while another transaction blocks a document. With the token of its document, a release can go in one
    /// command with others.
    pub(crate) async fn release(
        &self,
        keys: &[LeaseId],
        min_hold: Duration,
        limit: Duration,
        token: Option<FencingToken>,
    ) -> Result<bool, LockError> {
        let lane = token.and_then(|_| self.lane());
        let admission = self.admissions().admit(AdmissionClass::Release, lane).await;
        let _admission = match (admission.into_member(), token) {
            (Ok(member), Some(token)) => {
                let row = own(&keys[0], end(min_hold));
                let answer = Box::pin(self.together(Gathered::RELEASES, member, row, limit)).await;
                return was_released(&keys[0].lock_id, token, of_release(keys, answer)?);
            }
            (admission, _) => admission,
        };
        self.release_alone(keys, min_hold, limit).await
    }

    /// [`Self::release`] with a command of its own.
    pub(super) async fn release_alone(
        &self,
        keys: &[LeaseId],
        min_hold: Duration,
        limit: Duration,
    ) -> Result<bool, LockError> {
        let rows = Few::collected(keys.iter().map(|key| own(key, end(min_hold))));
        let ran = self.run(Sending::RELEASE, &rows, Order::Each, limit).await;
        let replies = of_release(keys, ran.flatten())?;
        Ok(replies.iter().all(is_applied))
    }

    /// Replaces a claim by the mark that its work is done, or releases it if the period is over. It ends the hold, as a release
    /// does. Repeating it is harmless. The caller has the admission.
    pub(crate) async fn mark(&self, request: &MarkRequest, limit: Duration) -> Result<MarkReply, LockError> {
        let rows = Few::one(own(&request.key, Then::Mark { until: request.end }));
        let ran = self.run(Sending::MARK, &rows, Order::Each, limit).await;
        Ok(request.reply(&one(ran)?))
    }

    /// Ends those of these claims that have their locks, in the background. The caller has the admission.
    pub(crate) async fn end_many(
        &self,
        keys: &[LeaseId],
        end: &ClaimEnd,
        limit: Duration,
    ) -> Result<(), LockError> {
        // Those of detached leases come last: a request that detaches a set while both ids are released finds the first one
        // gone, or its own one is released after it.
        let mut keys: Vec<&LeaseId> = keys.iter().collect();
        keys.sort_by_key(|key| (lock_id::is_set(&key.lock_id), lock_id::is_detached(&key.lock_id)));
        let rows = Few::collected(keys.iter().map(|key| own(key, then_of(end))));
        let ran = self.run(Sending::IN_BACKGROUND, &rows, Order::Each, limit).await;
        match (ran, &keys[..]) {
            (Ok(_), _) => Ok(()),
            (Err(error), [key]) => Err(driver_error::of_release(&key.name, error)),
            // The claims are then released one by one.
            (Err(error), _) => Err(error),
        }
    }

    /// Ends these claims, which this process has given up, so that a caller does not meet them.
    pub(crate) async fn end_given_up(&self, keys: &[LeaseId], end: &ClaimEnd) -> Result<(), LockError> {
        let admissions = self.admissions();
        let _admission = admissions.admit(AdmissionClass::Release, None).await;
        self.end_many(keys, end, RELEASE_LIMIT).await
    }

    /// Looks at all permits of a semaphore, also at those beyond this number. The reply is only a hint, as that to a look. The
    /// caller has the admission.
    pub(crate) async fn held_permits(
        &self,
        semaphore: &str,
        permits: u32,
        takeover_margin: Duration,
        limit: Duration,
    ) -> Result<HeldPermits, LockError> {
        let looked = Looked::Permits { semaphore, permits };
        Ok(held_permits(
            self.look(looked, takeover_margin, limit).await?,
            semaphore,
        ))
    }
}

impl MarkRequest {
    /// What became of the claim, by the document after the command.
    ///
    /// After the period the claim is released instead, and a repetition finds no claim. That was the release of an earlier
    /// request only if nobody has acquired the lock since (then the token is still that of the claim) and the lease has
    /// ended after the period: others may have ended it before.
    pub(super) fn reply(&self, reply: &Reply) -> MarkReply {
        let Some(sight) = &reply.sight else {
            return MarkReply::Gone;
        };
        if sight.has(&lock_id::mark_of(&self.key.lock_id)) {
            return MarkReply::Marked;
        }
        let was_released = match self.end {
            Until::At(end) => sight.has("") && sight.document.expires_at.date() >= Some(end),
            Until::After(_) => false,
        };
        if was_released && sight.document.token == Value::Long(self.token.get()) {
            MarkReply::Released
        } else {
            MarkReply::Gone
        }
    }
}

/// A claim of a lock that is free.
fn claim(key: &LeaseId, request: AcquireRequest) -> Row {
    let free = When::Free {
        margin: millis(request.takeover_margin),
    };
    let claim = Then::Claim {
        id: Arc::clone(&key.lock_id),
        expiry: millis(request.expiry),
        tokens: request.tokens,
    };
    key.row(free, claim)
}

/// A change of the document that has the id of this claim.
fn own(key: &LeaseId, then: Then) -> Row {
    key.row(When::is(&key.lock_id), then)
}

fn end(min_hold: Duration) -> Then {
    Then::End {
        min_hold: millis(min_hold),
        unused: 0,
    }
}

fn then_of(end_of_claim: &ClaimEnd) -> Then {
    match end_of_claim {
        ClaimEnd::Released { min_hold } => end(*min_hold),
        ClaimEnd::GivenBack {
            lock_id,
            ttl,
            min_hold,
        } => Then::Rename {
            to: Arc::clone(lock_id),
            ttl: millis(*ttl),
            min_hold: millis(*min_hold),
        },
    }
}

pub(super) fn is_applied(reply: &Result<Reply, LockError>) -> bool {
    reply.as_ref().is_ok_and(|reply| reply.is_applied == Some(true))
}

/// The reply to a command of one row.
fn one(ran: Ran) -> Result<Reply, LockError> {
    match ran.flatten()? {
        Few::One([reply]) => reply,
        Few::Several(_) => unreachable!("a row has one reply"),
    }
}

fn of_release<T>(keys: &[LeaseId], ran: Result<T, LockError>) -> Result<T, LockError> {
    ran.map_err(|error| driver_error::of_release(&any_of_claims(keys), error))
}

/// What the documents say to claims of these keys.
fn claimed(keys: &Few<LeaseId>, request: AcquireRequest, ran: Ran) -> Result<Claimed, LockError> {
    replies(keys, ran, |key, reply| acquired(key, request, reply))
}

/// The replies for the claims of one call. The error of a statement that has written nothing says nothing of the others.
fn replies(
    keys: &Few<LeaseId>,
    ran: Ran,
    mut of: impl FnMut(&LeaseId, Result<Reply, LockError>) -> Result<AcquireReply, LockError>,
) -> Result<Claimed, LockError> {
    let queried = match ran.map_err(|error| of_change(&any_of_claims(keys), error))? {
        Ok(queried) => queried,
        Err(error) => return Ok(Err(error)),
    };
    let are_all = queried.iter().all(Result::is_err);
    let mut replies = queried.into_values();
    let read = keys.map(|key| match replies.next() {
        Some(reply) => of(key, reply),
        None => unreachable!("a row has a reply"),
    });
    match read.all() {
        Ok(read) => Ok(Ok(read)),
        Err(error) if are_all || !driver_error::wrote_nothing(&error) => Err(error),
        Err(error) => Ok(Err(error)),
    }
}

/// What the document of a lock says to this claim.
pub(super) fn acquired(
    key: &LeaseId,
    request: AcquireRequest,
    reply: Result<Reply, LockError>,
) -> Result<AcquireReply, LockError> {
    let reply = reply.map_err(|error| of_change(&key.name, error))?;
    let Some(sight) = reply.sight else {
        // Another client has deleted or inserted the document in the meantime.
        return Ok(AcquireReply::HELD);
    };
    let document = &sight.document;
    let unfit = |field, found, wanted| unfit(&key.name, field, found, wanted);
    let dates = match (sight.now, document.acquired_at.date()) {
        (Some(now), Some(acquired_at)) => Some(Dates {
            now: DateTime::from_millis(now),
            acquired_at: DateTime::from_millis(acquired_at),
            expires_at: DateTime::from_millis(document.expires_at.date().unwrap_or(now)),
        }),
        (_, None) if request.wants_dates => {
            return Err(unfit("acquiredAt", &document.acquired_at, "a date"));
        }
        _ => None,
    };
    if sight.has(&key.lock_id) {
        let Some(last_token) = document.token.long() else {
            return Err(unfit("fencingToken", &document.token, "a 64-bit integer"));
        };
        return Ok(AcquireReply::Acquired {
            last_token: FencingToken::new(last_token),
            // The rest of a lease that has ended is negative.
            remaining: sight.left().map(duration),
            dates,
        });
    }
    if document.expires_at.date().is_none() && !sight.has("") {
        return Err(unfit("expiresAt", &document.expires_at, "a date"));
    }
    let holder = sight.lock_id();
    Ok(AcquireReply::Held {
        holder: holder.map(|id| Arc::from(lock_id::taken_by(id))),
        held_for: sight.held_for().map(duration),
        remaining: sight.until_free(millis(request.takeover_margin)).map(duration),
        dates,
    })
}
