//! Locks for programs without async code: threads, command-line tools, scripts.
//!
//! [`LockProvider::connect`] starts one thread, which runs the same provider as the async interface, with a client of its
//! own, and renews the leases there. Calls wait for it by a channel. The locks are the same ones: a thread with a guard of
//! this module and an async function with `#[distributed_lock]` of the same name exclude each other.
//!
//! ```no_run
//! use mongolock::LockError;
//! use mongolock::blocking::LockProvider;
//!
//! fn main() -> Result<(), LockError> {
//!     let locks = LockProvider::connect("mongodb://localhost/app")?;
//!     locks.with("report:42", || {
//!         println!("one process at a time");
//!         Ok::<_, LockError>(())
//!     })
//! } // all locks are released, and the thread ends
//! ```
//!
//! Do not use it in async code: it blocks the thread of the runtime.

mod guard;
mod permit;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use guard::LockGuard;
pub use permit::Permit;
use worker::Worker;

use crate::options::OnBusy;
use crate::provider::{Health, HeldInfo, LockProviderBuilder};
use crate::run::{OnLost, RunningHold, run_blocking};
use crate::{DistributedLock, IntoLockName, LockContext, LockError, LockOutput, output};

/// A factory for locks whose calls block the calling thread.
///
/// Cloning is cheap, and all clones are the same provider. When the last clone and the last guard are dropped, the
/// provider is shut down and its thread ends; the drop waits for that, for 22 s at most if MongoDB does not answer.
///
/// ```
/// use mongolock::LockError;
/// use mongolock::blocking::LockProvider;
///
/// # fn main() -> Result<(), LockError> {
/// let locks = LockProvider::in_memory()?;
/// let guard = locks.lock("report:1")?;
/// assert!(locks.try_lock("report:1")?.is_none(), "the lock is held");
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockProvider {
    worker: Arc<Worker>,
}

impl LockProvider {
    /// Starts a provider with the default options on a connection of its own, in the database that the URI names
    /// (`mongolock` if it names none). See [`LockProvider::connect`](crate::LockProvider::connect).
    ///
    /// # Errors
    ///
    /// [`LockError::Mongo`] if the URI is not valid, or if the system gives no thread. No server is awaited: the first
    /// lock shows whether one answers.
    pub fn connect(uri: impl Into<String>) -> Result<Self, LockError> {
        Self::connect_with(uri, |builder| builder)
    }

