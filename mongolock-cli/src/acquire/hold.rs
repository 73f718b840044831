//! The hold of a command: one lock, several locks, or a permit.

use std::time::Duration;

use mongolock::{Detach, Lock, LockContext, LockError, LockGuard, LockKind, LockProvider, Permit};

use crate::cli::WantedLocks;

/// The time limit of the single attempt of `--no-wait`, with the connection to the server. The library waits 2 s more
/// for a reply in flight.
const ATTEMPT: Duration = Duration::from_secs(3);

/// The hold of a command: one lock, several locks, or a permit.
pub(crate) struct CommandHold {
    /// Its tokens, its time and its end.
    pub(crate) context: LockContext,
    guard: AnyGuard,
}

/// The guard of a [`CommandHold`].
enum AnyGuard {
    /// One lock or several, and whether the work is done once in each period.
    Locks(LockGuard, bool),
    Permit(Permit),
}

impl CommandHold {
    pub(crate) fn locks(guard: LockGuard, is_once: bool) -> Self {
        Self {
            context: guard.context(),
            guard: AnyGuard::Locks(guard, is_once),
        }
    }

    pub(crate) fn permit(permit: Permit) -> Self {
        Self {
            context: permit.context(),
            guard: AnyGuard::Permit(permit),
        }
    }

    /// Acquires what is wanted, for work that may be done once in each period; `None` if others hold it and nothing was to be
    /// waited for.
    pub(super) async fn acquire(
        provider: &LockProvider,
        wanted: &WantedLocks,
        once_per: Option<Duration>,
    ) -> Result<Option<Self>, LockError> {
        match (wanted.names.as_slice(), wanted.permits) {
            ([name], Some(permits)) => {
                let permit = guard_of(provider.semaphore(name, permits), wanted).await?;
                Ok(permit.map(Self::permit))
            }
            ([name], None) => {
                let lock = provider.lock(name);
                let lock = once_per.map_or(lock.clone(), |period| lock.once_per(period));
                let guard = guard_of(lock, wanted).await?;
                Ok(guard.map(|guard| Self::locks(guard, once_per.is_some())))
            }
            (names, _) => {
                let guard = guard_of(provider.lock_all(names), wanted).await?;
                Ok(guard.map(|guard| Self::locks(guard, false)))
            }
        }
    }

    /// Whether success is marked, so that the work is done once in each period.
    pub(crate) fn is_once(&self) -> bool {
        matches!(self.guard, AnyGuard::Locks(_, true))
    }

    /// Ends the hold. The work of a period is marked as done if it has succeeded.
    pub(crate) async fn finish(self, has_succeeded: bool) -> Result<(), LockError> {
        match self.guard {
            AnyGuard::Locks(guard, true) if has_succeeded => guard.done().await,
            AnyGuard::Locks(guard, _) => guard.release().await,
            AnyGuard::Permit(permit) => permit.release().await,
        }
    }

    /// The request that detaches the lease for this time.
    pub(crate) fn detach(self, ttl: Duration) -> Detach {
        match self.guard {
            AnyGuard::Locks(guard, _) => guard.detach(ttl),
            AnyGuard::Permit(permit) => permit.detach(ttl),
        }
    }
}

/// One attempt, or a wait for as long as the user wants.
async fn guard_of<K: LockKind>(lock: Lock<K>, wanted: &WantedLocks) -> Result<Option<K::Guard>, LockError> {
    if wanted.no_wait {
        lock.acquire_timeout(ATTEMPT).try_acquire().await
    } else {
        lock.acquire_timeout(wanted.wait).acquire().await.map(Some)
    }
}
