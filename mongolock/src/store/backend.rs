//! The store of a provider, and what it tells of itself.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;

use super::memory::MemoryStore;
use super::mongo::{MongoStore, Shown};
use crate::LockError;
use crate::error::meaning::OwnFailure;
use crate::meter::CommandKind;
use crate::opaque::Opaque;
#[cfg(test)]
use crate::simulation::Link;
use crate::sync::lock;

/// What runs the commands: MongoDB, the memory of this process, or a simulation. Each method sends one command unless
/// its comment says otherwise. A caller must not drop a future before it ends: the store itself gives up a command
/// without a reply, when no result depends on that reply any more.
pub(crate) enum Store {
    Mongo(Opaque<MongoStore>),
    Memory(Arc<MemoryStore>),
    #[cfg(test)]
    Simulated(Arc<Link>),
}

/// The number of connections of a client's pool if its options set none, or are not known.
const DEFAULT_POOL: u32 = 10;

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

    /// Whether the locks are on a server, which has transactions. Without one a provider uses tokio's clock, which a
    /// test can pause.
    pub(crate) fn is_on_server(&self) -> bool {
        self.mongo().is_some()
    }

    /// Whether every command ends at once: then a request needs no task, because it cannot be interrupted.
    pub(crate) fn never_waits(&self) -> bool {
        matches!(self, Self::Memory(_))
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

    /// The size of the client's pool of connections; that of a store in memory has no meaning.
    pub(crate) fn pool(&self) -> usize {
        let pool = self.mongo().and_then(|store| store.servers.pool);
        pool.unwrap_or(DEFAULT_POOL) as usize
    }

    /// Ends every command and stream at the end of a shutdown, and the client if no other provider uses it. After this
    /// only an operator's commands are sent.
    pub(crate) async fn close(&self) {
        if let Some(store) = self.mongo() {
            store.close().await;
        }
    }

    /// Whether a primary replies, and the time of its clock; `false` if only another member of a replica set does.
    pub(crate) async fn hello(&self) -> Result<(bool, DateTime), LockError> {
        match self {
            Self::Mongo(store) => {
                let asking = pin!(store.hello());
                store.pass(CommandKind::Hello, asking).await
            }
            Self::Memory(store) => Ok((true, DateTime::from_millis(store.now()))),
            #[cfg(test)]
            Self::Simulated(link) => Ok((true, DateTime::from_millis(link.memory().now()))),
        }
    }

    /// The error of every call, if the store cannot have locks.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        self.mongo().map_or(Ok(()), MongoStore::check)
    }

    /// What the outcomes of commands have shown last. The refusal can also be that of every call.
    pub(crate) fn shown(&self) -> Shown {
        let shown = self.mongo().map(|store| lock(&store.shown).clone());
        let shown = shown.unwrap_or_default();
        Shown {
            refusal: self.check().err().or(shown.refusal),
            ..shown
        }
    }

    /// Whether a request may have taken effect: none has before the first connection of the client.
    pub(crate) fn has_been_connected(&self) -> bool {
        self.mongo().is_none_or(|store| store.servers.has_been_used())
    }

    /// The time for which the server has rejected commands of this client for overload; `None` if it has not rejected
    /// any recently.
    pub(crate) fn overloaded_for(&self) -> Option<Duration> {
        self.mongo()?.servers.overload.duration()
    }

    /// Notes the result of a command on a session, which shows the state of the server.
    pub(crate) fn note<T>(&self, outcome: &Result<T, LockError>) {
        if let Some(store) = self.mongo() {
            store.servers.overload.note(outcome);
        }
    }

    /// The error of a request without a reply.
    pub(crate) fn no_reply(&self, request: &str, waited: Duration) -> LockError {
        match self.overloaded_for() {
            Some(_) => OwnFailure::overloaded(request, waited),
            None => LockError::no_reply(request, waited),
        }
    }

    /// [`Self::no_reply`] for a call that ends with this error, with the driver's reports about its connections.
    pub(crate) fn unanswered(&self, request: &str, waited: Duration) -> LockError {
        let store = self.mongo().filter(|_| self.overloaded_for().is_none());
        let known = store.and_then(|store| store.servers.failure());
        known.unwrap_or_else(|| self.no_reply(request, waited))
    }
}
