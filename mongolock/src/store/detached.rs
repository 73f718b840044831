//! The commands of detached leases: detaching, resuming, extending, and releasing by the handle.
//!
//! A process that gets the lease gets a new id with it. So a late command of an earlier holder finds another id and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use tokio::time::Instant;

use super::claims::{
    acquire_reply, change_command, claim, claims, corrupt, error_of_change, granted, merged, min_hold_end,
    wrong_type,
};
use super::mongo::{MongoStore, millis};
use super::several::any_of;
use super::takeover::taken;
use super::{AcquireReply, AcquireRequest, ClaimItem, Claimed, Detachment, Extended, LeaseId, driver_error};
use crate::few::Few;
use crate::options::WEEK;
use crate::timing::{ACQUIRE_LIMIT_MIN, LATE_COMMAND};
use crate::{FencingToken, LockError, LossReason};

impl MongoStore {
    /// Gives the leases of these claims the id of a handle; the replies are for the claims with that id. Repeating it is
    /// harmless: a repetition finds the id of the handle and changes nothing.
    ///
    /// For a set the command is ordered, and comes to the first lock last: a call that resumes the lease too early gets nothing,
    /// and not a part of it. If the command does not find all claims, a query shows which locks have the id of the handle.
    pub(super) async fn detach(
        &self,
        keys: &Few<LeaseId>,
        detachment: &Detachment,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        let detached = keys.map(|key| key.with_id(&detachment.lock_id));
        let request = AcquireRequest::plain(detachment.ttl);
        let Detachment {
            lock_id,
            ttl,
            min_hold,
            tokens,
        } = detachment;
        let fields = detached_fields(lock_id, *ttl, *min_hold);
        if let (Few::One([key]), Few::One([detached])) = (keys, &detached) {
            let is_own = doc! { "$and": [is_id(&key.lock_id), { "$eq": ["$fencingToken", tokens[0]] }] };
            let stage = doc! { "$replaceWith": { "$cond": [is_own, merged(fields), "$$ROOT"] } };
            return self.change_one(detached, stage, request, limit).await;
        }
        let statement = |(key, token): (&LeaseId, &FencingToken)| {
            let mut own = claim(key);
            own.insert("fencingToken", *token);
            doc! { "q": own, "u": [{ "$set": &fields }], "multi": false }
        };
        let statements = keys.iter().zip(&**tokens).rev().map(statement);
        let by = Instant::now() + limit;
        if self.change_several(keys, statements.collect(), limit).await? == keys.len() as u64 {
            let mut tokens = tokens.iter();
            return Ok(Ok(keys.map(|_| AcquireReply::Acquired {
                last_token: tokens.next().copied().unwrap_or(FencingToken::NONE),
                remaining: None,
                dates: None,
            })));
        }
        self.read_several(&detached, request, by).await
    }

    /// Gives these claims the lease that has the id of a handle, if it still runs.
    ///
    /// For a set the command is ordered, and stops at the first lock that has neither the id of the handle nor that of the
    /// claims. So of two calls at the same time the one that gets the first lock gets all.
    pub(super) async fn resume(
        &self,
        keys: &Few<LeaseId>,
        handle_id: &Arc<str>,
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        match keys {
            Few::One([key]) => {
                let stage = resume_stage(key, handle_id, request, "$$ROOT".into());
                self.change_one(key, stage, request, limit).await
            }
            Few::Several(_) => {
                let own = doc! { "case": is_id(&keys[0].lock_id), "then": "$$ROOT" };
                let stage = |key: &LeaseId| resume_stage(key, handle_id, request, or_stop(vec![own.clone()]));
                self.change_all(keys, stage, request, limit).await
            }
        }
    }

    /// Changes the documents of several locks in their order, and finds out by a query which of them the claims have. The query
    /// alone decides, as for a claim.
    async fn change_all(
        &self,
        keys: &Few<LeaseId>,
        stage: impl Fn(&LeaseId) -> Document,
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        let statement =
            |key: &LeaseId| doc! { "q": { "_id": &*key.name }, "u": [stage(key)], "multi": false };
        let by = Instant::now() + limit;
        self.change_several(keys, keys.iter().map(statement).collect(), limit)
            .await?;
        self.read_several(keys, request, by).await
    }

    async fn change_one(
        &self,
        key: &LeaseId,
        stage: Document,
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        let command = change_command(self.locks.name(), key, stage, request.wants_dates);
        let changed = self.write(&self.locks, command, limit).await;
        let changed = changed.map_err(|error| error_of_change(&key.name, error))?;
        let reply = match changed.get_document("value") {
            Ok(document) => acquire_reply(key, document, request)?,
            Err(_) => AcquireReply::HELD,
        };
        Ok(Ok(Few::one(reply)))
    }

    /// Changes the documents of several locks with one ordered command, and returns the number of documents that its statements
    /// have found.
    async fn change_several(
        &self,
        keys: &[LeaseId],
        statements: Vec<Document>,
        limit: Duration,
    ) -> Result<u64, LockError> {
        match self.update(&self.locks, statements, limit).await {
            Err(LockError::Mongo(error)) if driver_error::is_without_branch(&error) => Ok(0),
            Err(LockError::Mongo(error)) if driver_error::is_blocked_update(&error) => {
                Err(driver_error::blocked(&any_of(keys.iter()), error))
            }
            Err(LockError::Mongo(error)) if driver_error::is_wrong_type(&error) => {
                Err(corrupt(&any_of(keys.iter()), wrong_type(&error)))
            }
            changed => changed,
        }
    }

