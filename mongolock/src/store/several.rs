//! Claims on several locks, and releases of them, with one command: those of a set, which have one id in common, and those
//! of several calls.

#[cfg(all(test, server_tests))]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;
use tokio::time::{Instant, sleep};

use super::claims::{acquire_reply, claim_stage, claims, corrupt, release_stage, updates_of, wrong_type};
use super::gather::{AfterRelease, ClaimItem, ReleaseItem};
use super::look::{held_for, held_ms, remaining_ms};
use super::mongo::{MongoStore, Query, run_write};
use super::{AcquireReply, AcquireRequest, Claimed, LeaseId, Outcomes, driver_error, reply};
use crate::LockError;
use crate::few::Few;

impl MongoStore {
    /// Takes the free ones of these locks with one command, and finds out by a query which of them the claims have.
    ///
    /// The query alone decides. The reply to the command has only totals, which say nothing: after a lost reply the same
    /// command finds its own claims and changes nothing.
    pub(super) async fn claim_several(
        &self,
        keys: &[LeaseId],
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        let item = |key: &LeaseId| ClaimItem {
            key: key.clone(),
            request,
        };
        let items: Vec<ClaimItem> = keys.iter().map(item).collect();
        let by = Instant::now() + limit;
        let failed = self.send_claims(&items, limit).await?;
        let are_all = failed.len() == items.len();
        if let Some((_, error)) = failed.into_iter().next() {
            // A statement that has written nothing says nothing of the others.
            return if are_all || !driver_error::wrote_nothing(&error) {
                Err(error)
            } else {
                Ok(Err(error))
            };
        }
        let replies = self.read_claims(&items, limit, by).await;
        Ok(replies.and_then(|replies| replies.into_iter().collect::<Result<Vec<_>, _>>().map(Few::from)))
    }

    /// The same for claims of several calls, each of which has an outcome of its own. After an error none of them is known.
    pub(super) async fn claim_each(
        &self,
        items: &[ClaimItem],
        limit: Duration,
    ) -> Result<Outcomes<AcquireReply>, LockError> {
        let by = Instant::now() + limit;
        let failed = self.send_claims(items, limit).await?;
        let mut replies = self.read_claims(items, limit, by).await;
        for (index, error) in failed {
            if let Ok(replies) = &mut replies {
                replies[index] = Err(error);
            }
        }
        Ok(replies)
    }

    /// Sends one upsert for each lock, and returns the errors of single ones by their places. They do not wait for each
    /// other: a lock that is held, or another client that inserts the same document, does not stop the rest.
    async fn send_claims(
        &self,
        items: &[ClaimItem],
        limit: Duration,
    ) -> Result<Vec<(usize, LockError)>, LockError> {
        let sent = self.send_upserts(items, limit).await;
        self.note_outcome(&sent);
        sent
    }

    async fn send_upserts(
        &self,
        items: &[ClaimItem],
        limit: Duration,
    ) -> Result<Vec<(usize, LockError)>, LockError> {
        let upsert = |item: &ClaimItem| {
            let (key, stage) = (&item.key, claim_stage(&item.key, item.request));
            doc! { "q": { "_id": &*key.name }, "u": [stage], "upsert": true, "multi": false }
        };
        let command = doc! {
            "update": self.locks.name(),
            "updates": items.iter().map(upsert).collect::<Vec<_>>(),
            "ordered": false,
        };
        let ran = run_write(&self.locks, command, doc! { "w": "majority" }, limit).await;
        let failed = reply::outcome_of_upserts(ran).map_err(|error| {
            if driver_error::is_blocked_update(&error) {
                driver_error::blocked(&any_of(items.iter().map(|item| &item.key)), error)
            } else {
                error.into()
            }
        })?;
        self.note_confirmed();
        let of_item = |(index, error): (usize, Error)| {
            let name = &items.get(index)?.key.name;
            let error = if driver_error::is_wrong_type(&error) {
                corrupt(name, wrong_type(&error))
            } else if driver_error::is_blocked_update(&error) {
                driver_error::blocked(name, error)
            } else {
                error.into()
            };
            Some((index, error))
        };
        Ok(failed.into_iter().filter_map(of_item).collect())
    }

