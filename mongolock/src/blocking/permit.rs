use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::worker::Worker;
use crate::{LockContext, LockError};

/// A held permit of a semaphore of a [`blocking::LockProvider`](super::LockProvider). Its lease is renewed in the background
/// until the permit is released or dropped. A permit has no fencing token; see [`Semaphore`](crate::Semaphore).
///
/// ```
/// # fn main() -> Result<(), mongolock::LockError> {
/// let locks = mongolock::blocking::LockProvider::in_memory()?;
/// let permit = locks.permit("export", 5)?;
/// assert!(permit.number() < 5);
/// permit.release()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the permit is held only while it lives: bind it to a named variable such as `_permit`, because `let _ = …` drops it and releases it at once"]
pub struct Permit {
    // The permit is dropped before the worker, whose drop ends the thread that releases the permit.
    permit: crate::Permit,
    worker: Arc<Worker>,
}

impl Permit {
    pub(super) fn new(permit: crate::Permit, worker: &Arc<Worker>) -> Self {
        Self {
            permit,
            worker: Arc::clone(worker),
        }
    }

    /// The semaphore's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.permit.name()
    }

    /// The number of this permit, from 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.permit.number()
    }

    /// The context of this hold, for code that must notice the loss of the permit. It has no fencing token.
    #[must_use]
    pub fn context(&self) -> LockContext {
        self.permit.context()
    }

    /// Whether the permit is no longer held.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.permit.is_lost()
    }

    /// The time until the lease ends if it is not renewed again; zero once the permit is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.permit.remaining()
    }

    /// Checks that the permit is still held. It sends nothing.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lease is over.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        self.permit.ensure_held()
    }

    /// Releases the permit and waits until the server confirms it.
    ///
    /// # Errors
    ///
    /// Those of [`Permit::release`](crate::Permit::release).
    pub fn release(self) -> Result<(), LockError> {
        let Self { permit, worker } = self;
        worker.wait(permit.release())?
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.permit.fmt(f)
    }
}
