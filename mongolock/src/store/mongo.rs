pub(super) mod encoder;
pub(super) mod fields;
mod rows;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::Error;
use mongodb::options::{
    Acknowledgment, CollectionOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern,
};
use mongodb::{Collection, Database};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};

use self::encoder::by_server;
use self::fields::sight;
use super::connection::Connection;
use super::gate::Gate;
use super::reachability::Reachability;
use super::{Replies, reply};
use crate::LockError;
use crate::protocol::{Name, Reply, Sight};
use crate::sync::lock;
use crate::task::driver_call;
use crate::timing::{ASK_AGAIN_EXPIRY, PROBE_PRIMARY};

/// The protocol on a MongoDB collection.
pub(crate) struct MongoStore {
    /// The collection of the locks.
    pub(super) locks: Collection<Document>,
    /// Held while the index is checked: one check at a time.
    pub(super) index_check: Mutex<()>,
    /// The client, if this library has made it.
    connection: Option<Arc<Connection>>,
    /// What is known about the servers of the client.
    pub(super) servers: Arc<Reachability>,
    /// The time at which the server last confirmed a write.
    last_confirmed: std::sync::Mutex<Option<Instant>>,
    /// The refusal of the last acquire or renewal; `None` if it was not refused.
    refusal: std::sync::Mutex<Option<LockError>>,
    /// Why the last release was refused for good; `None` after one that has ended a claim.
    refused_release: std::sync::Mutex<Option<LockError>>,
    /// The gate that ends the commands at the end of a shutdown.
    pub(super) gate: Arc<Gate>,
    /// How often a stream has ended with the collection of the locks, which was dropped or renamed.
    pub(super) ends: watch::Sender<u64>,
    /// Whether the provider no longer uses the client.
    has_left: AtomicBool,
}

impl MongoStore {
    pub(crate) fn new(
        database: &Database,
        collection: &str,
        connection: Option<Arc<Connection>>,
        servers: Arc<Reachability>,
    ) -> Self {
        if let Some(connection) = &connection {
            connection.join();
        }
        let locks = collection_of(database, collection);
        Self {
            locks,
            index_check: Mutex::default(),
            connection,
            gate: Arc::new(Gate::new(Arc::clone(&servers), database.name())),
            servers,
            ends: watch::Sender::new(0),
            last_confirmed: std::sync::Mutex::default(),
            refusal: std::sync::Mutex::default(),
            refused_release: std::sync::Mutex::default(),
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

    /// Stops using the client, and returns it if no other provider uses it.
    fn leave(&self) -> Option<&Connection> {
        let connection = self.connection.as_deref()?;
        let is_last = !self.has_left.swap(true, Ordering::AcqRel) && connection.leave();
        is_last.then_some(connection)
    }

    /// Whether a primary replies. If none replies for some time, any other member may reply: a new client knows only
    /// some members, so it must not ask the others first.
    pub(super) async fn hello(&self) -> Result<bool, LockError> {
        let primary = self.hello_from(ReadPreference::Primary);
        match timeout(PROBE_PRIMARY, primary).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) if error.meaning().is_refusal() => Err(error),
            _ => {
                let secondary = ReadPreference::SecondaryPreferred { options: None };
                self.hello_from(secondary).await
            }
        }
    }

    /// The time of the primary's clock.
    pub(super) async fn server_time(&self) -> Result<DateTime, LockError> {
        let reply = run(&self.locks, doc! { "hello": 1 }).await?;
        Ok(reply.get_datetime("localTime").copied().map_err(Error::custom)?)
    }

    /// Whether the replying server of this kind is a primary.
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

    /// The refusal of the last acquire or renewal, or of every call; `None` if it was not refused.
    pub(super) fn refusal(&self) -> Option<LockError> {
        self.gate.check().err().or_else(|| lock(&self.refusal).clone())
    }

    /// Notes whether the server refuses acquires and renewals, by the outcome of one of them.
    pub(super) fn note_outcome<T>(&self, outcome: &Result<T, LockError>) {
        match outcome {
            Ok(_) => *lock(&self.refusal) = None,
            Err(error) if error.meaning().is_refusal() => *lock(&self.refusal) = Some(error.clone()),
            // Other errors say nothing about rights.
            Err(_) => {}
        }
    }

    /// Why the last release was refused for good.
    pub(super) fn refused_release(&self) -> Option<LockError> {
        lock(&self.refused_release).clone()
    }

