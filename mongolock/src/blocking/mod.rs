//! Locks for programs without async code: threads, command-line tools, scripts.
//!
//! [`LockProvider::connect`] starts one thread, which runs an ordinary [`LockProvider`](crate::LockProvider) with a client
//! of its own, and renews the leases there. The locks, sets and semaphores are the ordinary ones with all their options: a
//! thread with a guard of this module and an async function with `#[distributed_lock]` of the same name exclude each other.
//!
//! ```no_run
//! use mongolock::LockError;
//! use mongolock::blocking::LockProvider;
//!
//! fn main() -> Result<(), LockError> {
//!     let locks = LockProvider::connect("mongodb://localhost/app")?;
//!     locks.run(&locks.lock("report:42"), |_| {
//!         println!("one process at a time");
//!         Ok::<_, LockError>(())
//!     })
//! } // all locks are released, and the thread ends
//! ```
//!
//! For everything else pass a future of the async interface to [`LockProvider::wait`]: to release a guard, to mark its
//! work as done, for a query of the administration, for a shutdown.
//!
//! ```
//! use std::time::Duration;
//!
//! use mongolock::blocking::LockProvider;
//! use mongolock::{LockError, LockFilter};
//!
//! # fn main() -> Result<(), LockError> {
//! let locks = LockProvider::in_memory()?;
//! let nightly = locks.lock("nightly").once_per(Duration::from_secs(24 * 60 * 60));
//! let guard = locks.acquire(&nightly)?;
//! // The work.
//! locks.wait(guard.done())?;
//! let listed = locks.wait(locks.provider().admin().list(LockFilter::new()))?;
//! assert_eq!(listed.len(), 1);
//! locks.wait(locks.provider().shutdown_after(Duration::from_secs(5)));
//! # Ok(())
//! # }
//! ```
//!
//! Do not use it in async code: it blocks the thread of the runtime.

use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::home::is_home;
use crate::provider::LockProviderBuilder;
use crate::{
    DistributedLock, IntoLockName, Lock, LockContext, LockError, LockKind, LockOutput, LockSet, Semaphore,
};

/// A factory for locks whose calls block the calling thread.
///
/// Cloning is cheap, and all clones are the same provider. When the last clone and the last guard are dropped, the
/// provider is shut down, and its thread ends; the drop waits for the shutdown, for 22 s at most if MongoDB does not answer.
///
/// ```
/// use mongolock::LockError;
/// use mongolock::blocking::LockProvider;
///
/// # fn main() -> Result<(), LockError> {
/// let locks = LockProvider::in_memory()?;
/// let report = locks.lock("report:1");
/// let guard = locks.acquire(&report)?;
/// println!("held with token {}", guard.fencing_token());
/// assert!(locks.try_acquire(&report)?.is_none(), "the lock is held");
/// locks.wait(guard.release())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct LockProvider {
    worker: Arc<Worker>,
}

impl LockProvider {
    /// Starts a provider with the default options on a connection of its own, in the database that the URI names
    /// (`mongolock` if it names none). See [`LockProvider::connect`](crate::LockProvider::connect).
    ///
    /// # Errors
    ///
    /// [`LockError::Mongo`] if the URI is not valid, or if the thread cannot be started. [`LockError::InvalidOption`]
    /// if it names a database that cannot have locks. The call does not wait for a server: the first lock shows whether
    /// one replies.
    pub fn connect(uri: impl AsRef<str>) -> Result<Self, LockError> {
        Self::connect_with(uri, |builder| builder)
    }

