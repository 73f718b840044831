//! Claims on several locks at once, which have one id in common.

#[cfg(all(test, server_tests))]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};

use super::claims::{acquire_reply, claim_stage, corrupt, wrong_type};
use super::look::{held_ms, remaining_ms};
use super::mongo::{MongoStore, Query, run_write};
use super::{AcquireReply, AcquireRequest, Claimed, LeaseId, driver_error, reply};
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
        let sent = self.send_claims(keys, request, limit).await;
        self.note_outcome(&sent);
        sent?;
        Ok(self.read_claims(keys, request, limit).await)
    }

    /// Sends one upsert for each lock. They do not wait for each other: a lock that is held, or another client that inserts
    /// the same document, does not stop the rest.
    async fn send_claims(
        &self,
        keys: &[LeaseId],
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<(), LockError> {
        let upsert = |key: &LeaseId| {
            doc! { "q": { "_id": &*key.name }, "u": [claim_stage(key, request)], "upsert": true, "multi": false }
        };
        let command = doc! {
            "update": self.locks.name(),
            "updates": keys.iter().map(upsert).collect::<Vec<_>>(),
            "ordered": false,
        };
        let ran = run_write(&self.locks, command, doc! { "w": "majority" }, limit).await;
        let Err((index, error)) = reply::outcome_of_upserts(ran) else {
            self.note_confirmed();
            return Ok(());
        };
        let failed = index.and_then(|index| keys.get(index));
        Err(match failed {
            Some(key) if driver_error::is_wrong_type(&error) => corrupt(&key.name, wrong_type(&error)),
            _ if driver_error::is_blocked_update(&error) => {
                let names = failed.map_or_else(|| any_of(keys), |key| key.name.to_string());
                driver_error::blocked(&names, error)
            }
            _ => error.into(),
        })
    }

    /// What the documents of these locks say, confirmed by a majority: with less, a failover could take an acquisition back.
    async fn read_claims(&self, keys: &[LeaseId], request: AcquireRequest, limit: Duration) -> Claimed {
        let names: Vec<&str> = keys.iter().map(|key| &*key.name).collect();
        let query = Query {
            filter: doc! { "_id": { "$in": names } },
            fields: doc! {
                "lockId": 1, "fencingToken": 1, "remainingMs": remaining_ms(), "heldMs": held_ms(),
            },
            most: keys.len(),
            level: "majority",
        };
        let found: Vec<Document> = query.run(&self.locks, limit).await?.collect();
        let by_name = |document| Some((Document::get_str(document, "_id").ok()?, document));
        let found: HashMap<&str, &Document> = found.iter().filter_map(by_name).collect();
        let replies = keys.iter().map(|key| match found.get(&*key.name) {
            Some(document) if document.get("remainingMs") == Some(&Bson::Null) => {
                Err(corrupt(&key.name, "`expiresAt` is not a date".to_owned()))
            }
            Some(document) => acquire_reply(key, document, request),
            // Another client has deleted the document in the meantime.
            None => Ok(AcquireReply::HELD),
        });
        replies.collect::<Result<Vec<_>, _>>().map(Few::from)
    }
}

/// The names of these locks for an error that is the error of one of them, which the server does not name.
pub(super) fn any_of(keys: &[LeaseId]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<&str> = keys.iter().take(SHOWN).map(|key| &*key.name).collect();
    let shown = shown.join("` or `");
    match keys.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}` or `{more} others"),
    }
}
