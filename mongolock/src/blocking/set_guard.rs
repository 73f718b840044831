use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::worker::Worker;
use crate::{FencingToken, LockContext, LockError};

/// Several held locks of a [`blocking::LockProvider`](super::LockProvider), which have one lease. It is renewed in the
/// background until the guard is released or dropped.
///
/// ```
/// # fn main() -> Result<(), mongolock::LockError> {
/// let locks = mongolock::blocking::LockProvider::in_memory()?;
/// let guard = locks.lock_all(["account:7", "account:4"])?;
/// assert!(guard.names().eq(["account:4", "account:7"]));
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the locks are held only while their guard lives: bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases the locks at once"]
pub struct LockSetGuard {
    // The guard is dropped before the worker, whose drop ends the thread that releases the locks.
    guard: crate::LockSetGuard,
    worker: Arc<Worker>,
}

impl LockSetGuard {
    pub(super) fn new(guard: crate::LockSetGuard, worker: &Arc<Worker>) -> Self {
        Self {
            guard,
            worker: Arc::clone(worker),
        }
    }

    /// The names of the locks in their order, each once.
    pub fn names(&self) -> impl Iterator<Item = &str> + Send {
        self.guard.names()
    }

    /// The fencing token of this hold for one of its names; `None` for another name.
    #[must_use]
    pub fn fencing_token_of(&self, name: &str) -> Option<FencingToken> {
        self.guard.fencing_token_of(name)
    }

    /// The context of this hold, for code that needs the fencing tokens or must notice the loss of a lock.
    #[must_use]
    pub fn context(&self) -> LockContext {
        self.guard.context()
    }

    /// Whether one of the locks is no longer held.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// The time until the lease ends if it is not renewed again; zero once one of the locks is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Checks that all locks are still held. It sends nothing.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lease is over.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        self.guard.ensure_held()
    }

    /// Releases all locks and waits until the server confirms it.
    ///
    /// # Errors
    ///
    /// Those of [`LockSetGuard::release`](crate::LockSetGuard::release).
    pub fn release(self) -> Result<(), LockError> {
        let Self { guard, worker } = self;
        worker.wait(guard.release())?
    }
}

impl fmt::Debug for LockSetGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
