use std::fmt;
use std::time::Duration;

use crate::context::LockContext;
use crate::engine::Hold;
use crate::{LockError, LockGuard, permit_id};

/// A held permit of a [`Semaphore`](crate::Semaphore). Its lease is renewed in the background until the permit is released
/// or dropped.
///
/// [`release`](Self::release) waits for the server's confirmation and returns an error if the permit was not held to the
/// end. Dropping it also releases it, in the background; it may be dropped on any thread, inside or outside a runtime. If
/// the runtime ends before the release is sent, the lease expires on its own.
///
/// A permit has no fencing token; see [`Semaphore`](crate::Semaphore).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let permit = provider.semaphore("export", 5).await?;
/// assert!(permit.number() < 5);
/// permit.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the permit is held only while it lives: bind it to a named variable such as `_permit`, because `let _ = …` drops it and releases it at once"]
pub struct Permit(pub(crate) LockGuard);

impl From<Hold> for Permit {
    fn from(hold: Hold) -> Self {
        Self(hold.into())
    }
}

impl Permit {
    /// The semaphore's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.lease().name()
    }

    /// The number of this permit, from 0, as [`LockInfo::permit`](crate::LockInfo::permit) shows it and
    /// [`ForceRelease::permit`](crate::ForceRelease::permit) takes it.
    #[must_use]
    pub fn number(&self) -> u32 {
        permit_id::number(&self.0.lease().key().name).unwrap_or_default()
    }

    /// The context of this hold, for code that must notice the loss of the permit. It has no fencing token.
    #[must_use]
    pub fn context(&self) -> LockContext {
        self.0.context()
    }

    /// Whether the permit is no longer held: no renewal was confirmed in time, it was released by force or its document
    /// changed, or the provider was shut down.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Waits until the permit is lost. It returns when the lease ends by this process's own clock, at the latest.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub async fn lost(&self) {
        self.0.lost().await;
    }

    /// The time until the lease ends if it is not renewed again; zero once the permit is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Checks that the permit is still held, as [`LockGuard::ensure_held`] does.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lease is over.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        self.0.ensure_held()
    }

    /// Releases the permit and waits until the server confirms it.
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once the future was polled, the release is completed even if the future is dropped. Before that,
    /// dropping the future drops the permit, which releases it in the background.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled. The permit is then released in the background.
    pub async fn release(self) -> Result<(), LockError> {
        self.0.release().await
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("name", &self.name())
            .field("number", &self.number())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