    /// Starts a provider with options of your own, which are the defaults of all its locks.
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
        uri: impl AsRef<str>,
        options: impl FnOnce(LockProviderBuilder) -> LockProviderBuilder,
    ) -> Result<Self, LockError> {
        let (builder, _) = wait(crate::LockProvider::connecting(uri.as_ref(), None))?;
        Self::start(options(builder))
    }

    /// Starts a provider that keeps its locks in memory, for tests of programs that use locks.
    ///
    /// # Errors
    ///
    /// [`LockError::Mongo`] if the thread cannot be started.
    pub fn in_memory() -> Result<Self, LockError> {
        Self::start(LockProviderBuilder::in_memory().on_own_thread()?)
    }

    fn start(builder: LockProviderBuilder) -> Result<Self, LockError> {
        let worker = Arc::new(Worker {
            provider: builder.build()?,
        });
        let keeper = Arc::downgrade(&worker);
        // An error says that there is one.
        let _ = worker.provider.engine.keeper.set(keeper);
        Ok(Self { worker })
    }

    /// The async provider on the thread, for calls that have no method here. Pass its futures to [`wait`](Self::wait).
    pub fn provider(&self) -> &crate::LockProvider {
        &self.worker.provider
    }

    /// A lock of this name, see [`LockProvider::lock`](crate::LockProvider::lock).
    pub fn lock(&self, name: impl IntoLockName) -> DistributedLock {
        self.provider().lock(name)
    }

    /// Several locks that are acquired together, all or nothing, see
    /// [`LockProvider::lock_all`](crate::LockProvider::lock_all).
    pub fn lock_all(&self, names: impl IntoIterator<Item = impl IntoLockName>) -> LockSet {
        self.provider().lock_all(names)
    }

    /// A semaphore of this name, with 1 to 1000 permits, see [`LockProvider::semaphore`](crate::LockProvider::semaphore).
    pub fn semaphore(&self, name: impl IntoLockName, permits: u32) -> Semaphore {
        self.provider().semaphore(name, permits)
    }

    /// Waits for a [`DistributedLock`], a [`LockSet`] or a [`Semaphore`] of this provider and acquires it. The result is a
    /// [`LockGuard`](crate::LockGuard), or a [`Permit`](crate::Permit) of a semaphore.
    ///
    /// Dropping the guard releases the lock in the background. `locks.wait(guard.release())` waits for the confirmation.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`], [`LockSet::acquire`] and [`Semaphore::acquire`].
    /// [`LockError::Reentrant`] is returned inside a body of [`run`](Self::run) for the same name; a second `acquire`
    /// beside a guard waits until the timeout.
    #[must_use = "the lock is held only while its guard lives: bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases the lock at once"]
    pub fn acquire<K: LockKind>(&self, lock: &Lock<K>) -> Result<K::Guard, LockError> {
        self.wait(lock.acquire())
    }

    /// Acquires a [`DistributedLock`], a [`LockSet`] or a [`Semaphore`] of this provider if it is free, without waiting
    /// for its holders; `None` if it is held.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::try_acquire`], [`LockSet::try_acquire`] and [`Semaphore::try_acquire`].
    #[must_use = "the lock is held only while its guard lives: bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases the lock at once"]
    pub fn try_acquire<K: LockKind>(&self, lock: &Lock<K>) -> Result<Option<K::Guard>, LockError> {
        self.wait(lock.try_acquire())
    }

    /// Runs a body under a [`DistributedLock`], a [`LockSet`] or a permit of a [`Semaphore`] of this provider, and then
    /// releases it, also if the body fails or panics.
    ///
    /// The body gets the [`LockContext`], which is also [`LockContext::current`] for the code that it calls. A loss cannot
    /// cancel a body that does not await: a long body calls [`ensure_held`](LockContext::ensure_held) between its steps. A
    /// call inside a body under the same name joins the outer one; see [`LockSet::run`] for a set of which a part is held.
    ///
    /// ```
    /// use mongolock::LockError;
    /// use mongolock::blocking::LockProvider;
    ///
    /// # fn main() -> Result<(), LockError> {
    /// let locks = LockProvider::in_memory()?;
    /// let pages = locks.run(&locks.lock("report:1"), |lock| {
    ///     for page in 0..3 {
    ///         lock.ensure_held()?;
    ///         println!("writing page {page} with token {}", lock.fencing_token());
    ///     }
    ///     Ok::<_, LockError>(3)
    /// })?;
    /// assert_eq!(pages, 3);
    ///
    /// let rows = locks.run(&locks.semaphore("export", 5), |_| Ok::<_, LockError>(1000))?;
    /// assert_eq!(rows, 1000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the body. Otherwise a [`LockError`], converted into the body's error type: those of
    /// [`DistributedLock::run`], [`LockSet::run`] and [`Semaphore::run`].
    ///
    /// # Panics
    ///
    /// If the body panics: the panic continues after the release.
    pub fn run<T: LockOutput>(&self, lock: &Lock<impl LockKind>, body: impl FnOnce(LockContext) -> T) -> T {
        self.wait(lock.run(async move |context| body(context)))
    }

    /// Waits for a future of this provider, of its locks or of their guards: its release, its
    /// [`done`](crate::LockGuard::done), a query of its [administration](crate::LockProvider::admin), its
    /// [health](crate::LockProvider::health), its [shutdown](crate::LockProvider::shutdown).
    ///
    /// The calling thread polls the future, so that it may borrow; timers and connections are served by the thread of
    /// the provider. The future runs in the context of a [`run`](Self::run) around the call.
    ///
    /// ```
    /// use mongolock::LockError;
    /// use mongolock::blocking::LockProvider;
    ///
    /// # fn main() -> Result<(), LockError> {
    /// let locks = LockProvider::in_memory()?;
    /// let guard = locks.acquire(&locks.lock_all(["account:7", "account:4"]))?;
    /// assert_eq!(locks.wait(locks.provider().health()).held, 2);
    /// locks.wait(guard.release())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the future panics.
    pub fn wait<F: IntoFuture>(&self, future: F) -> F::Output {
        self.worker.wait(future.into_future())
    }
}

/// A provider that is shut down when the last clone of its blocking face and the last guard are dropped.
#[derive(Debug)]
struct Worker {
    provider: crate::LockProvider,
}

impl Worker {
    /// Polls a future on the calling thread until it is ready. Its timers, its connections and the tasks that it spawns run
    /// on the thread of the provider.
    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let runtime = self.provider.engine.runtime();
        let _entered = runtime.as_ref().map(Handle::enter);
        wait(future)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let provider = self.provider.clone();
        // A mark must not keep the thread that drops the last provider for as long as its lease lasts.
        let shutdown = async move { provider.shutdown_after(Duration::ZERO).await };
        match self.provider.engine.runtime() {
            // A task of the provider's thread may drop the last guard: that thread cannot wait for itself.
            Some(runtime) if is_home() => drop(runtime.spawn(shutdown)),
            _ => self.wait(shutdown),
        }
    }
}

/// Polls a future on the calling thread until it is ready.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let signal = Arc::new(Signal(AtomicBool::new(false), thread::current()));
    let waker = Waker::from(Arc::clone(&signal));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        while !signal.0.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

/// Wakes one waiting call of a thread. Each call has its own: a call inside a body must not use up the signal of the call around it.
struct Signal(AtomicBool, Thread);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
        self.1.unpark();
    }
}