    /// Notes the result of a release: after one that has ended claims, releases are no longer refused.
    fn note_release(&self, outcome: &Result<Replies, LockError>) {
        let has_ended = |reply: &Result<Reply, LockError>| {
            reply.as_ref().is_ok_and(|reply| reply.is_applied != Some(false))
        };
        match outcome {
            Ok(Ok(replies)) if !replies.iter().any(has_ended) => {}
            Ok(_) => *lock(&self.refused_release) = None,
            // A refusal of the user also concerns acquires and renewals.
            Err(error) if error.meaning().is_final() => {
                *lock(&self.refused_release) = Some(error.clone());
            }
            Err(_) => {}
        }
    }

    /// Asks for the internal lock, which shows whether the server still refuses acquires. It does not matter whether
    /// another process holds the lock.
    pub(super) async fn ask_again(&self) -> Result<(), LockError> {
        if let Some(id) = self.claim_internal(ASK_AGAIN_EXPIRY).await? {
            self.release_internal(&id).await?;
        }
        Ok(())
    }

    /// Runs one write command that a majority must confirm.
    pub(super) fn write(
        &self,
        collection: &Collection<Document>,
        command: Document,
        limit: Duration,
    ) -> impl Future<Output = mongodb::error::Result<Document>> {
        self.write_with(collection, command, doc! { "w": "majority" }, limit)
    }

    /// Runs one write command with this concern.
    pub(super) async fn write_with(
        &self,
        collection: &Collection<Document>,
        command: Document,
        concern: Document,
        limit: Duration,
    ) -> mongodb::error::Result<Document> {
        let reply = reply::outcome(run_write(collection, command, concern, limit).await)?;
        self.note_confirmed();
        Ok(reply)
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
        .selection_criteria(primary())
        .build();
    database.collection_with_options(name, options)
}

/// Runs one write command, whose reply with `ok: 1` may have errors. `run_command` takes no settings from the
/// collection, so the concern and the time limit are set here. Without a transaction number the server writes one
/// record less; this library itself repeats commands.
pub(super) fn run_write(
    collection: &Collection<Document>,
    mut command: Document,
    concern: Document,
    limit: Duration,
) -> impl Future<Output = mongodb::error::Result<Document>> {
    command.insert("writeConcern", concern);
    command.insert("maxTimeMS", max_time(limit));
    run(collection, command)
}

/// Runs one command on the primary of the database of this collection.
pub(super) async fn run(
    collection: &Collection<Document>,
    command: Document,
) -> mongodb::error::Result<Document> {
    let database = collection.client().database(&collection.namespace().db);
    let sending = database.run_command(command).selection_criteria(primary());
    driver_call(sending.into_future()).await
}

/// The primary, whatever the connection string says.
pub(super) fn primary() -> SelectionCriteria {
    SelectionCriteria::ReadPreference(ReadPreference::Primary)
}

/// One query, which has its whole reply in one batch.
#[derive(Clone)]
pub(super) struct Query {
    pub(super) filter: Document,
    /// The largest number of documents that it returns.
    pub(super) most: usize,
    /// The read concern: `"local"` if the documents are only a hint, and `"majority"` if a roll-back of what was read
    /// would matter.
    pub(super) level: &'static str,
}

impl Query {
    /// Runs the query on the primary, and returns the documents.
    pub(super) async fn run(
        self,
        collection: &Collection<Document>,
        limit: Duration,
    ) -> Result<impl Iterator<Item = (Name, Sight)>, LockError> {
        let command = doc! {
            "find": collection.name(),
            "filter": self.filter,
            "projection": by_server().fields(),
            "batchSize": i64::try_from(self.most).unwrap_or(i64::MAX),
            "singleBatch": true,
            "readConcern": { "level": self.level },
            "maxTimeMS": max_time(limit),
        };
        let mut reply = run(collection, command).await?;
        let cursor = reply.get_document_mut("cursor");
        let found = cursor.and_then(|cursor| cursor.get_array_mut("firstBatch"));
        let found = found.map(std::mem::take).unwrap_or_default();
        Ok(found.into_iter().filter_map(|found| {
            let document = found.as_document()?;
            Some((Arc::from(document.get_str("_id").ok()?), sight(document)))
        }))
    }
}

/// The limit of a command at the server, to which 0 means no limit.
fn max_time(limit: Duration) -> i64 {
    millis(limit).max(1)
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
