use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{
    Acknowledgment, CollectionOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern,
};
use mongodb::{Collection, Database};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::connection::Connection;
use super::gate::Gate;
use super::reachability::Reachability;
use super::{AcquireReply, AcquireRequest, Dates, ProviderMark, RenewReply, reply};
use crate::error::failure::Failure;
use crate::store::LeaseId;
use crate::store::driver_error;
use crate::store::takeover::{free, margin_after};
use crate::sync::lock;
use crate::timing::{LATE_COMMAND, PROBE_PRIMARY};
use crate::{FencingToken, LockError, slot};

/// What is added to the name of the collection of the locks for that of their waiters.
pub(crate) const WAITERS_SUFFIX: &str = ".waiters";

/// The protocol on a MongoDB collection.
pub(crate) struct MongoStore {
    /// The collection for the commands that callers wait for: acquire requests, releases and operators' commands.
    pub(super) locks: Collection<Document>,
    /// The collection for renewals and background releases, on a connection pool of their own if the user gave one.
    pub(super) background: Collection<Document>,
    /// The collection of the waiters, on the pool for background work.
    pub(super) waiters: Collection<Document>,
    /// Held while the index is checked: one check at a time.
    pub(super) index_check: Mutex<()>,
    /// The client and what it says about the servers, if this library has made it; the events of a client of the
    /// application do not come here.
    connection: Option<Arc<Connection>>,
    /// The time at which the server last confirmed a write.
    last_confirmed: std::sync::Mutex<Option<Instant>>,
    /// What ends the commands at the end of a shutdown.
    pub(super) gate: Arc<Gate>,
    /// Whether the provider no longer uses the client.
    has_left: AtomicBool,
}

impl MongoStore {
    pub(crate) fn new(
        database: &Database,
        background: Option<&mongodb::Client>,
        collection: &str,
        connection: Option<Arc<Connection>>,
    ) -> Self {
        if let Some(connection) = &connection {
            connection.join();
        }
        let locks = collection_of(database, collection);
        let other = background.map(|client| client.database(database.name()));
        let background = match &other {
            Some(other) => collection_of(other, collection),
            None => locks.clone(),
        };
        let waiters = format!("{collection}{WAITERS_SUFFIX}");
        Self {
            locks,
            background,
            waiters: collection_of(other.as_ref().unwrap_or(database), &waiters),
            index_check: Mutex::default(),
            connection,
            last_confirmed: std::sync::Mutex::default(),
            gate: Arc::new(Gate::new()),
            has_left: AtomicBool::new(false),
        }
    }

    /// Ends every command and stream, and the client if this library has made it and no other provider uses it.
    pub(super) async fn close(&self) {
        self.gate.close().await;
        if let Some(connection) = self.leave() {
            connection.shut_down().await;
        }
    }

    /// Gives the client up, and returns it if no other provider uses it.
    fn leave(&self) -> Option<&Connection> {
        let connection = self.connection.as_deref()?;
        let is_last = !self.has_left.swap(true, Ordering::AcqRel) && connection.leave();
        is_last.then_some(connection)
    }

    pub(super) fn reachability(&self) -> Option<&Reachability> {
        Some(&self.connection.as_ref()?.reachability)
    }

    /// Whether a primary replies. If none does for a while, any other member may reply: a client that is new knows only
    /// some members, so it must not ask them first.
    pub(super) async fn hello(&self) -> Result<bool, LockError> {
        let hello = async {
            let primary = self.hello_from(ReadPreference::Primary);
            if let Ok(Ok(reply)) = timeout(PROBE_PRIMARY, primary).await {
                return Ok(reply);
            }
            let secondary = ReadPreference::SecondaryPreferred { options: None };
            self.hello_from(secondary).await
        };
        match self.reachability() {
            Some(reachability) => reachability.unless_unreachable(hello).await,
            None => hello.await,
        }
    }

    /// Whether the server of this kind that replies is a primary.
    async fn hello_from(&self, server: ReadPreference) -> Result<bool, LockError> {
        let database = self.locks.client().database(&self.locks.namespace().db);
        let hello = database
            .run_command(doc! { "hello": 1 })
            .selection_criteria(SelectionCriteria::ReadPreference(server));
        Ok(hello.await?.get_bool("isWritablePrimary").unwrap_or(false))
    }

    /// The time at which the server last confirmed a write.
    pub(super) fn last_confirmed(&self) -> Option<Instant> {
        *lock(&self.last_confirmed)
    }

    /// The failure of a request without a reply.
    pub(super) fn unanswered(&self, request: &str, waited: Duration) -> Failure {
        match self.reachability() {
            Some(reachability) => reachability.unanswered(request, waited),
            None => Failure::NoReply {
                request: request.to_owned(),
                waited,
                note: "; the driver says why it finds no server after `serverSelectionTimeoutMS`".to_owned(),
            },
        }
    }

