use std::sync::Arc;

use super::Lease;
use super::renewer::Renewer;
use super::{completion, release};
use crate::LockError;

/// A lease and the duty to release it: dropping it releases in the background.
pub(crate) struct Hold {
    pub(super) lease: Arc<Lease>,
    pub(super) renewer: Arc<Renewer>,
    pub(super) is_released: bool,
}

impl Hold {
    pub(super) fn new(lease: Arc<Lease>, renewer: Arc<Renewer>) -> Self {
        Self {
            lease,
            renewer,
            is_released: false,
        }
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Releases the lock and waits for the server's reply. Cancel safe: once polled, the release goes on.
    pub(crate) async fn release(&mut self) -> Result<(), LockError> {
        if self.lease.is_done() {
            self.is_released = true;
            return Ok(());
        }
        let begun = release::begin(&self.renewer, &self.lease);
        // This is set after the release has begun: without a runtime that panics, and dropping the hold releases the lock.
        self.is_released = true;
        release::finish(&self.lease, begun, "release").await
    }

    /// Ends a hold whose work has succeeded, and waits for the server's reply: the lock is marked as done if the work may
    /// succeed only once, and otherwise released. Cancel safe: once polled, the completion goes on.
    pub(crate) async fn complete(&mut self) -> Result<(), LockError> {
        let Some(once) = self.lease.once.filter(|_| !self.lease.is_done()) else {
            return self.release().await;
        };
        let begun = completion::begin(&self.renewer, &self.lease, once.mark_end);
        self.is_released = true;
        release::finish(&self.lease, begun, "mark").await
    }

    /// The limit of pending releases.
    #[cfg(test)]
    pub(crate) fn unawaited(&self) -> &Arc<tokio::sync::Semaphore> {
        &self.renewer.unawaited
    }

    /// Releases the lock without waiting for the server's reply; `None` if too many such releases are pending. An error
    /// says that the lease had ended before.
    pub(crate) fn release_unawaited(&mut self) -> Option<Result<(), LockError>> {
        if self.lease.is_done() {
            self.is_released = true;
            return Some(Ok(()));
        }
        let permit = Arc::clone(&self.renewer.unawaited).try_acquire_owned().ok()?;
        let released = release::unawaited(&self.renewer, &self.lease, permit);
        self.is_released = true;
        Some(released)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_released && !self.lease.is_done() {
            release::in_background(&self.renewer, &self.lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockProvider;

    #[tokio::test]
    async fn work_that_may_succeed_once_leaves_a_mark() {
        let lock = LockProvider::in_memory().lock("n").once();
        lock.acquire().await.unwrap().done().await.unwrap();
        let next = lock.acquire().await;
        assert!(matches!(next, Err(LockError::Done { .. })), "{:?}", next.err());
    }
}
