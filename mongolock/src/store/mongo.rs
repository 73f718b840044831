pub(super) mod encoder;
pub(super) mod fields;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::error::Error;
use mongodb::options::{ReadPreference, SelectionCriteria};
use mongodb::{Collection, Database};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};

use self::encoder::by_server;
use self::fields::sight;
use super::IndexState;
use super::connection::Connection;
use super::look::{Found, Looked};
use super::reachability::Reachability;
use super::reply::{self, NotRun};
use crate::LockError;
use crate::duration::millis;
use crate::meter::{CommandKind, CommandMeter};
use crate::options::check_database;
use crate::protocol::{Reply, Then};
use crate::sync::lock;
use crate::task::driver_call;
use crate::timing::PROBE_LIMIT;

/// The protocol on a MongoDB collection.
pub(crate) struct MongoStore {
    /// The collection of the locks.
    pub(super) locks: Collection<Document>,
    /// Held while the index is checked: one check at a time.
    pub(super) index_check: Mutex<()>,
    /// The provider's share of the client, if this library has made it; `None` after a shutdown.
    connection: std::sync::Mutex<Option<(Arc<()>, Arc<Connection>)>>,
    /// What is known about the servers of the client.
    pub(super) servers: Arc<Reachability>,
    /// What the outcomes of commands have shown last.
    pub(super) shown: std::sync::Mutex<Shown>,
    /// Whether a shutdown has ended the commands and streams.
    pub(super) is_closed: watch::Sender<bool>,
    pub(super) meter: CommandMeter,
    /// Whether the database can have locks; if not, every command has the error.
    pub(super) database: Result<(), LockError>,
    /// The state of the index at its last check; `None` before that, and since a stream has ended with the collection of the locks,
    /// which was dropped or renamed.
    pub(super) index: watch::Sender<Option<IndexState>>,
}

/// What the outcomes of commands have shown last.
#[derive(Default, Clone)]
pub(crate) struct Shown {
    /// The time at which the server last confirmed a write; `None` without a server.
    pub(crate) confirmed: Option<Instant>,
    /// The refusal of the last acquire or renewal, for a missing right or a wrong password; `None` if it was not refused.
    pub(crate) refusal: Option<LockError>,
    /// Why the last release was refused for good; `None` after one that has ended a claim.
    pub(crate) refused_release: Option<LockError>,
}

impl MongoStore {
    pub(crate) fn new(
        database: &Database,
        collection: &str,
        connection: Option<Arc<Connection>>,
        servers: Arc<Reachability>,
    ) -> Self {
        let shared = |connection: Arc<Connection>| (Arc::clone(&connection.users), connection);
        Self {
            locks: database.collection(collection),
            index_check: Mutex::default(),
            connection: std::sync::Mutex::new(connection.map(shared)),
            is_closed: watch::Sender::default(),
            meter: CommandMeter::default(),
            database: check_database(database.name()),
            servers,
            index: watch::Sender::default(),
            shown: std::sync::Mutex::default(),
        }
    }

    /// Ends every command and stream, and the client if this library has made it and no other provider uses it.
    pub(super) async fn close(&self) {
        self.close_gate().await;
        let used = lock(&self.connection).take();
        if let Some((share, connection)) = used {
            drop(share);
            connection.shut_down_if_unused().await;
        }
    }

    /// Whether a primary replies, and the time of its clock. If none does for a while, any other member may reply: a
    /// client that is new knows only some members, so it must not ask them first.
    pub(super) async fn hello(&self) -> Result<(bool, DateTime), LockError> {
        let primary = timeout(PROBE_LIMIT / 2, self.hello_from(ReadPreference::Primary));
        let hello = match primary.await {
            Ok(Err(error)) if error.meaning().is_refusal() => return Err(error),
            Ok(Ok(hello)) => hello,
            _ => {
                let any = ReadPreference::SecondaryPreferred { options: None };
                self.hello_from(any).await?
            }
        };
        let is_primary = hello.get_bool("isWritablePrimary").unwrap_or(false);
        let time = hello.get_datetime("localTime").copied().map_err(Error::custom)?;
        Ok((is_primary, time))
    }

    /// The reply of a server of this kind.
    async fn hello_from(&self, server: ReadPreference) -> Result<Document, LockError> {
        let database = self.database();
        let hello = database.run_command(doc! { "hello": 1 });
        let server = SelectionCriteria::ReadPreference(server);
        Ok(hello.selection_criteria(server).await?)
    }

