//! The commands of the protocol, on MongoDB or in memory.

mod admin;
mod admission;
#[cfg(any(test, fuzzing))]
mod any_document;
mod change_stream;
mod connection;
pub(crate) mod driver_error;
mod filter;
mod gate;
mod home;
mod index_state;
mod info;
mod look;
mod mark;
mod memory;
mod mongo;
mod observation;
mod reachability;
pub(crate) mod reply;
mod several;
mod slots;
pub(crate) mod takeover;
mod transaction;
mod ttl_index;
mod waiters;
mod waiters_state;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mongodb::ClientSession;
use mongodb::bson::DateTime;
use tokio::time::Instant;

#[cfg(test)]
pub(crate) use admission::DEFAULT_POOL;
pub(crate) use admission::{Admission, AdmissionClass, Admissions};
#[cfg(fuzzing)]
pub(crate) use any_document::read_document;
pub(crate) use change_stream::{LockEvent, LockStream, StreamFilter};
pub(crate) use connection::{Connection, connect};
pub use filter::LockFilter;
pub(crate) use index_state::IndexCheck;
pub use index_state::IndexState;
pub(crate) use info::Page;
pub use info::{LockInfo, LockState, WaiterInfo};
pub(crate) use look::{RunningLease, RunningLeases};
pub(crate) use mark::{MarkReply, MarkRequest};
pub(crate) use memory::MemoryStore;
pub(crate) use mongo::{BackgroundClient, MongoStore, WAITERS_SUFFIX};
pub use observation::ClientObservation;
pub(crate) use reachability::Reachability;
pub(crate) use several::Claimed;
pub(crate) use slots::HeldSlots;
pub(crate) use waiters::ProviderMark;
pub(crate) use waiters::{Waiter, WaiterEntry, WaitersByName};
pub use waiters_state::WaitersState;

use crate::meter::CommandKind;
use crate::once::MarkEnd;
use crate::opaque::Opaque;
use crate::options::TtlOptions;
#[cfg(test)]
use crate::simulation::Link;
#[cfg(test)]
use crate::task::{with_reply_limit, within};
use crate::{FencingToken, LockError, slot};

/// What errors call an acquire request.
pub(crate) const ACQUIRE_REQUEST: &str = "acquire request";

/// The name of a lock and the id of one claim on it, as they stand in the document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LeaseId {
    pub(crate) name: Arc<str>,
    /// The id of the claim, `<owner>#<uuid>`: it is made for one acquisition and never used again. The names of a set have
    /// one id in common.
    pub(crate) lock_id: Arc<str>,
}

/// What an acquire request asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AcquireRequest {
    /// The time for which the lease lasts without a renewal.
    pub(crate) expiry: Duration,
    /// The number of fencing tokens to reserve, one for each hold; the document keeps the last of them.
    pub(crate) tokens: i64,
    /// How long after its end a lease that was not released still keeps the lock taken.
    pub(crate) takeover_margin: Duration,
    /// Whether the reply has to have the [`Dates`].
    pub(crate) wants_dates: bool,
}

/// What a reply says about time, by the server's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dates {
    /// The time of the command.
    pub(crate) now: DateTime,
    /// The beginning of the lease in the document.
    pub(crate) acquired_at: DateTime,
    /// The end of the lease in the document.
    pub(crate) expires_at: DateTime,
}

/// The server's reply to an acquire request.
#[derive(Debug)]
pub(crate) enum AcquireReply {
    /// The document has the claim's own id.
    Acquired {
        /// The greatest of the reserved tokens.
        last_token: FencingToken,
        /// The remaining time of the lease; `None` if the reply has none, because the driver has repeated the command
        /// and the server has replied from its log.
        remaining: Option<Duration>,
        /// Present if the request asked for it.
        dates: Option<Dates>,
    },
    /// The lease of another holder runs, or the margin after it.
    Held {
        /// The id of the claim that has the lock, empty during a minimum hold; `None` if the reply has none.
        holder: Option<Arc<str>>,
        /// The time since the beginning of the lease; `None` if the reply has none.
        held_for: Option<Duration>,
        /// The time until the lock is free, if it is neither renewed nor released; `None` if the reply has none.
        remaining: Option<Duration>,
        /// Present if the request asked for it and the reply names a holder.
        dates: Option<Dates>,
    },
}