    pub(crate) async fn claim(
        &self,
        key: &LeaseId,
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<AcquireReply, LockError> {
        let claiming = self.send_claim(key, request, limit);
        match self.reachability() {
            Some(reachability) => reachability.unless_unreachable(claiming).await,
            None => claiming.await,
        }
    }

    async fn send_claim(
        &self,
        key: &LeaseId,
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<AcquireReply, LockError> {
        let mut fields = doc! {
            "_id": 0, "lockId": 1, "fencingToken": 1,
            "remainingMs": { "$subtract": ["$expiresAt", "$$NOW"] },
        };
        if request.wants_dates {
            fields.extend(doc! { "acquiredAt": 1, "expiresAt": 1, "now": "$$NOW" });
        }
        let command = doc! {
            "findAndModify": self.locks.name(),
            "query": { "_id": &*key.name },
            "update": [claim_stage(key, request)],
            "upsert": true,
            "new": true,
            "fields": fields,
        };
        match self.write(&self.locks, command, limit).await {
            Ok(reply) => match reply.get_document("value") {
                Ok(document) => acquire_reply(key, document, request),
                // An upsert that returns the new document always has one.
                Err(_) => Err(corrupt(
                    &key.name,
                    "the server returned no document after an upsert".into(),
                )),
            },
            // Two clients inserted the first document of a name at the same time, and the other one has the lock.
            Err(error) if driver_error::is_duplicate_key(&error) => Ok(AcquireReply::Held {
                holder: None,
                remaining: None,
                dates: None,
            }),
            Err(error) if driver_error::is_wrong_type(&error) => Err(corrupt(
                &key.name,
                format!(
                    "a field has a type that the server cannot calculate with ({})",
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
            .update_claims(&self.background, keys, renewal_stage(expiry), limit)
            .await?;
        // The matched documents count, not the modified ones: a second renewal within one millisecond changes nothing.
        if renewed == keys.len() as u64 {
            return Ok(RenewReply::All);
        }
        let mut held = HashSet::new();
        let mut found = self
            .background
            .find(doc! { "$or": claims(keys) })
            .projection(doc! { "_id": 1, "lockId": 1 })
            .max_time(limit)
            .await?;
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

    pub(crate) async fn release(
        &self,
        keys: &[LeaseId],
        min_hold: Duration,
        limit: Duration,
    ) -> Result<bool, LockError> {
        let released = self
            .update_claims(&self.locks, keys, release_stage(min_hold), limit)
            .await?;
        Ok(released == keys.len() as u64)
    }

    pub(crate) async fn release_many(
        &self,
        keys: &[LeaseId],
        min_hold: Duration,
        limit: Duration,
    ) -> Result<(), LockError> {
        self.update_claims(&self.background, keys, release_stage(min_hold), limit)
            .await?;
        Ok(())
    }

    /// Updates the documents of these claims, as long as they have their locks, and returns the number of documents.
    async fn update_claims(
        &self,
        collection: &Collection<Document>,
        keys: &[LeaseId],
        stage: Document,
        limit: Duration,
    ) -> Result<u64, LockError> {
        self.update_each(collection, claims(keys), stage, limit).await
    }

    /// Updates all documents that match the query, and returns their number.
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
        self.update_each(collection, vec![query], stage, limit).await
    }

    /// [`Self::update`] for several queries with one command.
    async fn update_each(
        &self,
        collection: &Collection<Document>,
        queries: Vec<Document>,
        stage: Document,
        limit: Duration,
    ) -> Result<u64, LockError> {
        let updates = queries
            .into_iter()
            .map(|query| doc! { "q": query, "u": [&stage], "multi": true });
        let command = doc! {
            "update": collection.name(),
            "updates": updates.collect::<Vec<_>>(),
        };
        let reply = self.write(collection, command, limit).await?;
        let matched = reply
            .get_i32("n")
            .map_or_else(|_| reply.get_i64("n"), |n| Ok(n.into()));
        Ok(matched.map_or(0, |matched| u64::try_from(matched).unwrap_or_default()))
    }

    /// Runs one write command that a majority must confirm.
    pub(super) async fn write(
        &self,
        collection: &Collection<Document>,
        command: Document,
        limit: Duration,
    ) -> mongodb::error::Result<Document> {
        self.write_with(collection, command, doc! { "w": "majority" }, limit)
            .await
    }

    /// Runs one write command. `run_command` takes no settings from the collection, hence the concern, the limit at the
    /// server and the primary are set here; without a transaction number the server writes one record less, and a
    /// repetition is this library's own.
    pub(super) async fn write_with(
        &self,
        collection: &Collection<Document>,
        command: Document,
        concern: Document,
        limit: Duration,
    ) -> mongodb::error::Result<Document> {
        let reply = reply::outcome(self.run_write(collection, command, concern, limit).await)?;
        self.note_confirmed();
        Ok(reply)
    }

    /// [`Self::write_with`], whose reply with `ok: 1` may have errors.
    pub(super) async fn run_write(
        &self,
        collection: &Collection<Document>,
        mut command: Document,
        concern: Document,
        limit: Duration,
    ) -> mongodb::error::Result<Document> {
        command.insert("writeConcern", concern);
        // To the server 0 means no limit.
        command.insert("maxTimeMS", millis(limit).max(1));
        let database = collection.client().database(&collection.namespace().db);
        let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
        database.run_command(command).selection_criteria(primary).await
    }

    /// Notes that the server has confirmed a write.
    pub(super) fn note_confirmed(&self) {
        *lock(&self.last_confirmed) = Some(Instant::now());
    }
}

impl Drop for MongoStore {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The collection with mongolock's own settings in place of the client's: with less than a majority a failover can
/// restore a state in which the lock is free.
fn collection_of(database: &Database, name: &str) -> Collection<Document> {
    let options = CollectionOptions::builder()
        .write_concern(WriteConcern::builder().w(Acknowledgment::Majority).build())
        .read_concern(ReadConcern::majority())
        .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
        .build();
    database.collection_with_options(name, options)
}

/// The update of an acquire request. All expressions read the document as it was before, and `$max` ignores a missing
/// token. The caller's strings are literals, so that they are not read as field paths.
pub(super) fn claim_stage(key: &LeaseId, request: AcquireRequest) -> Document {
    let free = free(request.takeover_margin);
    let if_free = |taken: Bson, old: &str| doc! { "$cond": [free.clone(), taken, old] };
    let next_token = doc! { "$max": [
        { "$add": ["$fencingToken", 1_i64] },
        { "$multiply": [{ "$toLong": "$$NOW" }, 1000_i64] },
    ] };
    doc! { "$set": {
        "lockId": if_free(doc! { "$literal": &*key.lock_id }.into(), "$lockId"),
        "acquiredAt": if_free("$$NOW".into(), "$acquiredAt"),
        "expiresAt": if_free(doc! { "$add": ["$$NOW", millis(request.expiry)] }.into(), "$expiresAt"),
        "fencingToken": if_free(doc! { "$add": [next_token, request.tokens - 1] }.into(), "$fencingToken"),
    } }
}

/// The update of a renewal. It never shortens what another renewal has granted: `$$NOW` is fixed when a command starts,
/// and a command that waited in the server behind a foreign transaction takes effect after later ones. An end that no
/// earlier renewal can have set comes from a clock that was ahead, and is corrected.
fn renewal_stage(expiry: Duration) -> Document {
    let granted = |more| doc! { "$add": ["$$NOW", millis(expiry + more)] };
    let present = doc! { "$min": ["$expiresAt", granted(LATE_COMMAND)] };
    doc! { "$set": { "expiresAt": { "$max": [granted(Duration::ZERO), present] } } }
}

/// The update of a release. It keeps the document, so that tokens go on rising; the lease lasts until the minimum hold is
/// over.
pub(super) fn release_stage(min_hold: Duration) -> Document {
    let end: Bson = if min_hold.is_zero() {
        "$$NOW".into()
    } else {
        doc! { "$max": ["$$NOW", { "$add": ["$acquiredAt", millis(min_hold)] }] }.into()
    };
    doc! { "$set": { "lockId": "", "expiresAt": end } }
}

/// The query for the document of this claim, as long as the claim has the lock.
pub(super) fn claim(key: &LeaseId) -> Document {
    doc! { "_id": &*key.name, "lockId": &*key.lock_id }
}

/// The queries for the documents of these claims: one for all claims of single locks, whose ids no other name can have, and
/// one for each set, which pairs its id with its names.
fn claims(keys: &[LeaseId]) -> Vec<Document> {
    let mut single = Vec::new();
    let mut sets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for key in keys {
        if ProviderMark::is_set(&key.lock_id) {
            sets.entry(&key.lock_id).or_default().push(&key.name);
        } else {
            single.push(key);
        }
    }
    let mut queries: Vec<Document> = sets
        .into_iter()
        .map(|(id, names)| doc! { "_id": { "$in": names }, "lockId": id })
        .collect();
    match single[..] {
        [] => {}
        [key] => queries.push(claim(key)),
        _ => {
            let names: Vec<&str> = single.iter().map(|key| &*key.name).collect();
            let ids: Vec<&str> = single.iter().map(|key| &*key.lock_id).collect();
            queries.push(doc! { "_id": { "$in": names }, "lockId": { "$in": ids } });
        }
    }
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
    let left = document.get_i64("remainingMs").ok();
    // The rest of a lease that has ended is negative.
    let remaining = |margin| {
        left.map(|left| {
            Duration::from_millis(u64::try_from(left.saturating_add(millis(margin))).unwrap_or_default())
        })
    };
    let holder = document.get_str("lockId").ok();
    if holder != Some(&key.lock_id) {
        let margin = margin_after(holder.unwrap_or_default(), request.takeover_margin);
        return Ok(AcquireReply::Held {
            holder: holder.map(Arc::from),
            remaining: remaining(margin),
            dates,
        });
    }
    let remaining = remaining(Duration::ZERO);
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

pub(super) fn corrupt(name: &str, problem: String) -> LockError {
    LockError::CorruptDocument {
        name: slot::shown(name).to_owned(),
        problem,
    }
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
