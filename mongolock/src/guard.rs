use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::context::LockContext;
use crate::engine::Engine;
use crate::lease::{Hold, Lease};
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
    // The hold is dropped before the engine, because the drop of the engine may stop the background task.
    hold: Hold,
    engine: Arc<Engine>,
    context: GuardContext,
}

impl LockGuard {
    pub(crate) fn new(hold: Hold, engine: &Arc<Engine>) -> Self {
        Self {
            hold,
            engine: Arc::clone(engine),
            context: GuardContext(OnceLock::new()),
        }
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.lease().key.name
    }

    /// The token of this hold, greater than those of all earlier holds of the lock.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.lease().token
    }

    /// A context of this hold, to hand to code that needs the token or has to notice a loss.
    #[must_use]
    pub fn context(&self) -> LockContext {
        self.context
            .0
            .get_or_init(|| LockContext::new(Arc::clone(self.lease()), &self.engine))
            .clone()
    }

    /// Whether the lease is over: renewals were not confirmed in time, or somebody removed the claim.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lease().is_over()
    }

    /// Resolves when the lock is lost, at the latest when the lease ends by this process's own clock. Cancel safe.
    pub async fn lost(&self) {
        self.lease().until_over().await;
    }

    /// How long the lease lasts if it is not renewed again; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease().remaining()
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
        self.end().await
    }

    /// [`release`](Self::release) by reference, so that the futures around it need no room for another guard.
    pub(crate) async fn end(&mut self) -> Result<(), LockError> {
        self.hold.release().await
    }

    /// Releases the lock without waiting for the server's reply, unless too many such releases are pending.
    pub(crate) async fn end_unawaited(&mut self) -> Result<(), LockError> {
        match self.hold.release_unawaited() {
            Some(released) => released,
            None => self.end().await,
        }
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        self.hold.lease()
    }
}

/// The context of a guard, made when it is first used; its call ends with the guard.
struct GuardContext(OnceLock<LockContext>);

impl Drop for GuardContext {
    fn drop(&mut self) {
        if let Some(context) = self.0.get() {
            context.end();
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{LockError, LockProvider};

    /// Beyond the limit of pending releases, a call waits for its own.
    #[tokio::test]
    async fn pending_releases_are_limited() {
        let lock = LockProvider::in_memory().lock("n").await_release(false);
        let mut guard = lock.acquire().await.unwrap();
        let pending = Arc::clone(guard.hold.unawaited());
        let limit = pending.available_permits();
        let all = Arc::clone(&pending)
            .acquire_many_owned(limit.try_into().unwrap())
            .await;
        assert!(guard.hold.release_unawaited().is_none(), "too many are pending");
        guard.end_unawaited().await.unwrap();
        drop(all);
        for _ in 0..2 * limit {
            lock.run(|_| async { Ok::<_, LockError>(()) }).await.unwrap();
        }
        assert_eq!(limit, 256);
        while pending.available_permits() < limit {
            tokio::task::yield_now().await;
        }
    }
}
