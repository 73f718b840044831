use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::worker::Worker;
use crate::{FencingToken, LockContext, LockError};

/// A held lock of a [`blocking::LockProvider`](super::LockProvider), or the held locks of a set, which have one lease. The
/// lease is renewed in the background until the guard is released or dropped.
///
/// [`release`](Self::release) waits for the server's confirmation; dropping the guard releases the lock in the background.
/// Bind it to a named variable such as `_guard`: `let _ = …` drops it at once.
///
/// ```
/// # fn main() -> Result<(), mongolock::LockError> {
/// let locks = mongolock::blocking::LockProvider::in_memory()?;
/// let guard = locks.lock("report:1")?;
/// println!("{} is held with token {}", guard.name(), guard.fencing_token());
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is held only while its guard lives: bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases the lock at once"]
pub struct LockGuard {
    // The guard is dropped before the worker, whose drop ends the thread that releases the lock.
    guard: crate::LockGuard,
    worker: Arc<Worker>,
}

impl LockGuard {
    pub(super) fn new(guard: crate::LockGuard, worker: &Arc<Worker>) -> Self {
        Self {
            guard,
            worker: Arc::clone(worker),
        }
    }

    /// The lock's name; of a set the name that the caller has written first.
    #[must_use]
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// The fencing token of this hold for [`name`](Self::name). It is greater than those of all earlier holds of that lock.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.guard.fencing_token()
    }

    /// The names of all locks of the guard in their order, each once: one name, unless it is the guard of a set.
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
    pub fn names(&self) -> impl Iterator<Item = &str> + Send {
        self.guard.names()
    }

    /// The fencing token of this hold for one of its names; `None` for another name.
    #[must_use]
    pub fn fencing_token_of(&self, name: &str) -> Option<FencingToken> {
        self.guard.fencing_token_of(name)
    }

    /// The context of this hold, for code that needs the fencing token or must notice the loss of the lock.
    #[must_use]
    pub fn context(&self) -> LockContext {
        self.guard.context()
    }

    /// Whether the lock is no longer held.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// The time until the lease ends if it is not renewed again; zero once the lock is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Checks that the lock is still held. Call it before a step that must not be taken without the lock. It sends nothing.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lease is over.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        self.guard.ensure_held()
    }

    /// Releases the lock and waits until the server confirms it.
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::release`](crate::LockGuard::release).
    pub fn release(self) -> Result<(), LockError> {
        let Self { guard, worker } = self;
        worker.wait(guard.release())?
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
