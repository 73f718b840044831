use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{Acquire, Search};
use crate::context::LockContext;
use crate::engine::Engine;
use crate::lease::Hold;
use crate::name::RenderedName;
use crate::once::Once;
use crate::options::{self, OnBusy, Options};
use crate::run::{self, Acquiring, OnLost, RunningHold};
use crate::{LockError, LockGuard, LockOutput};

/// A distributed lock with its name and its options; made by [`LockProvider::lock`](crate::LockProvider::lock).
///
/// It gives mutual exclusion across all processes that use the same collection: at most one of them holds the lock of a
/// name at a time, for as long as its lease lasts. The value itself holds nothing. It is acquired with
/// [`acquire`](Self::acquire), [`try_acquire`](Self::try_acquire) or [`run`](Self::run), or by awaiting it, any number
/// of times.
///
/// ```
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let lock = provider.lock("report:1").expiry(Duration::from_secs(60)).acquire_timeout(Duration::from_secs(5));
/// let guard = lock.acquire().await?;
/// assert!(lock.try_acquire().await?.is_none(), "the lock is held");
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "the lock is not held before it is awaited, acquired or run; then bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases the lock at once"]
pub struct DistributedLock {
    engine: Arc<Engine>,
    name: RenderedName,
    options: Arc<Options>,
}

impl DistributedLock {
    pub(crate) fn new(engine: &Arc<Engine>, name: RenderedName) -> Self {
        Self {
            engine: Arc::clone(engine),
            name,
            options: Arc::clone(&engine.config.options),
        }
    }

    pub(crate) fn with(self, options: Arc<Options>) -> Self {
        Self { options, ..self }
    }

