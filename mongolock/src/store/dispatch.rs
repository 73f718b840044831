//! Sends each command to the store of the provider: MongoDB, memory, or the server of the simulation.

use std::pin::pin;
use std::time::Duration;

use mongodb::ClientSession;
use mongodb::bson::DateTime;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{
    Begin, GuardChange, GuardOutcome, IndexState, LeaseId, LockFilter, LockStream, MongoStore, Store,
    StreamReader,
};
use crate::error::failure::Failure;
use crate::error::meaning::Meaning;
use crate::meter::CommandKind;
use crate::protocol::Name;
use crate::sync::lock;
use crate::{LockError, permit_id};

impl Store {
    /// The store on a server; `None` in memory and in the simulation.
    pub(super) fn mongo(&self) -> Option<&MongoStore> {
        match self {
            Self::Mongo(store) => Some(store),
            Self::Memory(_) => None,
            #[cfg(test)]
            Self::Simulated(_) => None,
        }
    }

    /// Ends every command and stream at the end of a shutdown, and the client if no other provider uses it. After this
    /// only an operator's commands are sent.
    pub(crate) async fn close(&self) {
        if let Some(store) = self.mongo() {
            store.close().await;
        }
    }

    /// The error of every call, if the store cannot have locks.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        self.mongo().map_or(Ok(()), |store| store.gate.check())
    }

    /// Whether every command ends at once: then a request needs no task, because it cannot be interrupted.
    pub(crate) fn never_waits(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// Whether a provider uses tokio's clock, which a test can pause.
    pub(crate) fn has_clock_of_tokio(&self) -> bool {
        self.mongo().is_none()
    }

    /// The error of a request without a reply.
    pub(crate) fn no_reply(&self, request: &str, waited: Duration) -> LockError {
        if self.overloaded_for().is_some() {
            return Failure::overloaded(request, waited);
        }
        LockError::no_reply(request, waited)
    }

    /// [`Self::no_reply`] for a call that ends with this error, with the driver's reports about its connections.
    pub(crate) fn unanswered(&self, request: &str, waited: Duration) -> LockError {
        match self.mongo() {
            Some(store) if self.overloaded_for().is_none() => store.servers.unanswered(request, waited),
            _ => self.no_reply(request, waited),
        }
    }

    /// Whether a primary replies; `false` if only another member of a replica set does.
    pub(crate) async fn hello(&self) -> Result<bool, LockError> {
        let Some(store) = self.mongo() else {
            return Ok(true);
        };
        let asking = pin!(store.hello());
        store.gate.run(CommandKind::Hello, asking).await
    }

    /// Why the last release was refused for good; `None` after one that has ended a claim.
    pub(crate) fn refused_release(&self) -> Option<LockError> {
        lock(&self.mongo()?.shown).refused_release.clone()
    }

    /// The refusal of the last acquire or renewal, for a missing right or a wrong password, or of every call; `None` if it was
    /// not refused.
    pub(crate) fn refusal(&self) -> Option<LockError> {
        let store = self.mongo()?;
        let of_every_call = store.gate.check().err();
        of_every_call.or_else(|| lock(&store.shown).refusal.clone())
    }

    /// Finds out whether the server still refuses acquires, if it has refused the last acquire or renewal.
    pub(crate) async fn ask_again(&self) {
        if let Some(store) = self.mongo()
            && self.refusal().is_some()
        {
            let asking = pin!(store.ask_again());
            // The store notes the outcome.
            let _ = store.gate.run(CommandKind::Acquire, asking).await;
        }
    }

    /// Whether a request may have taken effect: none has before the first connection of the client.
    pub(crate) fn has_been_connected(&self) -> bool {
        self.mongo().is_none_or(|store| store.servers.has_been_used())
    }

    /// The time at which the server last confirmed a write; `None` without a server.
    pub(crate) fn last_confirmed(&self) -> Option<Instant> {
        lock(&self.mongo()?.shown).confirmed
    }

    /// The time for which the server has rejected commands of this client for overload; `None` if it has not rejected
    /// any recently.
    pub(crate) fn overloaded_for(&self) -> Option<Duration> {
        self.mongo()?.servers.overload.duration()
    }

    /// Notes the result of a command, which shows the state of the server.
    pub(crate) fn note<T>(&self, outcome: &Result<T, LockError>) {
        if let Some(store) = self.mongo() {
            store.servers.overload.note(outcome);
        }
    }

    /// The text in handles that identifies the locks of this store.
    pub(crate) fn home(&self) -> String {
        match self {
            Self::Mongo(store) => store.locks.namespace().to_string(),
            Self::Memory(store) => store.id.clone(),
            #[cfg(test)]
            Self::Simulated(link) => link.memory().id.clone(),
        }
    }

    /// Whether the store has transactions, which could have a guarding statement.
    pub(crate) fn has_transactions(&self) -> bool {
        self.mongo().is_some()
    }

    /// Guards a commit: it changes the documents of these claims, those of one lease, within the session's transaction. If
    /// that fails, a second command finds the reason.
    pub(crate) async fn guard(
        &self,
        keys: &[LeaseId],
        change: GuardChange,
        session: &mut ClientSession,
    ) -> Result<GuardOutcome, LockError> {
        let Some(store) = self.mongo() else {
            return Err(LockError::NoTransaction {
                name: permit_id::shown(&keys[0].name).to_owned(),
                reason: "the lock is in memory, and only MongoDB has transactions".to_owned(),
            });
        };
        let guarding = pin!(store.guard(keys, change, session));
        let outcome = store.gate.run(CommandKind::Commit, guarding).await;
        self.note(&outcome);
        outcome
    }

    /// Begins the transaction of the session at the server, without a change.
    pub(crate) async fn begin_transaction(&self, session: &mut ClientSession) -> mongodb::error::Result<()> {
        match self.mongo() {
            Some(store) => store.begin_transaction(session).await.map(drop),
            None => Ok(()),
        }
    }

    /// The state of the TTL index, which is created first if it is missing and `creates` is true. It sends several
    /// commands, none of which can delay those of others by more than a second.
    pub(crate) async fn index(&self, retention: Duration, creates: bool) -> Result<IndexState, LockError> {
        let Some(store) = self.mongo() else {
            return Ok(IndexState::Ready);
        };
        let checking = pin!(store.index(retention, creates));
        store.gate.run(CommandKind::Index, checking).await
    }

    /// The state of the index at its last check; `None` before that, and since a stream has told that the collection was dropped or
    /// renamed.
    pub(crate) fn index_watch(&self) -> watch::Sender<Option<IndexState>> {
        let mongo = self.mongo();
        mongo.map_or_else(watch::Sender::default, |store| store.index.clone())
    }

    /// The time of the server's clock.
    pub(crate) async fn server_time(&self) -> Result<DateTime, LockError> {
        match self {
            Self::Mongo(store) => {
                let asking = pin!(store.server_time());
                store.gate.run(CommandKind::Admin, asking).await
            }
            Self::Memory(store) => Ok(store.server_time()),
            #[cfg(test)]
            Self::Simulated(link) => Ok(link.memory().server_time()),
        }
    }

    /// Opens a stream of the changes of documents, for operators.
    pub(crate) async fn changes(&self, filter: &LockFilter, begin: Begin) -> Result<StreamReader, LockError> {
        match self.mongo() {
            Some(store) => store.changes(filter, begin).await,
            None => Err(Meaning::NoStreams.error()),
        }
    }

    /// Opens the stream of the acquisitions, releases and deletions of these locks; without names it reports all.
    pub(crate) async fn watch(&self, names: Option<&[Name]>) -> Result<LockStream, LockError> {
        match self {
            Self::Mongo(store) => store.watch(names).await,
            Self::Memory(store) => Ok(store.watch()),
            #[cfg(test)]
            Self::Simulated(link) => link.watch(names).await,
        }
    }
}