    /// What the documents of several locks say to these claims, read until this time.
    async fn read_several(
        &self,
        keys: &Few<LeaseId>,
        request: AcquireRequest,
        by: Instant,
    ) -> Result<Claimed, LockError> {
        let limit = by
            .saturating_duration_since(Instant::now())
            .max(ACQUIRE_LIMIT_MIN);
        let item = |key: &LeaseId| ClaimItem {
            key: key.clone(),
            request,
        };
        let items: Vec<ClaimItem> = keys.iter().map(item).collect();
        let replies = self.read_claims(&items, limit, by).await;
        Ok(replies.and_then(|replies| replies.into_iter().collect::<Result<Vec<_>, _>>().map(Few::from)))
    }

    /// Has a detached lease that still runs last for this time from now on, and returns its end. It shortens no lease; that of
    /// a set ends with the first of its locks, and the command stops at the first one whose lease is lost.
    pub(super) async fn extend(
        &self,
        keys: &Few<LeaseId>,
        ttl: Duration,
        limit: Duration,
    ) -> Result<Extended, LockError> {
        let request = AcquireRequest {
            wants_dates: true,
            ..AcquireRequest::plain(ttl)
        };
        let replies = match keys {
            Few::One([key]) => {
                let stage = extend_stage(key, ttl, "$expiresAt".into());
                self.change_one(key, stage, request, limit).await?
            }
            Few::Several(_) => {
                let stage = |key: &LeaseId| extend_stage(key, ttl, or_stop(Vec::new()));
                self.change_all(keys, stage, request, limit).await?
            }
        };
        Ok(extended(&replies?))
    }

    /// Releases a detached lease; `false` if none of its locks was taken by it.
    pub(super) async fn release_detached(
        &self,
        keys: &Few<LeaseId>,
        min_hold: Duration,
        takeover_margin: Duration,
        limit: Duration,
    ) -> Result<bool, LockError> {
        let mut queries = claims(keys.iter());
        for query in &mut queries {
            query.insert("$expr", taken(takeover_margin));
        }
        let released = self.end(&self.locks, queries, min_hold, limit).await;
        let released = released.map_err(|error| driver_error::of_release(&any_of(keys.iter()), error))?;
        Ok(released > 0)
    }
}

/// What the replies for the locks of a lease say of its end.
pub(crate) fn extended(replies: &[AcquireReply]) -> Extended {
    let end = |reply: &AcquireReply| match reply {
        AcquireReply::Acquired {
            dates: Some(dates), ..
        } if dates.expires_at > dates.now => Ok(dates.expires_at),
        AcquireReply::Acquired { .. } => Err(LossReason::Expired),
        AcquireReply::Held { .. } => Err(LossReason::Gone),
    };
    let ends = replies.iter().map(end).collect::<Result<Vec<DateTime>, _>>()?;
    ends.into_iter().min().ok_or(LossReason::Gone)
}

/// An expression with these cases. For any other document the server returns an error, which stops an ordered command.
fn or_stop(cases: Vec<Document>) -> Bson {
    let never = doc! { "case": { "$literal": false }, "then": Bson::Null };
    let branches = [cases, vec![never]].concat();
    doc! { "$switch": { "branches": branches } }.into()
}

/// Whether the document has this id, as an expression of the server.
fn is_id(lock_id: &str) -> Document {
    doc! { "$eq": ["$lockId", { "$literal": lock_id }] }
}

/// Whether the document has this id and its lease runs.
fn runs(lock_id: &str) -> Document {
    doc! { "$and": [is_id(lock_id), { "$gt": ["$expiresAt", "$$NOW"] }] }
}

fn from_now(time: Duration) -> Document {
    doc! { "$add": ["$$NOW", millis(time)] }
}

/// The fields of a lease that gets the id of a handle. It may end earlier than the present one.
pub(super) fn detached_fields(handle_id: &str, ttl: Duration, min_hold: Duration) -> Document {
    let mut end = from_now(ttl);
    if !min_hold.is_zero() {
        end = doc! { "$max": [end, min_hold_end(min_hold)] };
    }
    doc! { "lockId": { "$literal": handle_id }, "expiresAt": end }
}

/// The update that gives a claim the running lease with the id of a handle. Another document becomes what `otherwise` says. The
/// lease keeps its beginning, so that a minimum hold and a period go on.
fn resume_stage(key: &LeaseId, handle_id: &str, request: AcquireRequest, otherwise: Bson) -> Document {
    let resumed = merged(granted(&key.lock_id, "$acquiredAt", request));
    doc! { "$replaceWith": { "$cond": [runs(handle_id), resumed, otherwise] } }
}

/// The update that extends a running lease; the end of another one becomes what `otherwise` says. An end that no command can
/// have set comes from a clock that was ahead.
fn extend_stage(key: &LeaseId, ttl: Duration, otherwise: Bson) -> Document {
    let present = doc! { "$min": ["$expiresAt", from_now(WEEK + LATE_COMMAND)] };
    let end = doc! { "$max": [from_now(ttl), present] };
    doc! { "$set": { "expiresAt": { "$cond": [runs(&key.lock_id), end, otherwise] } } }
}