    /// What the documents of these locks say, confirmed by a majority: with less, a failover could take an acquisition back.
    pub(super) async fn read_claims(
        &self,
        items: &[ClaimItem],
        limit: Duration,
        by: Instant,
    ) -> Result<Vec<Result<AcquireReply, LockError>>, LockError> {
        let mut fields = doc! {
            "lockId": 1, "fencingToken": 1, "remainingMs": remaining_ms(), "heldMs": held_ms(),
        };
        if items.iter().any(|item| item.request.wants_dates) {
            fields.extend(doc! { "acquiredAt": 1, "expiresAt": 1, "now": "$$NOW" });
        }
        let names = items.iter().map(|item| &item.key.name);
        let found = self.read(names, fields, limit, by).await?;
        let reply = |item: &ClaimItem| match found.get(&*item.key.name) {
            Some(document) if document.get("remainingMs") == Some(&Bson::Null) => {
                let problem = "`expiresAt` is not a date".to_owned();
                Err(corrupt(&item.key.name, problem))
            }
            Some(document) => acquire_reply(&item.key, document, item.request),
            // Another client has deleted the document in the meantime.
            None => Ok(AcquireReply::HELD),
        };
        Ok(items.iter().map(reply).collect())
    }

    /// Releases these locks with one command, and says of each whether its claim had its lock. The number of documents says
    /// so if it is that of the claims; otherwise a query finds out which of them have lost their locks.
    ///
    /// A claim that has neither its lock nor lost it was released by this command, or by force at the same time.
    pub(super) async fn release_each(
        &self,
        items: &[ReleaseItem],
        limit: Duration,
    ) -> Result<Outcomes<bool>, LockError> {
        let mut keys: BTreeMap<Duration, Vec<&LeaseId>> = BTreeMap::new();
        for item in items {
            keys.entry(item.min_hold).or_default().push(&item.key);
        }
        let updates = keys
            .into_iter()
            .flat_map(|(min_hold, keys)| updates_of(claims(keys), &release_stage(min_hold)));
        let begun = Instant::now();
        let released = self.update(&self.locks, updates.collect(), limit).await;
        self.note_release(&released);
        let released = released?;
        if released == items.len() as u64 {
            return Ok(Ok(items.iter().map(|_| Ok(true)).collect()));
        }
        let fields = doc! { "lockId": 1, "fencingToken": 1, "heldMs": held_ms() };
        let names = items.iter().map(|item| &item.key.name);
        let found = self.read(names, fields, limit, begun + limit).await;
        let since = begun.elapsed();
        let seen = |document: &Document| {
            Some(AfterRelease {
                lock_id: document.get_str("lockId").ok()?.to_owned(),
                token: document.get_i64("fencingToken").ok()?,
                held_for: held_for(document)?,
            })
        };
        Ok(found.map(|found| {
            let outcome = |item: &ReleaseItem| {
                let found = found.get(&*item.key.name).and_then(seen);
                item.outcome(found.as_ref(), since)
            };
            items.iter().map(outcome).collect()
        }))
    }

    /// What the documents of these locks say, by their names, confirmed by a majority. The command before it is made, so only this
    /// query is repeated until that time while the server rejects it for overload.
    async fn read(
        &self,
        names: impl ExactSizeIterator<Item = &Arc<str>>,
        fields: Document,
        limit: Duration,
        by: Instant,
    ) -> Result<HashMap<String, Document>, LockError> {
        let most = names.len();
        let query = Query {
            filter: doc! { "_id": { "$in": names.map(AsRef::as_ref).collect::<Vec<&str>>() } },
            fields,
            most,
            level: "majority",
        };
        let found = loop {
            let begun = Instant::now();
            match query.clone().run(&self.locks, limit).await {
                Err(error) if error.is_rejection() => {
                    let pause = self.servers.admissions().pause_after_rejection();
                    if by <= Instant::now() + pause + begun.elapsed().max(pause) {
                        return Err(error);
                    }
                    sleep(pause).await;
                }
                found => break found?,
            }
        };
        let by_name = |document: Document| Some((document.get_str("_id").ok()?.to_owned(), document));
        Ok(found.filter_map(by_name).collect())
    }
}

/// The names of these locks for an error that is the error of one of them, which the server does not name.
pub(super) fn any_of<'a>(keys: impl ExactSizeIterator<Item = &'a LeaseId>) -> String {
    const SHOWN: usize = 3;
    let number = keys.len();
    let shown: Vec<&str> = keys.take(SHOWN).map(|key| &*key.name).collect();
    let shown = shown.join("` or `");
    match number.saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}` or `{more} others"),
    }
}