    /// Notes what the outcome of rows says: whether the server refuses the user, and whether it refuses releases.
    pub(super) fn note(&self, then: &Then, ran: &Result<Vec<Reply>, NotRun>) {
        let has_ended = |reply: &Reply| reply.is_applied != Some(false);
        let mut shown = lock(&self.shown);
        match (then, ran) {
            (Then::Claim { .. } | Then::Renew { .. }, Ok(_)) => shown.refusal = None,
            (Then::Claim { .. } | Then::Renew { .. }, Err(NotRun { error, .. }))
                if error.meaning().is_refusal() =>
            {
                shown.refusal = Some(error.clone());
            }
            (Then::End { .. }, Ok(replies)) if !replies.iter().any(has_ended) => {}
            (Then::End { .. }, Ok(_)) => shown.refused_release = None,
            // A refusal of the user is that of acquires and renewals, too.
            (Then::End { .. }, Err(NotRun { error, .. })) if error.meaning().is_final() => {
                shown.refused_release = Some(error.clone());
            }
            _ => {}
        }
    }

    /// Runs one write command that a majority must confirm: with less than a majority a failover can restore a state in
    /// which the lock is free. One that `inserts` may miss its document, see [`reply::outcome`].
    pub(super) async fn write(
        &self,
        kind: CommandKind,
        mut command: Document,
        limit: Duration,
        inserts: bool,
    ) -> Result<Document, LockError> {
        command.insert("writeConcern", doc! { "w": "majority" });
        let reply = self.send(kind, command, limit, inserts).await?;
        lock(&self.shown).confirmed = Some(Instant::now());
        Ok(reply)
    }

    /// Runs one command on the primary, whatever the connection string says, with this limit at the server. `run_command` takes no
    /// settings from the client; without a transaction number the server writes one record less, and a repetition is this library's
    /// own.
    async fn send(
        &self,
        kind: CommandKind,
        mut command: Document,
        limit: Duration,
        inserts: bool,
    ) -> Result<Document, LockError> {
        // To the server 0 means no limit.
        command.insert("maxTimeMS", millis(limit).max(1));
        let database = self.database();
        let sending = database.run_command(command).selection_criteria(primary());
        let sending = driver_call(sending.into_future());
        let sending = pin!(async { Ok(reply::outcome(sending.await, inserts)?) });
        self.pass(kind, sending).await
    }

    /// The documents in the reply to a command that reads, which has all of them in one batch.
    pub(super) async fn read(
        &self,
        kind: CommandKind,
        command: Document,
        limit: Duration,
    ) -> Result<impl Iterator<Item = Document>, LockError> {
        let mut reply = self.send(kind, command, limit, false).await?;
        let cursor = reply.get_document_mut("cursor");
        let batch = cursor.and_then(|cursor| cursor.get_array_mut("firstBatch"));
        Ok(documents(batch.map(std::mem::take).unwrap_or_default()))
    }

    /// Reads the documents of these locks with one query, in the order of their names. What a waiter reads decides nothing, because
    /// what looks free is acquired by a request of its own, and a claim that may have its lock counts in a commit: they read what
    /// the primary has. All others wait for a majority, because a failover could take back what the documents say.
    pub(super) async fn find(
        &self,
        kind: CommandKind,
        looked: &Looked,
        after: Option<&str>,
        most: u32,
        limit: Duration,
    ) -> Result<Found, LockError> {
        let mut filter = looked.query();
        if let Some(after) = after {
            filter = doc! { "$and": [{ "_id": { "$gt": after } }, filter] };
        }
        let level = match kind {
            CommandKind::Look | CommandKind::Commit => "local",
            _ => "majority",
        };
        let command = doc! {
            "find": self.locks.name(),
            "filter": filter,
            "projection": by_server().fields(),
            "sort": { "_id": 1 },
            "limit": i64::from(most),
            "batchSize": i64::from(most),
            "singleBatch": true,
            "readConcern": { "level": level },
        };
        let found = self.read(kind, command, limit).await?;
        let seen = |found: Document| Some((Arc::from(found.get_str("_id").ok()?), sight(&found)));
        Ok(found.filter_map(seen).collect())
    }

    pub(super) fn database(&self) -> Database {
        self.locks.client().database(&self.locks.namespace().db)
    }
}

/// The documents of a batch.
pub(super) fn documents(batch: Vec<Bson>) -> impl Iterator<Item = Document> {
    batch.into_iter().filter_map(|found| match found {
        Bson::Document(document) => Some(document),
        _ => None,
    })
}

/// The server of a command, whatever the connection string says.
pub(super) fn primary() -> SelectionCriteria {
    SelectionCriteria::ReadPreference(ReadPreference::Primary)
}
