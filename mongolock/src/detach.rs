//! Detached leases, which last without a process: a hold is detached, and any process that has the handle resumes, extends or releases
//! the lease.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::{Instant, timeout};

use crate::backoff::Repetitions;
use crate::context::LockContext;
use crate::core::Wanted;
use crate::engine::{About, AcquireCall, Hold, Lease};
use crate::guard::Guard;
use crate::handle::{Detached, invalid, secret};
use crate::options::{OnBusy, Options, check_owner, check_ttl};
use crate::store::{Store, millis};
use crate::timing::{NO_REPLY, RELEASE_REPLY_LIMIT};
use crate::{LeaseHandle, LockError, LockGuard, LockProvider, Permit, task, trace};

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

impl LockProvider {
    /// Resumes a detached lease: this process holds the lock, or all locks of a set, from now on, and renews the lease.
    /// The handle is no longer valid.
    ///
    /// The lease has the expiry of this provider and a greater fencing token; its minimum hold, its period
    /// ([`once_per`](crate::DistributedLock::once_per)) and its owner stay. Of several calls with one handle, in any
    /// processes, at most one succeeds. The call does not wait for other holders. It is one command; for a set a query
    /// follows.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use mongolock::{LockError, LossReason};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let handle = provider.lock("document:42").await?.detach(Duration::from_secs(60)).await?;
    /// let guard = provider.resume(&handle).await?;
    /// let again = provider.resume(&handle).await;
    /// assert!(matches!(again, Err(LockError::Lost { reason: LossReason::Gone, .. })));
    /// guard.release().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`LockError::Lost`] if the lease has expired, or is gone: it was released, also by force, or resumed by another call. If only
    ///   some locks of a set were released by force, the others may stay held until the lease ends, or its handle is
    ///   [released](Self::release).
    /// - [`LockError::InvalidHandle`] if the locks are in another collection, or if it is the handle of a permit.
    /// - [`LockError::Mongo`] if MongoDB refused the request, or gave no reply within the acquire timeout of the provider (10 s if
    ///   that is 0 or `None`). [`LockError::ShutDown`] after a shutdown.
    /// - [`LockError::CorruptDocument`] if the document of a lock cannot be read.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, or ends with an error of MongoDB, the lease is detached again. From the time at which the
    /// server receives that request, the handle is valid again, and the lease lasts for the time that was given to
    /// `detach`, even if it was extended beyond that. A guard that was returned is an ordinary one:
    /// dropping it releases the lock. If a handler can be cancelled, resume, work and detach in a task of its own.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn resume(&self, handle: &LeaseHandle) -> Result<LockGuard, LockError> {
        if handle.permit().is_some() {
            return Err(invalid("it is that of a permit, which `resume_permit` takes"));
        }
        Ok(self.resumed(handle).await?.into())
    }

    /// Resumes the detached lease of a permit, as [`resume`](Self::resume) does that of a lock.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let permit = provider.semaphore("export", 5).await?;
    /// let number = permit.number();
    /// let handle = permit.detach(Duration::from_secs(60)).await?;
    /// let permit = provider.resume_permit(&handle).await?;
    /// assert_eq!(permit.number(), number);
    /// permit.release().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`resume`](Self::resume); [`LockError::InvalidHandle`] if it is the handle of a lock or a set.
    ///
    /// # Cancel safety
    ///
    /// That of [`resume`](Self::resume).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn resume_permit(&self, handle: &LeaseHandle) -> Result<Permit, LockError> {
        if handle.permit().is_none() {
            return Err(invalid("it is not that of a permit, and `resume` takes it"));
        }
        Ok(self.resumed(handle).await?.into())
    }

    async fn resumed(&self, handle: &LeaseHandle) -> Result<Hold, LockError> {
        handle.check_home(&self.engine.store.home())?;
        let lease = handle.lease();
        let options = Arc::new(Options {
            min_hold: lease.min_hold,
            has_own_min_hold: true,
            once: lease.once,
            ..Options::clone(&self.engine.config.options)
        });
        let about = About {
            names: lease.ids.iter().cloned().collect(),
            title: lease.title,
            template: None,
            options,
            resumes: Some(handle.fencing_token()),
            is_inside_hold: LockContext::is_inside_hold(&self.engine),
            on_busy: OnBusy::TryOnce,
        };
        let of_name = |name: &Arc<str>| (Arc::clone(name), Arc::clone(handle.lock_id()));
        let leases = lease.ids.iter().map(of_name).collect();
        let wanted = Wanted::Leases(leases, millis(lease.ttl));
        AcquireCall::begin(&self.engine, about, wanted, handle.owner())?.await
    }

    /// Extends a detached lease to this time from now on (100 ms to 7 days, in whole milliseconds), and returns its new
    /// end by the server's clock; for a set, the end of the lock whose lease ends first.
    ///
    /// It never shortens the lease. To do that, resume it and detach it again. The handle stays valid. It is one command; for a set
    /// a query follows.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let handle = provider.lock("document:42").await?.detach(Duration::from_secs(60)).await?;
    /// let end = provider.extend(&handle, Duration::from_secs(30 * 60)).await?;
    /// let info = provider.admin().get("document:42").await?.expect("the lock is held");
    /// assert!(info.detached && info.expires_at == end);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`LockError::Lost`] if the lease has expired, or is gone: it was released, also by force, or resumed.
    /// - [`LockError::InvalidHandle`] if the locks are in another collection, and [`LockError::InvalidOption`] if the time is out of
    ///   its bounds.
    /// - [`LockError::Mongo`] if MongoDB refused the request, did not confirm it within 6 s (the lease may have been extended), or if
    ///   the provider was shut down. [`LockError::CorruptDocument`] if the document of a lock cannot be read.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a request that was sent is not cancelled: the lease may be extended or not.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn extend(&self, handle: &LeaseHandle, ttl: Duration) -> Result<DateTime, LockError> {
        check_ttl(ttl)?;
        let extend = |store: Arc<Store>, handle: LeaseHandle| async move { store.extend(&handle, ttl).await };
        let (extended, _) = self.ask(handle, extend, "extension", Result::is_ok).await?;
        extended.map_err(|reason| LockError::lost(handle.name(), handle.fencing_token(), reason))
    }

    /// Releases a detached lease. It returns `false` if the handle had nothing to release: its lease was over, or was resumed. It
    /// never ends the hold of a call that has resumed the lease.
    ///
    /// A minimum hold is kept, as by the release of a guard. It is one command. If a reply was lost, and the repetition
    /// finds nothing, the result is `true`: the first command may have released the lease. So after a failed connection
    /// the result can be `true` for a handle that was no longer valid.
    ///
    /// # Errors
    ///
    /// - [`LockError::InvalidHandle`] if the locks are in another collection.
    /// - [`LockError::Mongo`] if MongoDB refused the release, did not confirm it within 6 s (the lease may have been released, and ends
    ///   by itself otherwise), or if the provider was shut down.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a release that was sent is completed.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn release(&self, handle: &LeaseHandle) -> Result<bool, LockError> {
        let margin = self.engine.config.options.takeover_margin;
        let release = |store: Arc<Store>, handle: LeaseHandle| async move {
            store.release_detached(&handle, margin).await
        };
        let (was_held, is_repetition) = self.ask(handle, release, "release", |held| *held).await?;
        if was_held {
            for id in &handle.lease().ids {
                trace::handle_released(id, handle.lock_id());
            }
        }
        // If a repetition does not find the lease, an earlier copy without a reply has released it.
        Ok(was_held || is_repetition)
    }

    /// Sends a command until it has a reply, for [`RELEASE_REPLY_LIMIT`] at most; and whether a copy before it may have taken effect. It
    /// is sent again if it has not found a lease that a call of this provider has resumed which was given up: the request of that call
    /// may be on its way.
    async fn ask<T: Send + 'static, F>(
        &self,
        handle: &LeaseHandle,
        command: impl Fn(Arc<Store>, LeaseHandle) -> F,
        request: &str,
        has_found: impl Fn(&T) -> bool,
    ) -> Result<(T, bool), LockError>
    where
        F: Future<Output = Result<T, LockError>> + Send + 'static,
    {
        let (store, begun) = (&self.engine.store, Instant::now());
        handle.check_home(&store.home())?;
        let mut repetitions = Repetitions::new(RELEASE_REPLY_LIMIT);
        let mut is_repetition = false;
        loop {
            let may_come_back = self.engine.gives_back(handle.lock_id());
            // Its task goes on without the caller.
            let sent = task::start(command(Arc::clone(store), handle.clone()));
            let reply = timeout(NO_REPLY, sent).await;
            let reply = reply.unwrap_or_else(|_| Err(store.no_reply(request, begun.elapsed())));
            let is_final = match &reply {
                Ok(reply) => has_found(reply) || !may_come_back,
                Err(error) => error.meaning().is_final() || error.is_closed(),
            };
            is_repetition |= reply.as_ref().is_err_and(LockError::may_be_applied);
            if is_final || !repetitions.next().await {
                return reply.map(|reply| (reply, is_repetition));
            }
        }
    }
}
