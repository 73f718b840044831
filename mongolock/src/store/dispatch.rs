//! Sends each command to the store of the provider: MongoDB, memory, or the server of the simulation.

use std::pin::pin;
use std::time::Duration;

use mongodb::ClientSession;
use mongodb::bson::DateTime;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{
    Begin, DocumentStream, GuardChange, GuardOutcome, IndexState, LeaseId, LockFilter, LockStream,
    MongoStore, Selected, Store, StreamFilter,
};
use crate::error::failure::Failure;
use crate::error::meaning::Meaning;
use crate::meter::CommandKind;
use crate::protocol::{Name, Sight};
use crate::{LockError, permit_id};

/// Sends an operator's command, which may be sent after a shutdown and has no faults in the simulation. The method of a
/// store has the name and the arguments of the command.
macro_rules! send {
    ($store:ident, $command:ident($($value:expr),*)) => {
        match $store {
            // The command is pinned here, because each function that takes it by value would double its size.
            Self::Mongo(store) => {
                let command = pin!(store.$command($($value),*));
                store.gate.run(CommandKind::Admin, command).await
            }
            Self::Memory(store) => Ok(store.$command($($value),*)),
            #[cfg(test)]
            Self::Simulated(link) => Ok(link.memory().$command($($value),*)),
        }
    };
}

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
            return Failure::overloaded(request, waited).into_error();
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
        self.mongo()?.refused_release()
    }

    /// The refusal of the last acquire or renewal, for a missing right or a wrong password, or of every call; `None` if it was
    /// not refused.
    pub(crate) fn refusal(&self) -> Option<LockError> {
        self.mongo()?.refusal()
    }

    /// Finds out whether the server still refuses acquires, if it has refused the last acquire or renewal.
    pub(crate) async fn ask_again(&self) {
        if let Some(store) = self.mongo()
            && store.refusal().is_some()
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
        self.mongo()?.last_confirmed()
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
        let outcome = store.gate.count(CommandKind::Commit, guarding).await;
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

    /// How often the collection was dropped or renamed, as reported by the streams.
    pub(crate) fn collection_ends(&self) -> watch::Sender<u64> {
        self.mongo()
            .map_or_else(|| watch::Sender::new(0), |store| store.ends.clone())
    }

    /// Reads documents for operators: a page of those after this name, with this number at most, and the last name if
    /// others follow it.
    pub(super) async fn select(
        &self,
        selected: Selected<'_>,
        after: Option<&str>,
        limit: Option<u32>,
    ) -> Result<(Vec<(Name, Sight)>, Option<Name>), LockError> {
        send!(self, select(selected, after, limit))
    }

    /// The time of the server's clock.
    pub(crate) async fn server_time(&self) -> Result<DateTime, LockError> {
        send!(self, server_time())
    }

    /// Opens a stream of the changes of documents, for operators.
    pub(crate) async fn document_changes(
        &self,
        filter: &LockFilter,
        begin: Begin,
        ends_at_present: bool,
    ) -> Result<DocumentStream, LockError> {
        match self.mongo() {
            Some(store) => store.document_changes(filter, begin, ends_at_present).await,
            None => Err(Meaning::NoStreams.error()),
        }
    }

    /// Opens the stream of the acquisitions, releases and deletions of these locks.
    pub(crate) async fn watch(&self, filter: StreamFilter) -> Result<LockStream, LockError> {
        match self {
            Self::Mongo(store) => store.watch(filter).await,
            Self::Memory(store) => Ok(store.watch(filter)),
            #[cfg(test)]
            Self::Simulated(link) => link.watch(filter).await,
        }
    }
}
