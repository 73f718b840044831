use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{
    Acknowledgment, CollectionOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern,
};
use mongodb::{Collection, Database};
use tokio::sync::Mutex;

use super::{AcquireReply, AcquireRequest, RenewReply, reply};
use crate::store::LeaseId;
use crate::store::driver_error;
use crate::timing::LATE_COMMAND;
use crate::{FencingToken, LockError};

/// The protocol on a collection of a MongoDB.
pub(crate) struct MongoStore {
    /// Claims, releases and the requests of operators: what callers wait for.
    pub(super) locks: Collection<Document>,
    /// Renewals and background releases, on a connection pool of their own if the user gave one.
    pub(super) background: Collection<Document>,
    /// Somebody looks at the index.
    pub(super) looking: Mutex<()>,
}

impl MongoStore {
    pub(crate) fn new(database: &Database, background: Option<&mongodb::Client>, collection: &str) -> Self {
        let locks = collection_of(database, collection);
        let background = match background {
            Some(client) => collection_of(&client.database(database.name()), collection),
            None => locks.clone(),
        };
        Self {
            locks,
            background,
            looking: Mutex::default(),
        }
    }

    pub(crate) async fn claim(
        &self,
        key: &LeaseId,
        ask: AcquireRequest,
        limit: Duration,
    ) -> Result<AcquireReply, LockError> {
        let command = doc! {
            "findAndModify": self.locks.name(),
            "query": { "_id": &*key.name },
            "update": [claim_stage(key, ask)],
            "upsert": true,
            "new": true,
            "fields": {
                "_id": 0, "lockId": 1, "fencingToken": 1,
                "remainingMs": { "$subtract": ["$expiresAt", "$$NOW"] },
            },
        };
        match self.write(&self.locks, command, limit).await {
            Ok(reply) => match reply.get_document("value") {
                Ok(document) => answer(key, document),
                // An upsert that returns the new document always has one.
                Err(_) => Err(corrupt(
                    &key.name,
                    "the server returned none after an upsert".into(),
                )),
            },
            // Two first claims of a name met: the other one has won.
            Err(error) if driver_error::is_duplicate_key(&error) => Ok(AcquireReply::Held {
                holder: None,
                remaining: None,
            }),
            Err(error) if driver_error::is_wrong_type(&error) => Err(corrupt(
                &key.name,
                format!(
                    "a field has a type that the server cannot compute with ({})",
                    error.kind
                ),
            )),
            Err(error) if driver_error::is_blocked(&error) => Err(driver_error::blocked(&key.name, error)),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn renew(
        &self,
        keys: &[LeaseId],
        expiry: Duration,
        limit: Duration,
    ) -> Result<RenewReply, LockError> {
        let renewed = self
            .update(&self.background, claims(keys), renewal_stage(expiry), limit)
            .await?;
        // Matched, not modified: two renewals within one millisecond change nothing.
        if renewed == keys.len() as u64 {
            return Ok(RenewReply::All);
        }
        let mut standing = HashSet::new();
        let mut found = self
            .background
            .find(claims(keys))
            .projection(doc! { "_id": 0, "lockId": 1 })
            .max_time(limit)
            .await?;
        while found.advance().await? {
            if let Ok(id) = found.current().get_str("lockId") {
                standing.insert(Arc::from(id));
            }
        }
        Ok(RenewReply::Only(standing))
    }

    pub(crate) async fn release(
        &self,
        key: &LeaseId,
        min_hold: Duration,
        limit: Duration,
    ) -> Result<bool, LockError> {
        let released = self
            .update(&self.locks, claim(key), release_stage(min_hold), limit)
            .await?;
        Ok(released > 0)
    }

    pub(crate) async fn release_many(
        &self,
        keys: &[LeaseId],
        min_hold: Duration,
        limit: Duration,
    ) -> Result<(), LockError> {
        self.update(&self.background, claims(keys), release_stage(min_hold), limit)
            .await?;
        Ok(())
    }

    /// Updates all documents that fit the query and says how many that were.
    ///
    /// The driver's own `update_many` takes no `maxTimeMS`: it would stay in the server for as long as a foreign
    /// transaction blocks a document, and keep its connection.
    pub(super) async fn update(
        &self,
        collection: &Collection<Document>,
        query: Document,
        stage: Document,
        limit: Duration,
    ) -> Result<u64, LockError> {
        let command = doc! {
            "update": collection.name(),
            "updates": [{ "q": query, "u": [stage], "multi": true }],
        };
        let reply = self.write(collection, command, limit).await?;
        let matched = reply
            .get_i32("n")
            .map_or_else(|_| reply.get_i64("n"), |n| Ok(n.into()));
        Ok(matched.map_or(0, |matched| u64::try_from(matched).unwrap_or_default()))
    }

    /// Runs one write command. `run_command` takes no settings from the collection, hence the concern, the limit at the
    /// server and the primary are set here; without a transaction number the server writes one record less, and a
    /// repetition is this library's own.
    async fn write(
        &self,
        collection: &Collection<Document>,
        mut command: Document,
        limit: Duration,
    ) -> mongodb::error::Result<Document> {
        command.insert("writeConcern", doc! { "w": "majority" });
        // 0 would mean no limit.
        command.insert("maxTimeMS", millis(limit).max(1));
        let database = collection.client().database(&collection.namespace().db);
        let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
        reply::outcome(database.run_command(command).selection_criteria(primary).await)
    }
}

/// The settings of mongolock's own handle, whatever the client's are: with less than a majority a failover can
/// bring back a state in which the lock is free.
fn collection_of(database: &Database, name: &str) -> Collection<Document> {
    let options = CollectionOptions::builder()
        .write_concern(WriteConcern::builder().w(Acknowledgment::Majority).build())
        .read_concern(ReadConcern::majority())
        .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
        .build();
    database.collection_with_options(name, options)
}

/// All expressions read the document as it was. A missing `expiresAt` is less than every date, so an absent
/// document is free; `$max` passes over a missing token. Strings of the caller must not be read as field paths.
fn claim_stage(key: &LeaseId, ask: AcquireRequest) -> Document {
    let free = doc! { "$lte": ["$expiresAt", "$$NOW"] };
    let if_free = |taken: Bson, old: &str| doc! { "$cond": [free.clone(), taken, old] };
    let next_token = doc! { "$max": [
        { "$add": ["$fencingToken", 1_i64] },
        { "$multiply": [{ "$toLong": "$$NOW" }, 1000_i64] },
    ] };
    doc! { "$set": {
        "lockId": if_free(doc! { "$literal": &*key.lock_id }.into(), "$lockId"),
        "acquiredAt": if_free("$$NOW".into(), "$acquiredAt"),
        "expiresAt": if_free(doc! { "$add": ["$$NOW", millis(ask.expiry)] }.into(), "$expiresAt"),
        "fencingToken": if_free(doc! { "$add": [next_token, ask.tokens - 1] }.into(), "$fencingToken"),
    } }
}

/// Never takes back what another renewal has granted: `$$NOW` is fixed when a command starts, and one that was stuck in
/// the server behind a foreign transaction takes effect after later ones. An end further away than those could have
/// set it comes from a clock that was ahead, and is corrected.
fn renewal_stage(expiry: Duration) -> Document {
    let granted = |more| doc! { "$add": ["$$NOW", millis(expiry + more)] };
    let present = doc! { "$min": ["$expiresAt", granted(LATE_COMMAND)] };
    doc! { "$set": { "expiresAt": { "$max": [granted(Duration::ZERO), present] } } }
}

/// Keeps the document, so that tokens go on from where they are; the lease stands until the minimum hold is over.
pub(super) fn release_stage(min_hold: Duration) -> Document {
    let end: Bson = if min_hold.is_zero() {
        "$$NOW".into()
    } else {
        doc! { "$max": ["$$NOW", { "$add": ["$acquiredAt", millis(min_hold)] }] }.into()
    };
    doc! { "$set": { "lockId": "", "expiresAt": end } }
}

/// The document of this claim, as long as it stands.
pub(super) fn claim(key: &LeaseId) -> Document {
    doc! { "_id": &*key.name, "lockId": &*key.lock_id }
}

fn claims(keys: &[LeaseId]) -> Document {
    let names: Vec<&str> = keys.iter().map(|key| &*key.name).collect();
    let ids: Vec<&str> = keys.iter().map(|key| &*key.lock_id).collect();
    doc! { "_id": { "$in": names }, "lockId": { "$in": ids } }
}

fn answer(key: &LeaseId, document: &Document) -> Result<AcquireReply, LockError> {
    let remaining = document
        .get_i64("remainingMs")
        .ok()
        .map(|left| Duration::from_millis(u64::try_from(left).unwrap_or_default()));
    let holder = document.get_str("lockId").ok();
    if holder != Some(&key.lock_id) {
        return Ok(AcquireReply::Held {
            holder: holder.map(Arc::from),
            remaining,
        });
    }
    match document.get("fencingToken") {
        Some(Bson::Int64(token)) => Ok(AcquireReply::Acquired {
            last_token: FencingToken::new(*token),
            remaining,
        }),
        _ => Err(unfit(&key.name, document, "fencingToken", "a 64-bit integer")),
    }
}

/// A field that is missing, or of another type than wanted.
pub(super) fn unfit(name: &str, document: &Document, field: &str, wanted: &str) -> LockError {
    let found = document.get(field).map(Bson::element_type);
    let found = found.map_or("it is missing".to_owned(), |found| {
        format!("its type is {found:?}")
    });
    corrupt(name, format!("`{field}` is not {wanted}, {found}"))
}

fn corrupt(name: &str, problem: String) -> LockError {
    LockError::CorruptDocument {
        name: name.to_owned(),
        problem,
    }
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
