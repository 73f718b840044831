//! Where the documents are: the commands of the protocol, on MongoDB or in memory.

mod admin;
mod change_stream;
pub(crate) mod driver_error;
mod filter;
mod index_state;
mod info;
mod memory;
mod mongo;
pub(crate) mod reply;
mod transaction;
mod ttl_index;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mongodb::ClientSession;

pub(crate) use change_stream::Releases;
pub use filter::LockFilter;
pub(crate) use index_state::IndexCheck;
pub use index_state::IndexState;
pub use info::{LockInfo, LockState};
pub(crate) use memory::MemoryStore;
pub(crate) use mongo::MongoStore;

#[cfg(test)]
use crate::simulation::Link;
use crate::task::with_reply_limit;
use crate::{FencingToken, LockError};

/// The name of a lock and the id of one claim on it, as they stand in the document.
#[derive(Debug, Clone)]
pub(crate) struct LeaseId {
    pub(crate) name: Arc<str>,
    /// `<owner>#<uuid>`: drawn for one acquisition, never used again.
    pub(crate) lock_id: Arc<str>,
}

/// What a claim asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AcquireRequest {
    pub(crate) expiry: Duration,
    /// How many tokens it needs, one for each hold; the document keeps the last of them.
    pub(crate) tokens: i64,
}

/// The server's answer to a claim.
#[derive(Debug)]
pub(crate) enum AcquireReply {
    /// The document has the claim's own id.
    Acquired {
        /// The greatest of the tokens asked for.
        last_token: FencingToken,
        /// How long the lease lasts; `None` if the server did not say, as a proxy in between may repeat a command and
        /// answer from the server's log.
        remaining: Option<Duration>,
    },
    /// Somebody else's lease runs, for as long as the server says.
    Held {
        /// The id of the claim that has the lock, empty during a minimum hold; `None` if the server did not say.
        holder: Option<Arc<str>>,
        remaining: Option<Duration>,
    },
}

/// Which of some claims stand at the server.
#[derive(Debug)]
pub(crate) enum RenewReply {
    All,
    Only(HashSet<Arc<str>>),
}

impl RenewReply {
    pub(crate) fn includes(&self, key: &LeaseId) -> bool {
        match self {
            Self::All => true,
            Self::Only(ids) => ids.contains(&key.lock_id),
        }
    }
}

/// What a transaction could do with a claim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GuardOutcome {
    /// It has changed the claim's document: nobody else can until it ends.
    Guarded,
    /// The claim does not stand any more.
    Lost,
    /// The claim stands, but not in what the transaction sees.
    NotVisible,
}

/// The server. Each call is one command but where it says more; none of the futures is to be dropped by a caller: a command without a reply is given up here,
/// when its outcome no longer depends on that.
pub(crate) enum Store {
    Mongo(MongoStore),
    Memory(Arc<MemoryStore>),
    #[cfg(test)]
    Simulated(Arc<Link>),
}

impl Store {
    /// Takes the lock if it is free. Repeating it with the same key is harmless.
    pub(crate) async fn claim(
        &self,
        key: &LeaseId,
        ask: AcquireRequest,
        limit: Duration,
    ) -> Result<AcquireReply, LockError> {
        match self {
            Self::Mongo(store) => with_reply_limit(store.claim(key, ask, limit)).await,
            Self::Memory(store) => Ok(store.claim(key, ask)),
            #[cfg(test)]
            Self::Simulated(link) => with_reply_limit(link.claim(key, ask, limit)).await,
        }
    }

    /// Renews all of these claims, and finds out with a second command which of them stand if not all do.
    pub(crate) async fn renew(
        &self,
        keys: &[LeaseId],
        expiry: Duration,
        limit: Duration,
    ) -> Result<RenewReply, LockError> {
        match self {
            Self::Mongo(store) => with_reply_limit(store.renew(keys, expiry, limit)).await,
            Self::Memory(store) => Ok(store.renew(keys, expiry)),
            #[cfg(test)]
            Self::Simulated(link) => with_reply_limit(link.renew(keys, expiry, limit)).await,
        }
    }