    /// The lock's name; of one that is longer than 1024 bytes, and so cannot be acquired, only the beginning.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.text()
    }

    options::lease_setters!();

    /// The work under the lock succeeds at most once in each period of this length: 1 s to 366 days, in whole
    /// milliseconds.
    ///
    /// Periods are multiples of the length since 1970-01-01 UTC by the server's clock; those of a day begin at 00:00 UTC.
    /// After a success, the lock is marked as done until its period ends, instead of being released: by
    /// [`LockGuard::done`], by [`run`](Self::run) when the body succeeds, or by
    /// [`LockContext::commit_done`](crate::LockContext::commit_done). After an error, a panic or a loss it is released as
    /// usual, so that another process runs the work.
    ///
    /// - An acquire of a lock that is done returns [`LockError::Done`] at once.
    /// - While another process runs the work, an acquire waits for its end: until the end of the period, unless the lock
    ///   itself sets an [`acquire_timeout`](Self::acquire_timeout). If the period ends first, the result is
    ///   [`LockError::Timeout`].
    /// - A call belongs to the period in which the server first answers it. A lock that is granted to it in a later one is
    ///   released, because the work would use that period up.
    /// - If the period has ended when the work succeeds, the lock is released.
    /// - The work counts as done when the server has confirmed the mark. If it does not, [`run`](Self::run) and the
    ///   attribute return the error of [`LockGuard::done`] although the body has succeeded, also with
    ///   `on_lost = "continue"`: the work may run again. An error of the body comes first.
    ///
    /// Use it for jobs whose trigger is far from a boundary between two periods: with a trigger at 00:00 UTC and a period of
    /// a day, two days in a row can fall into one period and none into the next. A call within 1 % of a boundary is
    /// reported once (`mongolock.close_to_boundary`). For a schedule with ticks use [`once`](Self::once), with the
    /// scheduled time in the name.
    ///
    /// The provider's `min_hold` does not apply, and one of the lock itself is refused. `await_release` does not apply to
    /// marks. A call that joins an enclosing hold writes no mark.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use mongolock::{LockError, LockProvider};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let provider = LockProvider::in_memory();
    /// let nightly = provider.lock("nightly").once_per(Duration::from_secs(24 * 60 * 60));
    /// for _ in 0..3 {
    ///     match nightly.run(async |_| Ok::<_, LockError>(())).await {
    ///         Ok(()) => println!("done now"),
    ///         Err(LockError::Done { by, .. }) => println!("done before, by {by}"),
    ///         Err(error) => return Err(error),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn once_per(mut self, period: Duration) -> Self {
        Arc::make_mut(&mut self.options).set_once(Once::PerPeriod(period));
        self
    }

    /// The work under the lock succeeds once: put the scheduled time of the work, its *tick*, into the name.
    ///
    /// It works as [`once_per`](Self::once_per), except that there are no periods: after a success the lock stays marked as
    /// done for the provider's [`retention`](crate::LockProviderBuilder::retention), which must be at least 1 h. Choose a
    /// retention that is longer than the latest trigger of a tick can be late. An acquire waits for the end of another run
    /// without a limit, unless the lock itself sets an [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// The tick must be the *scheduled* time, which all instances have in common, and not the time at which an instance
    /// wakes up.
    ///
    /// ```
    /// use mongolock::{LockError, LockProvider};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let provider = LockProvider::in_memory();
    /// let tick = "2026-03-01T03:00Z";
    /// let lock = provider.lock(format!("nightly:{tick}")).once();
    /// let guard = lock.acquire().await?;
    /// // The work.
    /// guard.done().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn once(mut self) -> Self {
        let retention = self.engine.config.retention;
        Arc::make_mut(&mut self.options).set_once(Once::Kept(retention));
        self
    }

    /// Waits for the lock and acquires it. Awaiting the lock itself does the same.
    ///
    /// # Errors
    ///
    /// - [`LockError::Timeout`] if another holder still has the lock at the acquire timeout.
    /// - [`LockError::Done`] if the work under the lock is done, with [`once_per`](Self::once_per) or
    ///   [`once`](Self::once).
    /// - [`LockError::Mongo`] if MongoDB has given no usable reply by the acquire timeout. Non-retryable errors
    ///   (missing privileges, bad credentials) are returned immediately.
    /// - [`LockError::InvalidName`] and [`LockError::InvalidOption`] before anything is sent.
    /// - [`LockError::Reentrant`] inside a body, or a [`LockContext::scope`](crate::LockContext::scope), that runs
    ///   under this very lock: the lock is not reentrant, and waiting for it would be a deadlock.
    /// - [`LockError::CorruptDocument`] if the document of the lock cannot be read.
    /// - [`LockError::ShutDown`] after [`LockProvider::shutdown`](crate::LockProvider::shutdown).
    ///
    /// Acquiring the lock a second time while holding only its guard is not detected: the call waits, possibly until
    /// the timeout.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a request in flight runs to its end on a task of its own, and a lock that it acquires is released.
    /// Drop the future or keep polling it: a future that is kept without being polled may have acquired the lock, which
    /// is then renewed.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    #[must_use = "the lock is held only while its guard lives: bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases the lock at once"]
    pub fn acquire(&self) -> impl Future<Output = Result<LockGuard, LockError>> + Send + use<> {
        let lock = self.clone();
        async move {
            lock.check()?;
            lock.refuse_own()?;
            let hold = lock.acquiring(OnBusy::Wait).acquire().await?;
            Ok(lock.guard(hold))
        }
    }

    /// Acquires the lock if it is free, without waiting for its holder; `None` if it is held.
    ///
    /// The call makes at most one attempt, which ends after the acquire timeout, or after 10 s if that is 0 or `None`.
    /// If this process itself holds the lock or waits for it, the result is `None` without a request.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire) except [`LockError::Timeout`]: a held lock is `None`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`acquire`](Self::acquire) is.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    #[must_use = "the lock is held only while its guard lives: bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases the lock at once"]
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
        self.check()?;
        self.refuse_own()?;
        let hold = self.acquiring(OnBusy::TryOnce).make().await?.ok();
        Ok(hold.map(|hold| self.guard(hold)))
    }

    /// Runs a body under the lock and then releases it: the closure form of `#[distributed_lock]`.
    ///
    /// The body gets the [`LockContext`], which is also [`LockContext::current`] for the code that it calls. When the
    /// lock is lost, the body is cancelled at its next await point, and the call returns [`LockError::Lost`].
    ///
    /// Inside a body that already runs under a lock of the same name and provider, the call joins that hold instead of
    /// deadlocking: it has the same token, sends nothing, and its own lock options do not apply.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let token = provider
    ///     .lock("report:1")
    ///     .run(|context| async move { Ok::<_, mongolock::LockError>(context.fencing_token()) })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the body, or else a [`LockError`] in the body's own error type: those of
    /// [`acquire`](Self::acquire), and [`LockError::Lost`] if the lock was lost before the body ended. With
    /// [`once_per`](Self::once_per) or [`once`](Self::once) also those of [`LockGuard::done`], because without the
    /// mark the work may run again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body first, and then releases the lock in the background.
    ///
    /// # Panics
    ///
    /// If the body panics: the panic continues after the release. Outside a tokio runtime with time enabled.
    pub fn run<F, B>(&self, body: F) -> impl Future<Output = B::Output> + use<F, B>
    where
        F: FnOnce(LockContext) -> B,
        B: Future,
        B::Output: LockOutput,
    {
        let lock = self.clone();
        let acquiring = Acquiring::new(async move { lock.hold(OnBusy::Wait, OnLost::Cancel).await });
        run::run(acquiring, body)
    }

    /// Acquires the lock for a body, or joins the hold that the caller already runs under.
    pub(crate) async fn hold(&self, on_busy: OnBusy, on_lost: OnLost) -> Result<RunningHold, LockError> {
        self.check()?;
        if let Some((outer, lease)) = LockContext::enclosing(&self.engine, self.name()) {
            return RunningHold::join(&outer, lease, &self.name, on_busy, on_lost).await;
        }
        let hold = self.acquiring(on_busy).acquire().await?;
        Ok(RunningHold::own(
            self.guard(hold),
            self.options.await_release,
            on_lost,
        ))
    }

    fn guard(&self, hold: Hold) -> LockGuard {
        LockGuard::new(hold, &self.engine, self.name.template())
    }

    fn acquiring(&self, on_busy: OnBusy) -> Acquire<'_> {
        let enclosing = LockContext::enclosing_holds(&self.engine);
        Acquire::new(&self.engine, &self.name, &self.options, enclosing, on_busy)
    }

    fn check(&self) -> Result<(), LockError> {
        self.name.check()?;
        self.options.check()
    }

    fn refuse_own(&self) -> Result<(), LockError> {
        run::refuse_own(LockContext::enclosing(&self.engine, self.name()), self.name())
    }
}

impl IntoFuture for DistributedLock {
    type Output = Result<LockGuard, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

impl std::fmt::Debug for DistributedLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DistributedLock")
            .field("name", &self.name())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    /// The futures of nested calls contain each other, so their sizes add up at every level of an application.
    #[tokio::test]
    async fn the_futures_are_small() {
        let lock = crate::LockProvider::in_memory().lock("small");
        let body = lock.run(async |_| Ok::<_, crate::LockError>(()));
        let sizes = [
            size_of_val(&lock.acquire()),
            size_of_val(&lock.try_acquire()),
            size_of_val(&body),
        ];
        assert!(sizes.iter().all(|size| *size <= 1024), "{sizes:?}");
        body.await.unwrap();
    }
}
