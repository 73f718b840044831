use std::sync::Arc;

use super::Lease;
use super::release;
use super::renewer::Renewer;
use crate::LockError;

/// A lease and the duty to release it: dropping it releases in the background.
pub(crate) struct Hold {
    lease: Arc<Lease>,
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
        let begun = release::begin(&self.renewer, &self.lease);
        // This is set after the release has begun: without a runtime that panics, and dropping the hold releases the lock.
        self.is_released = true;
        release::finish(&self.lease, begun).await
    }

    /// The limit of pending releases.
    #[cfg(test)]
    pub(crate) fn unawaited(&self) -> &Arc<tokio::sync::Semaphore> {
        &self.renewer.unawaited
    }

    /// Releases the lock without waiting for the server's reply; `None` if too many such releases are pending. An error
    /// says that the lease had ended before.
    pub(crate) fn release_unawaited(&mut self) -> Option<Result<(), LockError>> {
        let permit = Arc::clone(&self.renewer.unawaited).try_acquire_owned().ok()?;
        let released = release::unawaited(&self.renewer, &self.lease, permit);
        self.is_released = true;
        Some(released)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_released {
            release::in_background(&self.renewer, &self.lease);
        }
    }
}