    /// Ends one claim; `false` when it does not stand. The server gives up after the limit, also if another has changed
    /// the document and does not commit.
    pub(crate) async fn release(
        &self,
        key: &LeaseId,
        min_hold: Duration,
        limit: Duration,
    ) -> Result<bool, LockError> {
        match self {
            Self::Mongo(store) => with_reply_limit(store.release(key, min_hold, limit)).await,
            Self::Memory(store) => Ok(store.release(key, min_hold)),
            #[cfg(test)]
            Self::Simulated(link) => with_reply_limit(link.release(key, min_hold, limit)).await,
        }
    }

    /// Ends those of these claims that stand.
    pub(crate) async fn release_many(
        &self,
        keys: &[LeaseId],
        min_hold: Duration,
        limit: Duration,
    ) -> Result<(), LockError> {
        match self {
            Self::Mongo(store) => with_reply_limit(store.release_many(keys, min_hold, limit)).await,
            Self::Memory(store) => {
                for key in keys {
                    store.release(key, min_hold);
                }
                Ok(())
            }
            #[cfg(test)]
            Self::Simulated(link) => with_reply_limit(link.release_many(keys, min_hold, limit)).await,
        }
    }

    /// Changes the document of this claim within the session's transaction, and renews it if an expiry is given. A
    /// second command looks for the reason if that fails.
    pub(crate) async fn touch(
        &self,
        key: &LeaseId,
        expiry: Option<Duration>,
        session: &mut ClientSession,
    ) -> Result<GuardOutcome, LockError> {
        if let Self::Mongo(store) = self {
            return store.touch(key, expiry, session).await;
        }
        Err(LockError::NoTransaction {
            name: key.name.to_string(),
            reason: "it is kept in memory, and only MongoDB has transactions; use a provider on a database"
                .to_owned(),
        })
    }

    /// Checks the index that removes the documents of unused locks, and creates it if it is missing: several commands,
    /// none of which can keep others waiting for more than a second.
    pub(crate) async fn ensure_index(&self, retention: Duration) -> IndexCheck {
        match self {
            Self::Mongo(store) => {
                let checked = with_reply_limit(async { Ok(store.ensure_index(retention).await) }).await;
                checked.unwrap_or_else(|error| IndexState::unknown(&error).into())
            }
            Self::Memory(_) => IndexState::Ready.into(),
            #[cfg(test)]
            Self::Simulated(link) => link.ensure_index().await.into(),
        }
    }

    /// The locks that meet the filter, in the order of their names.
    pub(crate) async fn list(&self, filter: &LockFilter) -> Result<Vec<LockInfo>, LockError> {
        match self {
            Self::Mongo(store) => with_reply_limit(store.list(filter)).await,
            Self::Memory(store) => Ok(store.list(filter)),
            #[cfg(test)]
            Self::Simulated(link) => Ok(link.memory().list(filter)),
        }
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Option<LockInfo>, LockError> {
        match self {
            Self::Mongo(store) => with_reply_limit(store.get(name)).await,
            Self::Memory(store) => Ok(store.get(name)),
            #[cfg(test)]
            Self::Simulated(link) => Ok(link.memory().get(name)),
        }
    }

    /// Ends the lease of whoever has it; `false` when none runs.
    pub(crate) async fn force_release(&self, name: &str) -> Result<bool, LockError> {
        match self {
            Self::Mongo(store) => with_reply_limit(store.force_release(name)).await,
            Self::Memory(store) => Ok(store.force_release(name)),
            #[cfg(test)]
            Self::Simulated(link) => Ok(link.memory().force_release(name)),
        }
    }

    /// Ends the leases that the owner holds, and says how many.
    pub(crate) async fn release_owner(&self, owner: &str) -> Result<u64, LockError> {
        match self {
            Self::Mongo(store) => with_reply_limit(store.release_owner(owner)).await,
            Self::Memory(store) => Ok(store.release_owner(owner)),
            #[cfg(test)]
            Self::Simulated(link) => Ok(link.memory().release_owner(owner)),
        }
    }

    /// Opens the stream of releases and deletions.
    pub(crate) async fn watch(&self) -> Result<Releases, LockError> {
        match self {
            Self::Mongo(store) => with_reply_limit(store.watch()).await,
            Self::Memory(store) => Ok(store.watch()),
            #[cfg(test)]
            Self::Simulated(link) => link.watch().await.map(Releases::Simulated),
        }
    }
}
