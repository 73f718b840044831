pub(super) mod encoder;
pub(super) mod fields;
mod rows;

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
use super::connection::Connection;
use super::gate::Gate;
use super::look::{Looked, Part};
use super::reachability::Reachability;
use super::{IndexState, Replies, reply};
use crate::LockError;
use crate::protocol::{Name, Reply, Sight, Then};
use crate::sync::lock;
use crate::task::driver_call;
use crate::timing::{ASK_AGAIN_EXPIRY, PROBE_LIMIT};

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
    /// What the outcomes of commands have shown last.
    pub(super) shown: std::sync::Mutex<Shown>,
    /// What ends the commands at the end of a shutdown.
    pub(super) gate: Arc<Gate>,
    /// The state of the index at its last check; `None` before that, and since a stream has ended with the collection of the locks,
    /// which was dropped or renamed.
    pub(super) index: watch::Sender<Option<IndexState>>,
    /// The provider's share of that client; `None` after a shutdown.
    share: std::sync::Mutex<Option<Arc<()>>>,
}

/// What the outcomes of commands have shown last.
#[derive(Default)]
pub(super) struct Shown {
    /// The time at which the server last confirmed a write.
    pub(super) confirmed: Option<Instant>,
    /// The refusal of the last acquire or renewal; `None` if it was not refused.
    pub(super) refusal: Option<LockError>,
    /// Why the last release was refused for good; `None` after one that has ended a claim.
    pub(super) refused_release: Option<LockError>,
}

impl MongoStore {
    pub(crate) fn new(
        database: &Database,
        collection: &str,
        connection: Option<Arc<Connection>>,
        servers: Arc<Reachability>,
    ) -> Self {
        let share = connection.as_deref().map(Connection::share);
        Self {
            locks: database.collection(collection),
            index_check: Mutex::default(),
            connection,
            gate: Arc::new(Gate::new(Arc::clone(&servers), database.name())),
            servers,
            index: watch::Sender::default(),
            shown: std::sync::Mutex::default(),
            share: std::sync::Mutex::new(share),
        }
    }

    /// Ends every command and stream, and the client if this library has made it and no other provider uses it.
    pub(super) async fn close(&self) {
        self.gate.close().await;
        let is_last = lock(&self.share).take().and_then(Arc::into_inner).is_some();
        if let Some(connection) = self.connection.as_ref().filter(|_| is_last) {
            connection.shut_down().await;
        }
    }

    /// Whether a primary replies. If none does for a while, any other member may reply: a client that is new knows only
    /// some members, so it must not ask them first.
    pub(super) async fn hello(&self) -> Result<bool, LockError> {
        let is_primary = |hello: Document| hello.get_bool("isWritablePrimary").unwrap_or(false);
        let primary = self.hello_from(ReadPreference::Primary);
        let reply = match timeout(PROBE_LIMIT / 2, primary).await {
            Ok(Err(error)) if !error.meaning().is_refusal() => None,
            reply => reply.ok(),
        };
        let secondary = ReadPreference::SecondaryPreferred { options: None };
        match reply {
            Some(reply) => reply.map(is_primary),
            None => self.hello_from(secondary).await.map(is_primary),
        }
    }

    /// The time of the primary's clock.
    pub(super) async fn server_time(&self) -> Result<DateTime, LockError> {
        let hello = self.hello_from(ReadPreference::Primary).await?;
        Ok(hello.get_datetime("localTime").copied().map_err(Error::custom)?)
    }

    /// The reply of a server of this kind.
    async fn hello_from(&self, server: ReadPreference) -> Result<Document, LockError> {
        let database = self.database();
        let hello = database.run_command(doc! { "hello": 1 });
        let server = SelectionCriteria::ReadPreference(server);
        Ok(hello.selection_criteria(server).await?)
    }