/// Which of several claims were renewed.
#[derive(Debug)]
pub(crate) enum RenewReply {
    All,
    /// Only these claims have their locks.
    Only(HashSet<LeaseId>),
}

impl RenewReply {
    pub(crate) fn includes(&self, key: &LeaseId) -> bool {
        match self {
            Self::All => true,
            Self::Only(held) => held.contains(key),
        }
    }
}

/// What the statement that guards a commit does with the claim.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GuardChange {
    /// It keeps the claim.
    Keep,
    /// It renews the claim for this time.
    Renew(Duration),
    /// It replaces the claim by the mark that its work is done, or releases it if the period is over.
    Mark(MarkEnd),
}

/// The outcome of the statement that guards a commit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GuardOutcome {
    /// The transaction has changed the claim's document: no other client can change it until the transaction ends.
    Guarded,
    /// The claim no longer has the lock.
    Lost,
    /// The claim has the lock, but not in the snapshot of the transaction.
    NotVisible,
}

/// The server. Each method sends one command unless its comment says otherwise. A caller must not drop a future before
/// its end: the store itself gives up a command without a reply, when its outcome no longer depends on the reply.
pub(crate) enum Store {
    Mongo(Opaque<MongoStore>),
    Memory(Arc<MemoryStore>),
    #[cfg(test)]
    Simulated(Arc<Link>),
}

impl Store {
    /// Ends every command and stream at the end of a shutdown, and the client if no other provider uses it. After this
    /// only an operator's commands are sent.
    pub(crate) async fn close(&self) {
        if let Self::Mongo(store) = self {
            store.close().await;
        }
    }

