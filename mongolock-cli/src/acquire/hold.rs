//! The hold of a command: one lock, several locks, or a permit.

use std::time::Duration;

use mongolock::{Detach, FencingToken, LockError, LockGuard, LockProvider, Permit};

use crate::cli::Wanted;

/// The time limit of the single attempt of `--no-wait`, with the connection to the server. The library waits 2 s more
/// for a reply in flight.
const ATTEMPT: Duration = Duration::from_secs(3);

/// A hold of this process.
pub(crate) enum Hold {
    /// One lock or several, and whether the work is done once in each period.
    Locks(LockGuard, bool),
    Permit(Permit),
}

impl Hold {
    /// Acquires the locks, for work that may be done once in each period; `None` if others hold them and the call must
    /// not wait.
    pub(super) async fn acquire(
        provider: &LockProvider,
        wanted: &Wanted,
        once_per: Option<Duration>,
    ) -> Result<Option<Self>, LockError> {
        let wait = if wanted.no_wait { ATTEMPT } else { wanted.wait };
        if let ([name], Some(permits)) = (wanted.names.as_slice(), wanted.permits) {
            let semaphore = provider.semaphore(name, permits).acquire_timeout(wait);
            return if wanted.no_wait {
                Ok(semaphore.try_acquire().await?.map(Self::Permit))
            } else {
                semaphore.acquire().await.map(Self::Permit).map(Some)
            };
        }
        if let [name] = wanted.names.as_slice() {
            let mut lock = provider.lock(name).acquire_timeout(wait);
            if let Some(period) = once_per {
                lock = lock.once_per(period);
            }
            let guard = if wanted.no_wait {
                lock.try_acquire().await?
            } else {
                Some(lock.acquire().await?)
            };
            return Ok(guard.map(|guard| Self::Locks(guard, once_per.is_some())));
        }
        let set = provider.lock_all(&wanted.names).acquire_timeout(wait);
        let guard = if wanted.no_wait {
            set.try_acquire().await?
        } else {
            Some(set.acquire().await?)
        };
        Ok(guard.map(|guard| Self::Locks(guard, false)))
    }

    /// The owner in the documents of its locks; a permit needs none here.
    pub(crate) fn owner(&self) -> Option<String> {
        match self {
            Self::Locks(guard, _) => Some(guard.context().owner().to_owned()),
            Self::Permit(_) => None,
        }
    }

    /// The fencing token of a lock; `None` for a permit, which has none.
    pub(crate) fn token(&self, name: &str) -> Option<FencingToken> {
        match self {
            Self::Locks(guard, _) => guard.fencing_token_of(name),
            Self::Permit(_) => None,
        }
    }

    /// The time until the first of the leases ends; zero once one is lost.
    pub(crate) fn remaining(&self) -> Duration {
        match self {
            Self::Locks(guard, _) => guard.remaining(),
            Self::Permit(permit) => permit.remaining(),
        }
    }

    /// Waits until a lease is lost.
    pub(crate) async fn lost(&self) {
        match self {
            Self::Locks(guard, _) => guard.lost().await,
            Self::Permit(permit) => permit.lost().await,
        }
    }

    /// The error that says why a lease is lost.
    pub(crate) fn ensure_held(&self) -> Result<(), LockError> {
        match self {
            Self::Locks(guard, _) => guard.ensure_held(),
            Self::Permit(permit) => permit.ensure_held(),
        }
    }

    /// Whether success is marked, so that the work is done once in each period.
    pub(crate) fn is_once(&self) -> bool {
        matches!(self, Self::Locks(_, true))
    }

    /// Ends the hold. The work of a period is marked as done if it has succeeded.
    pub(crate) async fn finish(self, has_succeeded: bool) -> Result<(), LockError> {
        match self {
            Self::Locks(guard, true) if has_succeeded => guard.done().await,
            Self::Locks(guard, _) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
        }
    }

    /// The request that detaches the lease for this time.
    pub(crate) fn detach(self, ttl: Duration) -> Detach {
        match self {
            Self::Locks(guard, _) => guard.detach(ttl),
            Self::Permit(permit) => permit.detach(ttl),
        }
    }
}
