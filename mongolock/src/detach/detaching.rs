use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Hold, Lease};
use crate::guard::Guard;
use crate::handle::{Detached, secret};
use crate::options::{check_owner, check_ttl};
use crate::{LeaseHandle, LockError};

/// A hold that is detached when this is awaited; made by [`Guard::detach`].
///
/// ```
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let guard = provider.lock("document:42").await?;
/// let detaching = guard.detach(Duration::from_secs(30 * 60)).owner("session:8c0f");
/// let stored = detaching.handle(); // Stored first, so that a crash in the next step loses nothing.
/// let handle = detaching.await?;
/// assert_eq!(handle, stored);
/// assert_eq!(provider.admin().release_owner("session:8c0f").await?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is detached before it is awaited, and dropping it releases the lock"]
pub struct Detach {
    hold: Hold,
    handle: LeaseHandle,
}

impl<T> Guard<T> {
    /// Detaches the hold: the lease then lasts for this time (100 ms to 7 days, in whole milliseconds) without this process, and
    /// a program that has the [handle](crate::LeaseHandle) can [resume](crate::LockProvider::resume)
    /// (a permit: [`resume_permit`](crate::LockProvider::resume_permit)),
    /// [extend](crate::LockProvider::extend) or [release](crate::LockProvider::release) it in any process. Await the result.
    ///
    /// Use it where one piece of work spans several requests or programs, such as a document that a user edits in a browser. The
    /// guide's page on [web services](crate::guide::web_service#editing-sessions) shows it.
    ///
    /// The time counts from the server's clock at the request. It may be shorter than the rest of the present lease, and longer
    /// than `max_hold`; a [`min_hold`](crate::DistributedLock::min_hold) is kept. For this process the hold ends as at a release:
    /// its contexts report the loss, and the next caller of this process that waits for the lock asks the server. Nothing is
    /// handed over.
    ///
    /// It is one command. For a set a query follows if not all locks were found as they should be.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let guard = provider.lock("document:42").await?;
    /// let handle = guard.detach(Duration::from_secs(30 * 60)).await?;
    /// assert!(provider.lock("document:42").try_acquire().await?.is_none(), "the lock is held");
    /// assert!(provider.release(&handle).await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`LockError::InvalidOption`] if the time or the [owner](crate::Detach::owner) breaks a rule: the lock is released in the
    ///   background.
    /// - [`LockError::Lost`] if the lock was lost before, or if a reply was lost and another process has resumed the lease meanwhile, with
    ///   a handle that was stored first.
    /// - [`LockError::Mongo`] if MongoDB refused the request for good, or did not confirm it while the lease lasted (the lease is renewed
    ///   meanwhile, as by [`done`](crate::LockGuard::done)). The error says for how long the lock stays taken. The lock is then released
    ///   in the background, and so is the lease of the handle. [`LockError::CorruptDocument`] if the document of a lock cannot be read.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock, as dropping the guard does. If the future was polled, the lease of the handle is released
    /// as well, even if the handle was stored first. If a handler of requests can be cancelled, detach in a task of its own.
    ///
    /// # Panics
    ///
    /// When it is polled outside a tokio runtime with time enabled. The lock is then released in the background.
    pub fn detach(self, ttl: Duration) -> Detach {
        let handle = new_handle(self.lease(), ttl, self.lease().owner().to_owned());
        let hold = self.hold;
        Detach { hold, handle }
    }
}

impl Detach {
    /// Sets the owner of the detached lease, for operators and for
    /// [`release_owner`](crate::LockAdmin::release_owner): 1 to 256 bytes without control characters that do not begin with
    /// `done:` or `kept:`. By default it is the present owner of the lease.
    ///
    /// It stays the owner when another process resumes the lease and detaches it again: a session that ends can release all that
    /// it has, also what is being saved at that moment. Another owner makes another [`handle`](Self::handle).
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.handle = new_handle(self.hold.lease(), self.handle.lease().ttl, owner.into());
        self
    }

    /// The handle that awaiting this returns, to be stored before. Until then it is that of a lease which does not exist:
    /// [`resume`](crate::LockProvider::resume) returns [`LockError::Lost`].
    pub fn handle(&self) -> LeaseHandle {
        self.handle.clone()
    }

    async fn detach(mut self) -> Result<LeaseHandle, LockError> {
        check_ttl(self.handle.lease().ttl)?;
        check_owner(self.handle.owner())?;
        self.hold.detach(&self.handle).await?;
        Ok(self.handle)
    }
}

/// Detaches the lease. See [`Guard::detach`].
impl IntoFuture for Detach {
    type Output = Result<LeaseHandle, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.detach())
    }
}

fn new_handle(lease: &Lease, ttl: Duration, owner: String) -> LeaseHandle {
    LeaseHandle::new(Detached {
        home: lease.engine.store.home(),
        ids: lease.tokens().map(|(id, _)| Arc::clone(id)).collect(),
        title: lease.about.title,
        owner,
        tokens: lease.tokens().map(|(_, token)| token).collect(),
        ttl,
        min_hold: lease.about.options.min_hold,
        once: lease.about.options.once,
        secret: secret(),
    })
}