    /// Whether the store was closed.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Self::Mongo(store) if store.gate.is_closed())
    }

    /// What admits the commands on the client of the calls: acquire requests, their copies, and releases.
    pub(crate) fn admissions(&self) -> &Arc<Admissions> {
        match self {
            Self::Mongo(store) => &store.admissions,
            Self::Memory(store) => &store.admissions,
            #[cfg(test)]
            Self::Simulated(link) => &link.admissions,
        }
    }

    /// What admits the commands on the client for background work: renewals, background releases, queries about locks, and
    /// the documents of waiters. It is the same as the other one unless the user has given a client for that.
    pub(crate) fn background_admissions(&self) -> &Arc<Admissions> {
        match self {
            Self::Mongo(store) => &store.background_admissions,
            Self::Memory(_) => self.admissions(),
            #[cfg(test)]
            Self::Simulated(_) => self.admissions(),
        }
    }

    /// Whether every command ends at once: then a request needs no task, because it cannot be cut off half-way.
    pub(crate) fn never_waits(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// Takes the lock if it is free. Repeating it with the same key is harmless.
    pub(crate) async fn claim(
        &self,
        key: &LeaseId,
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<AcquireReply, LockError> {
        match self {
            Self::Mongo(store) => {
                store
                    .gate
                    .run(CommandKind::Acquire, pin!(store.claim(key, request, limit)))
                    .await
            }
            Self::Memory(store) => Ok(store.claim(key, request)),
            #[cfg(test)]
            Self::Simulated(link) => with_reply_limit(link.claim(key, request, limit)).await,
        }
    }

    /// Takes those of these locks that are free: one command claims them, and a query finds out which of them the claims
    /// have, in the order of the keys. The keys have one id in common and different names. Repeating it with the same keys
    /// is harmless. An error of the query alone is the inner one.
    pub(crate) async fn claim_several(
        &self,
        keys: &[LeaseId],
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        match self {
            Self::Mongo(store) => {
                store
                    .gate
                    .run(
                        CommandKind::Acquire,
                        pin!(store.claim_several(keys, request, limit)),
                    )
                    .await
            }
            Self::Memory(store) => Ok(Ok(store.claim_several(keys, request))),
            #[cfg(test)]
            Self::Simulated(link) => with_reply_limit(link.claim_several(keys, request, limit))
                .await
                .map(Ok),
        }
    }

    /// The error of a request without a reply, with what the driver has said about its connections.
    pub(crate) fn unanswered(&self, request: &str, waited: Duration) -> LockError {
        match self {
            Self::Mongo(store) => store.servers.unanswered(request, waited).into_error(),
            Self::Memory(_) => LockError::no_reply(request, waited),
            #[cfg(test)]
            Self::Simulated(_) => LockError::no_reply(request, waited),
        }
    }

    /// Whether a primary replies; `false` if only another member of a replica set does.
    pub(crate) async fn hello(&self) -> Result<bool, LockError> {
        match self {
            Self::Mongo(store) => {
                store
                    .gate
                    .run_always(CommandKind::Hello, pin!(store.hello()))
                    .await
            }
            Self::Memory(_) => Ok(true),
            #[cfg(test)]
            Self::Simulated(_) => Ok(true),
        }
    }

    /// The refusal of the last acquire or renewal, for a missing right or a wrong password; `None` if it was not refused.
    pub(crate) fn refusal(&self) -> Option<LockError> {
        match self {
            Self::Mongo(store) => store.refusal(),
            Self::Memory(_) => None,
            #[cfg(test)]
            Self::Simulated(_) => None,
        }
    }

    /// Finds out whether the server still refuses acquires, if it has refused the last acquire or renewal.
    pub(crate) async fn ask_again(&self) {
        if let Self::Mongo(store) = self
            && store.refusal().is_some()
        {
            let asking = pin!(store.ask_again());
            // The store notes the outcome.
            let _ = store.gate.run(CommandKind::Acquire, asking).await;
        }
    }

    /// Whether a request may have taken effect: before the first connection of a client none has.
    pub(crate) fn has_been_connected(&self) -> bool {
        match self {
            Self::Mongo(store) => store.servers.has_been_ready(),
            Self::Memory(_) => true,
            #[cfg(test)]
            Self::Simulated(_) => true,
        }
    }

    /// The time at which the server last confirmed a write; `None` without a server.
    pub(crate) fn last_confirmed(&self) -> Option<Instant> {
        match self {
            Self::Mongo(store) => store.last_confirmed(),
            Self::Memory(_) => None,
            #[cfg(test)]
            Self::Simulated(_) => None,
        }
    }

    /// Renews these claims, each for its expiry. If not all of them have their locks, a second command finds out which do.
    pub(crate) async fn renew(
        &self,
        claims: &[(LeaseId, Duration)],
        limit: Duration,
    ) -> Result<RenewReply, LockError> {
        match self {
            Self::Mongo(store) => {
                let renewing = pin!(store.renew(claims, limit));
                store.gate.run_within(limit, CommandKind::Renew, renewing).await
            }
            Self::Memory(store) => Ok(store.renew(claims)),
            #[cfg(test)]
            Self::Simulated(link) => within(limit, link.renew(claims, limit)).await,
        }
    }

    /// Releases the claims of one hold; `false` if one of them does not have its lock. The server ends the command at the
    /// limit, also while another transaction blocks a document.
    pub(crate) async fn release(
        &self,
        keys: &[LeaseId],
        min_hold: Duration,
        limit: Duration,
    ) -> Result<bool, LockError> {
        let _admission = self.admissions().admit(AdmissionClass::Release).await;
        match self {
            Self::Mongo(store) => {
                let releasing = pin!(store.release(keys, min_hold, limit));
                store
                    .gate
                    .run_within(limit, CommandKind::Release, releasing)
                    .await
            }
            Self::Memory(store) => Ok(store.release_all(keys, min_hold)),
            #[cfg(test)]
            Self::Simulated(link) => within(limit, link.release(keys, min_hold, limit)).await,
        }
    }

    /// Replaces a claim by the mark that its work is done, or releases it if the period is over. Repeating it is harmless. The
    /// caller has the admission.
    pub(crate) async fn mark(&self, request: &MarkRequest, limit: Duration) -> Result<MarkReply, LockError> {
        match self {
            // It ends the hold, as a release does.
            Self::Mongo(store) => {
                store
                    .gate
                    .run(CommandKind::Release, pin!(store.mark(request, limit)))
                    .await
            }
            Self::Memory(store) => Ok(store.mark(request)),
            #[cfg(test)]
            Self::Simulated(link) => with_reply_limit(link.mark(request, limit)).await,
        }
    }

    /// Releases those of these claims that have their locks, in the background. The caller has the admission.
    pub(crate) async fn release_many(
        &self,
        keys: &[LeaseId],
        min_hold: Duration,
        limit: Duration,
    ) -> Result<(), LockError> {
        match self {
            Self::Mongo(store) => {
                let releasing = pin!(store.release_many(keys, min_hold, limit));
                store
                    .gate
                    .run_within(limit, CommandKind::Release, releasing)
                    .await
            }
            Self::Memory(store) => {
                store.release_all(keys, min_hold);
                Ok(())
            }
            #[cfg(test)]
            Self::Simulated(link) => within(limit, link.release_many(keys, min_hold, limit)).await,
        }
    }

    /// Guards a commit: it changes the document of this claim within the session's transaction. If that fails, a second command finds the reason.
    pub(crate) async fn guard(
        &self,
        key: &LeaseId,
        change: GuardChange,
        session: &mut ClientSession,
    ) -> Result<GuardOutcome, LockError> {
        if let Self::Mongo(store) = self {
            let guarding = pin!(store.guard(key, change, session));
            return store.gate.count(CommandKind::Commit, guarding).await;
        }
        Err(LockError::NoTransaction {
            name: slot::shown(&key.name).to_owned(),
            reason: "the lock is in memory, and only MongoDB has transactions".to_owned(),
        })
    }

    /// Checks the index that removes the documents of unused locks, and creates it if it is missing. It sends several
    /// commands, none of which can delay those of others by more than a second.
    pub(crate) async fn ensure_index(&self, wanted: TtlOptions) -> IndexCheck {
        match self {
            Self::Mongo(store) => {
                let checking = async { Ok(store.ensure_index(wanted).await) };
                let checked = store.gate.run_always(CommandKind::Index, pin!(checking)).await;
                checked.unwrap_or_else(|error| IndexState::unknown(&error).into())
            }
            Self::Memory(_) => IndexState::Ready.into(),
            #[cfg(test)]
            Self::Simulated(link) => link.ensure_index().await.into(),
        }
    }

    /// Reads the state of that index. It sends two commands that read.
    pub(crate) async fn inspect_index(&self, wanted: TtlOptions) -> IndexState {
        match self {
            Self::Mongo(store) => {
                let reading = async { Ok(store.inspect_index(wanted).await) };
                let read = store.gate.run_always(CommandKind::Index, pin!(reading)).await;
                read.unwrap_or_else(|error| IndexState::unknown(&error))
            }
            Self::Memory(_) => IndexState::Ready,
            #[cfg(test)]
            Self::Simulated(link) => link.ensure_index().await,
        }
    }

    /// A page of the locks that meet the filter: the first ones after this name, in the order of their names.
    pub(crate) async fn page(
        &self,
        filter: &LockFilter,
        after: Option<&str>,
        takeover_margin: Duration,
    ) -> Result<Page, LockError> {
        match self {
            Self::Mongo(store) => {
                let asking = pin!(store.page(filter, after, takeover_margin));
                store.gate.run_always(CommandKind::Admin, asking).await
            }
            Self::Memory(store) => Ok(store.page(filter, takeover_margin)),
            #[cfg(test)]
            Self::Simulated(link) => Ok(link.memory().page(filter, takeover_margin)),
        }
    }

    pub(crate) async fn get(
        &self,
        name: &str,
        takeover_margin: Duration,
    ) -> Result<Option<LockInfo>, LockError> {
        match self {
            Self::Mongo(store) => {
                let asking = pin!(store.get(name, takeover_margin));
                store.gate.run_always(CommandKind::Admin, asking).await
            }
            Self::Memory(store) => Ok(store.get(name, takeover_margin)),
            #[cfg(test)]
            Self::Simulated(link) => Ok(link.memory().get(name, takeover_margin)),
        }
    }

    /// Frees a lock that is not free, if the document has the given token; `false` if there was nothing to free.
    pub(crate) async fn force_release(
        &self,
        name: &str,
        only_if: Option<FencingToken>,
        takeover_margin: Duration,
    ) -> Result<bool, LockError> {
        match self {
            Self::Mongo(store) => {
                let asking = pin!(store.force_release(name, only_if, takeover_margin));
                store.gate.run_always(CommandKind::Admin, asking).await
            }
            Self::Memory(store) => Ok(store.force_release(name, only_if, takeover_margin)),
            #[cfg(test)]
            Self::Simulated(link) => Ok(link.memory().force_release(name, only_if, takeover_margin)),
        }
    }

    /// Frees the locks of this owner that are not free, and returns their number.
    pub(crate) async fn release_owner(
        &self,
        owner: &str,
        takeover_margin: Duration,
    ) -> Result<u64, LockError> {
        match self {
            Self::Mongo(store) => {
                let asking = pin!(store.release_owner(owner, takeover_margin));
                store.gate.run_always(CommandKind::Admin, asking).await
            }
            Self::Memory(store) => Ok(store.release_owner(owner, takeover_margin)),
            #[cfg(test)]
            Self::Simulated(link) => Ok(link.memory().release_owner(owner, takeover_margin)),
        }
    }

    /// Looks which of these locks are held, with one query that changes nothing. The caller has the admission, and may drop
    /// the future: nothing depends on the reply.
    pub(crate) async fn look(
        &self,
        names: &[Arc<str>],
        takeover_margin: Duration,
        limit: Duration,
    ) -> Result<RunningLeases, LockError> {
        match self {
            Self::Mongo(store) => {
                let looking = pin!(store.look(names, takeover_margin, limit));
                store.gate.run_within(limit, CommandKind::Look, looking).await
            }
            Self::Memory(store) => Ok(store.look(names, takeover_margin)),
            #[cfg(test)]
            Self::Simulated(link) => within(limit, link.look(names, takeover_margin, limit)).await,
        }
    }

    /// Looks at all permits of a semaphore, also at those beyond this number. The reply is only a hint, as that to a look. The
    /// caller has the admission.
    pub(crate) async fn slots(
        &self,
        semaphore: &str,
        permits: u32,
        takeover_margin: Duration,
        limit: Duration,
    ) -> Result<HeldSlots, LockError> {
        // Only the simulation has no query over all permits.
        let _ = permits;
        match self {
            Self::Mongo(store) => {
                let looking = pin!(store.slots(semaphore, takeover_margin, limit));
                store.gate.run_within(limit, CommandKind::Look, looking).await
            }
            Self::Memory(store) => Ok(store.slots(semaphore, takeover_margin)),
            #[cfg(test)]
            Self::Simulated(link) => {
                let looking = link.slots(semaphore, permits, takeover_margin, limit);
                within(limit, looking).await
            }
        }
    }

    /// Opens the stream of the releases and deletions of these locks.
    pub(crate) async fn watch(&self, filter: StreamFilter) -> Result<LockStream, LockError> {
        match self {
            Self::Mongo(store) => store.watch(filter).await,
            Self::Memory(store) => Ok(store.watch(filter)),
            #[cfg(test)]
            Self::Simulated(link) => {
                let hints = link.watch().await?;
                Ok(LockStream::simulated(hints, filter))
            }
        }
    }
}
