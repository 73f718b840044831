//! The commands of one claim on MongoDB: acquire, renew, release.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{Bson, Document, doc};

use super::detached::detached_fields;
use super::look::{held_for, held_ms};
use super::mongo::{MongoStore, millis};
use super::several::any_of;
use super::takeover::{free, until_free};
use super::{AcquireReply, AcquireRequest, ClaimEnd, Claimed, Dates, LeaseId, RenewReply, driver_error};
use crate::few::Few;
use crate::lock_id::KEPT_PREFIX;
use crate::task::driver_call;
use crate::timing::LATE_COMMAND;
use crate::{FencingToken, LockError, lock_id, permit_id};

impl MongoStore {
    /// Takes those of these locks that are free: a single one with one command, several with a command and a query.
    pub(super) async fn claim(
        &self,
        keys: &Few<LeaseId>,
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        match keys {
            Few::One([key]) => {
                let reply = self.claim_one(key, request, limit).await?;
                Ok(Ok(Few::one(reply)))
            }
            // It is on the heap, so that the task of a single lock has no room for it.
            Few::Several(keys) => Box::pin(self.claim_several(keys, request, limit)).await,
        }
    }

    pub(super) async fn claim_one(
        &self,
        key: &LeaseId,
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<AcquireReply, LockError> {
        let command = claim_command(self.locks.name(), key, request);
        let reply = self.write(&self.locks, command, limit).await;
        let claimed = claimed(key, request, reply);
        self.note_outcome(&claimed);
        claimed
    }

    pub(super) async fn renew(
        &self,
        renewed: &[(LeaseId, Duration)],
        limit: Duration,
    ) -> Result<RenewReply, LockError> {
        let mut keys: BTreeMap<Duration, Vec<&LeaseId>> = BTreeMap::new();
        for (key, expiry) in renewed {
            keys.entry(*expiry).or_default().push(key);
        }
        let mut updates = Vec::new();
        for (expiry, keys) in keys {
            updates.extend(updates_of(claims(keys), &renewal_stage(expiry)));
        }
        let matched = self.update(&self.locks, updates, limit).await;
        self.note_outcome(&matched);
        let matched = matched?;
        // The matched documents count, not the modified ones: a second renewal within one millisecond changes nothing.
        if matched == renewed.len() as u64 {
            return Ok(RenewReply::All);
        }
        let mut held = HashSet::new();
        let finding = self
            .locks
            .find(doc! { "$or": claims(renewed.iter().map(|(key, _)| key)) })
            .projection(doc! { "_id": 1, "lockId": 1 })
            .max_time(limit);
        let mut found = driver_call(finding.into_future()).await?;
        while found.advance().await? {
            let document = found.current();
            // Name and id count together: an id alone may be that of a set of which another name is lost.
            if let (Ok(name), Ok(id)) = (document.get_str("_id"), document.get_str("lockId")) {
                held.insert(LeaseId {
                    name: Arc::from(name),
                    lock_id: Arc::from(id),
                });
            }
        }
        Ok(RenewReply::Only(held))
    }

    pub(super) async fn release(
        &self,
        keys: &[LeaseId],
        min_hold: Duration,
        limit: Duration,
    ) -> Result<bool, LockError> {
        let released = self.end(&self.locks, claims(keys), min_hold, limit).await;
        self.note_release(&released);
        let released = released.map_err(|error| driver_error::of_release(&any_of(keys.iter()), error))?;
        Ok(released == keys.len() as u64)
    }

    pub(super) async fn end_many(
        &self,
        keys: &[LeaseId],
        end: &ClaimEnd,
        limit: Duration,
    ) -> Result<(), LockError> {
        let stage = match end {
            ClaimEnd::Released { min_hold } => release_stage(*min_hold),
            ClaimEnd::GivenBack {
                lock_id,
                ttl,
                min_hold,
            } => doc! { "$set": detached_fields(lock_id, *ttl, *min_hold) },
        };
        let updates = updates_of(claims(keys), &stage);
        let ended = self.update(&self.locks, updates, limit).await;
        self.note_release(&ended);
        match (ended, keys) {
            (Ok(_), _) => Ok(()),
            (Err(error), [key]) => Err(driver_error::of_release(&key.name, error)),
            // The claims are then released one by one.
            (Err(error), _) => Err(error),
        }
    }

    /// Releases the locks of all documents that match one of the queries, and returns their number.
    pub(super) fn end(
        &self,
        collection: &Collection<Document>,
        queries: Vec<Document>,
        min_hold: Duration,
        limit: Duration,
    ) -> impl Future<Output = Result<u64, LockError>> {
        let updates = updates_of(queries, &release_stage(min_hold));
        self.update(collection, updates, limit)
    }

    /// Updates all documents of these statements with one command, which the server runs one after the other, and returns
    /// their number.
    ///
    /// The driver's own `update_many` takes no `maxTimeMS`: it would stay in the server for as long as a foreign
    /// transaction blocks a document, and keep its connection.
    pub(super) async fn update(
        &self,
        collection: &Collection<Document>,
        updates: Vec<Document>,
        limit: Duration,
    ) -> Result<u64, LockError> {
        let command = doc! { "update": collection.name(), "updates": updates };
        let reply = self.write(collection, command, limit).await?;
        let matched = reply
            .get_i32("n")
            .map_or_else(|_| reply.get_i64("n"), |n| Ok(n.into()));
        Ok(matched.map_or(0, |matched| u64::try_from(matched).unwrap_or_default()))
    }
}

/// The command that takes one lock if it is free, and replies what its document says then.
fn claim_command(locks: &str, key: &LeaseId, request: AcquireRequest) -> Document {
    let mut command = change_command(locks, key, claim_stage(key, request), request.wants_dates);
    command.insert("upsert", true);
    command
}

/// The command that changes the document of one lock, and replies what it says then.
pub(super) fn change_command(locks: &str, key: &LeaseId, stage: Document, wants_dates: bool) -> Document {
    let mut fields = doc! {
        "_id": 0, "lockId": 1, "fencingToken": 1,
        "remainingMs": { "$subtract": ["$expiresAt", "$$NOW"] }, "heldMs": held_ms(),
    };
    if wants_dates {
        fields.extend(doc! { "acquiredAt": 1, "expiresAt": 1, "now": "$$NOW" });
    }
    doc! {
        "findAndModify": locks,
        "query": { "_id": &*key.name },
        "update": [stage],
        "new": true,
        "fields": fields,
    }
}

/// The outcome of that command.
fn claimed(
    key: &LeaseId,
    request: AcquireRequest,
    reply: mongodb::error::Result<Document>,
) -> Result<AcquireReply, LockError> {
    match reply {
        Ok(reply) => match reply.get_document("value") {
            Ok(document) => acquire_reply(key, document, request),
            // An upsert that returns the new document always has one.
            Err(_) => Err(corrupt(
                &key.name,
                "the server returned no document after an upsert".into(),
            )),
        },
        // Two clients inserted the first document of a name at the same time, and the other one has the lock.
        Err(error) if driver_error::is_duplicate_key(&error) => Ok(AcquireReply::HELD),
        Err(error) => Err(error_of_change(&key.name, error)),
    }
}

/// The error of a command that changes the document of this lock.
pub(super) fn error_of_change(name: &str, error: mongodb::error::Error) -> LockError {
    if driver_error::is_wrong_type(&error) {
        corrupt(name, wrong_type(&error))
    } else if driver_error::is_blocked(&error) {
        driver_error::blocked(name, error)
    } else {
        error.into()
    }
}

/// The update of an acquire request: a free document gets the claim's fields, and any other one stays as it is. All
/// expressions read the document as it was before, and `$max` ignores a missing token. The caller's strings are literals, so
/// that they are not read as field paths. (One condition for all fields costs the server less than one for each.)
pub(super) fn claim_stage(key: &LeaseId, request: AcquireRequest) -> Document {
    let taken = merged(granted(&key.lock_id, "$$NOW", request));
    doc! { "$replaceWith": { "$cond": [free(request.takeover_margin), taken, "$$ROOT"] } }
}

/// The fields of a lease that a claim with this id has got, and that began at this time.
pub(super) fn granted(lock_id: &str, acquired_at: &str, request: AcquireRequest) -> Document {
    let next_token = doc! { "$max": [
        { "$add": ["$fencingToken", 1_i64] },
        { "$multiply": [{ "$toLong": "$$NOW" }, 1000_i64] },
    ] };
    doc! {
        "lockId": { "$literal": lock_id },
        "acquiredAt": acquired_at,
        "expiresAt": { "$add": ["$$NOW", millis(request.expiry)] },
        "fencingToken": { "$add": [next_token, request.tokens - 1] },
    }
}

/// The whole document with these fields.
pub(super) fn merged(fields: Document) -> Document {
    doc! { "$mergeObjects": ["$$ROOT", fields] }
}

/// The update of a renewal. It never shortens what another renewal has granted: `$$NOW` is fixed when a command starts,
/// and a command that waited in the server behind a foreign transaction takes effect after later ones. An end that no
/// earlier renewal can have set comes from a clock that was ahead, and is corrected.
fn renewal_stage(expiry: Duration) -> Document {
    let granted = |more| doc! { "$add": ["$$NOW", millis(expiry + more)] };
    let present = doc! { "$min": ["$expiresAt", granted(LATE_COMMAND)] };
    doc! { "$set": { "expiresAt": { "$max": [granted(Duration::ZERO), present] } } }
}

/// The update of a release. It keeps the document, so that tokens go on rising. Until the minimum hold is over the lock stays
/// taken, and the document says by which claim.
pub(super) fn release_stage(min_hold: Duration) -> Document {
    if min_hold.is_zero() {
        return doc! { "$set": { "lockId": "", "expiresAt": "$$NOW" } };
    }
    let end = min_hold_end(min_hold);
    let kept = doc! { "$concat": [KEPT_PREFIX, "$lockId"] };
    doc! { "$set": {
        "lockId": { "$cond": [{ "$gt": [&end, "$$NOW"] }, kept, ""] },
        "expiresAt": { "$max": ["$$NOW", end] },
    } }
}

/// The end of the minimum hold. A hold that begins in the future has begun by a clock that was ahead.
pub(super) fn min_hold_end(min_hold: Duration) -> Document {
    doc! { "$add": [{ "$min": ["$acquiredAt", "$$NOW"] }, millis(min_hold)] }
}

/// The query for the document of this claim, as long as the claim has the lock.
pub(super) fn claim(key: &LeaseId) -> Document {
    doc! { "_id": &*key.name, "lockId": &*key.lock_id }
}

/// The statements that update all documents of these queries.
pub(super) fn updates_of(queries: Vec<Document>, stage: &Document) -> Vec<Document> {
    let update = |query| doc! { "q": query, "u": [stage], "multi": true };
    queries.into_iter().map(update).collect()
}

/// The queries for the documents of these claims: one for all claims of single locks, whose ids no other name can have, and
/// one for each set, which pairs its id with its names. Those of detached leases come last: a request that detaches a lease while
/// both ids are released finds the first one gone, or its own one is released after it.
pub(super) fn claims<'a>(keys: impl IntoIterator<Item = &'a LeaseId>) -> Vec<Document> {
    let mut single = Vec::new();
    let mut sets: BTreeMap<(bool, &str), Vec<&str>> = BTreeMap::new();
    for key in keys {
        if lock_id::is_set(&key.lock_id) {
            let of_set = (lock_id::is_detached(&key.lock_id), &*key.lock_id);
            sets.entry(of_set).or_default().push(&key.name);
        } else {
            single.push(key);
        }
    }
    let mut queries = Vec::with_capacity(sets.len() + 1);
    match single[..] {
        [] => {}
        [key] => queries.push(claim(key)),
        _ => {
            let names: Vec<&str> = single.iter().map(|key| &*key.name).collect();
            let ids: Vec<&str> = single.iter().map(|key| &*key.lock_id).collect();
            queries.push(doc! { "_id": { "$in": names }, "lockId": { "$in": ids } });
        }
    }
    let of_sets = sets.into_iter();
    queries.extend(of_sets.map(|((_, id), names)| doc! { "_id": { "$in": names }, "lockId": id }));
    queries
}