    /// Notes what the outcome of rows says: whether the server refuses the user, and whether it refuses releases.
    fn note(&self, then: &Then, ran: &Result<Replies, LockError>) {
        let has_ended = |reply: &Result<Reply, LockError>| {
            reply.as_ref().is_ok_and(|reply| reply.is_applied != Some(false))
        };
        let mut shown = lock(&self.shown);
        match (then, ran) {
            (Then::Claim { .. } | Then::Renew { .. }, Ok(_)) => shown.refusal = None,
            (Then::Claim { .. } | Then::Renew { .. }, Err(error)) if error.meaning().is_refusal() => {
                shown.refusal = Some(error.clone());
            }
            (Then::End { .. }, Ok(Ok(replies))) if !replies.iter().any(has_ended) => {}
            (Then::End { .. }, Ok(_)) => shown.refused_release = None,
            // A refusal of the user is that of acquires and renewals, too.
            (Then::End { .. }, Err(error)) if error.meaning().is_final() => {
                shown.refused_release = Some(error.clone());
            }
            _ => {}
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
    pub(super) async fn write(&self, command: Document, limit: Duration) -> mongodb::error::Result<Document> {
        let reply = reply::outcome(self.run_write(command, limit).await)?;
        self.note_confirmed();
        Ok(reply)
    }

    /// The same, except that the reply with `ok: 1` may have errors. With less than a majority a failover can restore a state in
    /// which the lock is free.
    fn run_write(
        &self,
        mut command: Document,
        limit: Duration,
    ) -> impl Future<Output = mongodb::error::Result<Document>> {
        command.insert("writeConcern", doc! { "w": "majority" });
        self.run_command(command, limit)
    }

    /// Runs one command on the primary, whatever the connection string says, with this limit at the server. `run_command` takes no
    /// settings from the client; without a transaction number the server writes one record less, and a repetition is this library's
    /// own.
    async fn run_command(&self, mut command: Document, limit: Duration) -> mongodb::error::Result<Document> {
        // To the server 0 means no limit.
        command.insert("maxTimeMS", millis(limit).max(1));
        let database = self.database();
        let sending = database.run_command(command).selection_criteria(primary());
        driver_call(sending.into_future()).await
    }

    /// The documents in the reply to a command that reads, which has all of them in one batch.
    pub(super) async fn read(
        &self,
        command: Document,
        limit: Duration,
    ) -> mongodb::error::Result<impl Iterator<Item = Document>> {
        let mut reply = self.run_command(command, limit).await?;
        let cursor = reply.get_document_mut("cursor");
        let batch = cursor.and_then(|cursor| cursor.get_array_mut("firstBatch"));
        let batch = batch.map(std::mem::take).unwrap_or_default();
        Ok(batch.into_iter().filter_map(|found| match found {
            Bson::Document(document) => Some(document),
            _ => None,
        }))
    }

    /// Reads the documents of these locks with one query, in the order of their names. The read concern is `"local"` where the
    /// documents decide nothing, and `"majority"` where a failover could take back what they say.
    pub(super) async fn find(
        &self,
        looked: &Looked,
        part: Part<'_>,
        level: &str,
        limit: Duration,
    ) -> Result<Vec<(Name, Sight)>, LockError> {
        let mut filter = looked.query();
        if let Some(after) = part.after {
            filter = doc! { "$and": [{ "_id": { "$gt": after } }, filter] };
        }
        let command = doc! {
            "find": self.locks.name(),
            "filter": filter,
            "projection": by_server().fields(),
            "sort": { "_id": 1 },
            "limit": i64::from(part.most),
            "batchSize": i64::from(part.most),
            "singleBatch": true,
            "readConcern": { "level": level },
        };
        let found = self.read(command, limit).await?;
        let seen = |found: Document| Some((Arc::from(found.get_str("_id").ok()?), sight(&found)));
        Ok(found.filter_map(seen).collect())
    }

    pub(super) fn database(&self) -> Database {
        self.locks.client().database(&self.locks.namespace().db)
    }

    /// Notes that the server has confirmed a write.
    pub(super) fn note_confirmed(&self) {
        lock(&self.shown).confirmed = Some(Instant::now());
    }
}

/// The server of a command, whatever the connection string says.
pub(super) fn primary() -> SelectionCriteria {
    SelectionCriteria::ReadPreference(ReadPreference::Primary)
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