    /// Starts a provider with options of your own, which are those of all its locks.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use mongolock::blocking::LockProvider;
    ///
    /// # fn main() -> Result<(), mongolock::LockError> {
    /// let locks = LockProvider::connect_with("mongodb://localhost/app", |options| {
    ///     options.acquire_timeout(Duration::from_secs(60)).owner("nightly-import")
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect), and [`LockError::InvalidOption`].
    pub fn connect_with(
        uri: impl Into<String>,
        options: impl FnOnce(LockProviderBuilder) -> LockProviderBuilder + Send + 'static,
    ) -> Result<Self, LockError> {
        let uri = uri.into();
        Self::start(async move { options(crate::LockProvider::connect(uri).await?.to_builder()).build() })
    }

    /// Starts a provider that keeps its locks in memory, for tests of programs that use locks.
    ///
    /// # Errors
    ///
    /// [`LockError::Mongo`] if the system gives no thread.
    pub fn in_memory() -> Result<Self, LockError> {
        Self::start(async { Ok(crate::LockProvider::in_memory()) })
    }

    fn start(
        make: impl Future<Output = Result<crate::LockProvider, LockError>> + Send + 'static,
    ) -> Result<Self, LockError> {
        let worker = Arc::new(Worker::start(make)?);
        Ok(Self { worker })
    }

    /// Waits for the lock of this name and acquires it. The name is any value that implements `Display`, or
    /// one whose type derives [`LockName`](macro@crate::LockName).
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`](crate::DistributedLock::acquire). [`LockError::Reentrant`] is returned inside
    /// a body of [`with`](Self::with) for the same name; a second `lock` beside a guard waits until the timeout.
    pub fn lock(&self, name: impl IntoLockName) -> Result<LockGuard, LockError> {
        let lock = self.named(name);
        let guard = self.wait_in_context(async move { lock.acquire().await })??;
        Ok(LockGuard::new(guard, &self.worker))
    }

    /// Acquires the lock of this name if it is free, without waiting for its holder; `None` if it is held.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::try_acquire`](crate::DistributedLock::try_acquire).
    pub fn try_lock(&self, name: impl IntoLockName) -> Result<Option<LockGuard>, LockError> {
        let lock = self.named(name);
        let guard = self.wait_in_context(async move { lock.try_acquire().await })??;
        Ok(guard.map(|guard| LockGuard::new(guard, &self.worker)))
    }

    /// Runs a body under the lock of this name and then releases it, also if the body fails or panics.
    ///
    /// In the body, [`LockContext::current`] has the fencing token and tells whether the lock is still held. A loss cannot
    /// cancel a body that does not await: a long body calls
    /// [`ensure_held`](crate::LockContext::ensure_held) between its steps. A call inside a body under the same name joins
    /// the outer one.
    ///
    /// ```
    /// use mongolock::blocking::LockProvider;
    /// use mongolock::{LockContext, LockError};
    ///
    /// # fn main() -> Result<(), LockError> {
    /// let locks = LockProvider::in_memory()?;
    /// let pages = locks.with("report:1", || {
    ///     let lock = LockContext::current().expect("inside the body");
    ///     for page in 0..3 {
    ///         lock.ensure_held()?;
    ///         println!("writing page {page} with token {}", lock.fencing_token());
    ///     }
    ///     Ok::<_, LockError>(3)
    /// })?;
    /// assert_eq!(pages, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the body, or else a [`LockError`] in the body's own error type: those of [`lock`](Self::lock), and
    /// [`LockError::Lost`] if the lock was lost before the body ended.
    ///
    /// # Panics
    ///
    /// If the body panics: the panic continues after the release.
    pub fn with<T: LockOutput>(&self, name: impl IntoLockName, body: impl FnOnce() -> T) -> T {
        let lock = self.named(name);
        self.run(async move { lock.hold(OnBusy::Wait, OnLost::Cancel).await }, body)
    }

    /// Waits for several locks and acquires them, all or nothing, as [`LockSet`](crate::LockSet) says. The order of the names
    /// does not matter.
    ///
    /// # Errors
    ///
    /// Those of [`LockSet::acquire`](crate::LockSet::acquire).
    pub fn lock_all(
        &self,
        names: impl IntoIterator<Item = impl IntoLockName>,
    ) -> Result<LockGuard, LockError> {
        let set = self.worker.provider().lock_all(names);
        let guard = self.wait_in_context(async move { set.acquire().await })??;
        Ok(LockGuard::new(guard, &self.worker))
    }

    /// Acquires several locks if all of them are free, without waiting for their holders; `None` if one of them is held.
    ///
    /// # Errors
    ///
    /// Those of [`LockSet::try_acquire`](crate::LockSet::try_acquire).
    pub fn try_lock_all(
        &self,
        names: impl IntoIterator<Item = impl IntoLockName>,
    ) -> Result<Option<LockGuard>, LockError> {
        let set = self.worker.provider().lock_all(names);
        let guard = self.wait_in_context(async move { set.try_acquire().await })??;
        Ok(guard.map(|guard| LockGuard::new(guard, &self.worker)))
    }

    /// Runs a body under several locks, all or nothing, and then releases them, as [`with`](Self::with) does for one.
    ///
    /// A call inside a body under some of these locks joins them and acquires the others, which can be a deadlock until the
    /// acquire timeout; see [`LockSet::run`](crate::LockSet::run).
    ///
    /// ```
    /// use mongolock::blocking::LockProvider;
    /// use mongolock::{LockContext, LockError};
    ///
    /// # fn main() -> Result<(), LockError> {
    /// let locks = LockProvider::in_memory()?;
    /// let names = locks.with_all(["account:7", "account:4"], || {
    ///     let lock = LockContext::current().expect("inside the body");
    ///     Ok::<_, LockError>(lock.names().count())
    /// })?;
    /// assert_eq!(names, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`with`](Self::with), for each of the locks.
    ///
    /// # Panics
    ///
    /// If the body panics: the panic continues after the release.
    pub fn with_all<T: LockOutput>(
        &self,
        names: impl IntoIterator<Item = impl IntoLockName>,
        body: impl FnOnce() -> T,
    ) -> T {
        let set = self.worker.provider().lock_all(names);
        self.run(async move { set.hold(OnBusy::Wait, OnLost::Cancel).await }, body)
    }

    /// Waits for one of so many permits of this name and acquires it, as [`Semaphore`](crate::Semaphore) says: 1 to 1000
    /// permits.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub fn permit(&self, name: impl IntoLockName, permits: u32) -> Result<Permit, LockError> {
        let semaphore = self.worker.provider().semaphore(name, permits);
        let permit = self.wait_in_context(async move { semaphore.acquire().await })??;
        Ok(Permit::new(permit, &self.worker))
    }

    /// Acquires one of so many permits of this name if one is free; `None` if all of them are held.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    pub fn try_permit(&self, name: impl IntoLockName, permits: u32) -> Result<Option<Permit>, LockError> {
        let semaphore = self.worker.provider().semaphore(name, permits);
        let permit = self.wait_in_context(async move { semaphore.try_acquire().await })??;
        Ok(permit.map(|permit| Permit::new(permit, &self.worker)))
    }

    /// Runs a body under one of so many permits of this name and then releases it, as [`with`](Self::with) does for a lock.
    ///
    /// ```
    /// use mongolock::LockError;
    /// use mongolock::blocking::LockProvider;
    ///
    /// # fn main() -> Result<(), LockError> {
    /// let locks = LockProvider::in_memory()?;
    /// let rows = locks.with_permit("export", 5, || Ok::<_, LockError>(1000))?;
    /// assert_eq!(rows, 1000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the body, or else a [`LockError`] in the body's own error type: those of [`permit`](Self::permit), and
    /// [`LockError::Lost`] if the permit was lost before the body ended.
    ///
    /// # Panics
    ///
    /// If the body panics: the panic continues after the release.
    pub fn with_permit<T: LockOutput>(
        &self,
        name: impl IntoLockName,
        permits: u32,
        body: impl FnOnce() -> T,
    ) -> T {
        let semaphore = self.worker.provider().semaphore(name, permits);
        self.run(
            async move { semaphore.hold(OnBusy::Wait, OnLost::Cancel).await },
            body,
        )
    }

    /// Runs a body under what this future acquires.
    fn run<T: LockOutput>(
        &self,
        acquiring: impl Future<Output = Result<RunningHold, LockError>> + Send + 'static,
        body: impl FnOnce() -> T,
    ) -> T {
        let hold = match self.wait_in_context(acquiring) {
            Ok(Ok(hold)) => hold,
            Ok(Err(error)) | Err(error) => return T::from_lock_error(error),
        };
        let (ended, releasing) = run_blocking(hold, body, output::output());
        match self.worker.wait(releasing) {
            Ok(released) => ended.after(released),
            Err(error) => T::from_lock_error(error),
        }
    }

    /// The locks that this provider holds, as [`LockProvider::held`](crate::LockProvider::held).
    #[must_use]
    pub fn held(&self) -> Vec<HeldInfo> {
        self.worker.provider().held()
    }

    /// The state of this provider and of its connection, as [`LockProvider::health`](crate::LockProvider::health).
    ///
    /// # Errors
    ///
    /// [`LockError::Mongo`] if the provider's thread has ended by a panic.
    pub fn health(&self) -> Result<Health, LockError> {
        let provider = self.worker.provider().clone();
        self.worker.wait(async move { provider.health().await })
    }

    /// Shuts down this provider and all its clones after a grace period, in which bodies and guards may end; see
    /// [`LockProvider::shutdown_after`](crate::LockProvider::shutdown_after). With a grace period of zero all locks are
    /// lost at once.
    ///
    /// Dropping the provider does the same without a grace period, but only when no guard is left.
    pub fn shutdown_after(&self, grace: Duration) {
        let provider = self.worker.provider().clone();
        // An error says that the thread has ended.
        let _ = self
            .worker
            .wait(async move { provider.shutdown_after(grace).await });
    }

    fn named(&self, name: impl IntoLockName) -> DistributedLock {
        self.worker.provider().lock(name)
    }

    /// Waits for a future that runs in the context of the calling thread, so that it knows the locks around the call.
    fn wait_in_context<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, LockError> {
        match LockContext::current() {
            Some(context) => self.worker.wait(context.scope(future)),
            None => self.worker.wait(future),
        }
    }
}

impl fmt::Debug for LockProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::LockProvider")
            .field(self.worker.provider())
            .finish()
    }
}
