use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::context::LockContext;
use crate::lease::Lease;
use crate::lease::release;
use crate::trace::Loss;
use crate::{FencingToken, LockError};

/// A held lock. It is renewed in the background until it is released or dropped.
///
/// [`release`](Self::release) tells the server and says whether the lock was held to the end. Dropping the guard
/// releases as well, in the background: on any thread, with or without a runtime at hand. If the runtime ends before
/// that, the lease ends by itself after its expiry.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let guard = provider.lock("report:1").await?;
/// println!("{} is held with token {}", guard.name(), guard.fencing_token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockGuard {
    lease: Arc<Lease>,
    context: OnceLock<LockContext>,
    released: bool,
}

impl LockGuard {
    /// Has the lease renewed from now on; after a shutdown it is lost at once.
    pub(crate) fn new(lease: Arc<Lease>) -> Self {
        if !lease.engine.keeper.keep(Arc::clone(&lease)) {
            lease.lose(Loss::ShutDown);
        }
        Self {
            lease,
            context: OnceLock::new(),
            released: false,
        }
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.lease.key.name
    }

    /// The token of this hold, greater than those of all earlier holds of the lock.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.lease.token
    }

    /// A context of this hold, to hand to code that needs the token or has to notice a loss.
    #[must_use]
    pub fn context(&self) -> LockContext {
        self.context
            .get_or_init(|| LockContext::new(Arc::clone(&self.lease)))
            .clone()
    }

    /// Whether the lease is over: renewals were not confirmed in time, or somebody removed the claim.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lease.is_over()
    }

    /// Resolves when the lock is lost, at the latest when the lease ends by this process's own clock. Cancel safe.
    pub async fn lost(&self) {
        self.lease.until_over().await;
    }

    /// How long the lease lasts if it is not renewed again; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// Releases the lock and waits for the server's answer.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lease was over before, or somebody else had removed the claim: what was done under
    /// the lock may have met somebody else's work. [`LockError::Mongo`] if MongoDB did not confirm the release; it is
    /// repeated in the background while the lease lasts.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled, the release goes on if the future is dropped; before that, dropping it drops the
    /// guard.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled; the lock is released in the background then.
    pub async fn release(mut self) -> Result<(), LockError> {
        let begun = release::begin(&self.lease);
        // Only now: if there is no runtime to begin it on, dropping the guard takes care of the lock.
        self.released = true;
        release::finish(&self.lease, begun).await
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some(context) = self.context.get() {
            context.end();
        }
        if !self.released {
            release::in_background(&self.lease);
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("name", &self.name())
            .field("fencing_token", &self.fencing_token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