pub(super) fn acquire_reply(
    key: &LeaseId,
    document: &Document,
    request: AcquireRequest,
) -> Result<AcquireReply, LockError> {
    let dates = request
        .wants_dates
        .then(|| dates(&key.name, document))
        .transpose()?;
    // The rest of a lease that has ended is negative.
    let left = document.get_i64("remainingMs").ok();
    let holder = document.get_str("lockId").ok();
    if holder != Some(&key.lock_id) {
        return Ok(AcquireReply::Held {
            holder: holder.map(|id| Arc::from(lock_id::taken_by(id))),
            held_for: held_for(document),
            remaining: left.map(|left| until_free(holder, left, request.takeover_margin)),
            dates,
        });
    }
    let remaining = left.map(|left| Duration::from_millis(u64::try_from(left).unwrap_or_default()));
    match document.get("fencingToken") {
        Some(Bson::Int64(token)) => Ok(AcquireReply::Acquired {
            last_token: FencingToken::new(*token),
            remaining,
            dates,
        }),
        _ => Err(unfit(&key.name, document, "fencingToken", "a 64-bit integer")),
    }
}

fn dates(name: &str, document: &Document) -> Result<Dates, LockError> {
    let date = |field| match document.get_datetime(field) {
        Ok(date) => Ok(*date),
        Err(_) => Err(unfit(name, document, field, "a date")),
    };
    Ok(Dates {
        now: date("now")?,
        acquired_at: date("acquiredAt")?,
        expires_at: date("expiresAt")?,
    })
}

/// The error for a field that is missing or has the wrong type.
pub(super) fn unfit(name: &str, document: &Document, field: &str, wanted: &str) -> LockError {
    let found = document.get(field).map(Bson::element_type);
    let problem = match found {
        Some(found) => format!("`{field}` is not {wanted}: its type is {found:?}"),
        None => format!("`{field}` is missing"),
    };
    corrupt(name, problem)
}

/// What is wrong with a document of which a field has a type that the server cannot calculate with.
pub(super) fn wrong_type(error: &mongodb::error::Error) -> String {
    let said = driver_error::sentence(error);
    format!("a field has a type that the server cannot calculate with ({said})")
}

pub(super) fn corrupt(name: &str, problem: String) -> LockError {
    LockError::CorruptDocument {
        name: permit_id::shown(name).to_owned(),
        problem,
    }
}
