use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{AcquirePermit, Search};
use crate::context::LockContext;
use crate::engine::Engine;
use crate::lease::{Hold, Lease};
use crate::name::RenderedName;
use crate::options::{self, OnBusy, Options};
use crate::run::{self, Acquiring, OnLost, RunningHold};
use crate::{LockError, LockGuard, LockOutput, Permit};

/// The largest number of permits: a query over all of them must stay small.
const MOST_PERMITS: u32 = 1000;

/// A distributed semaphore: at most a number of holders at the same time, in all processes; made by
/// [`LockProvider::semaphore`](crate::LockProvider::semaphore).
///
/// Each permit is an ordinary lock with a document of its own, so there is no counter that a crash could leave wrong: the
/// permit of a dead holder is free when its lease has expired. A semaphore and a
/// [`DistributedLock`](crate::DistributedLock) of the same name are independent of each other.
///
/// All callers should give the same number of permits. If they differ, there are never more holders than the greatest of
/// these numbers, and a caller with a smaller one reports it once (`mongolock.permits_differ`).
///
/// While permits are free, acquiring one mostly costs one command: a permit is drawn at random, and if it is held, a query
/// shows which ones are free. Waiters are woken by the release of any permit.
///
/// A permit has **no fencing token**, because tokens of different permits do not order each other. Where a stale holder must
/// not write, use a lock for that data as well, or let the data itself refuse the write, with a version that is read before.
///
/// The collection must have simple collation, which is MongoDB's default;
/// [`index_state`](crate::LockAdmin::index_state) reports another one.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let exports = provider.semaphore("export", 2);
/// let first = exports.acquire().await?;
/// let second = exports.acquire().await?;
/// assert!(exports.try_acquire().await?.is_none(), "both permits are held");
/// first.release().await?;
/// assert_eq!(exports.available().await?, 1);
/// second.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "no permit is held before the semaphore is awaited, acquired or run; then bind the permit to a named variable such as `_permit`, because `let _ = …` drops it and releases it at once"]
pub struct Semaphore {
    engine: Arc<Engine>,
    name: RenderedName,
    permits: u32,
    options: Arc<Options>,
}

impl Semaphore {
    pub(crate) fn new(engine: &Arc<Engine>, name: RenderedName, permits: u32) -> Self {
        Self {
            engine: Arc::clone(engine),
            name,
            permits,
            options: Arc::clone(&engine.config.options),
        }
    }

    pub(crate) fn with(self, options: Arc<Options>) -> Self {
        Self { options, ..self }
    }

    /// The semaphore's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.text()
    }

    /// The number of permits.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }

    options::lease_setters!();

    /// Waits for a permit and acquires it. Awaiting the semaphore itself does the same.
    ///
    /// # Errors
    ///
    /// - [`LockError::Timeout`] if all permits are still held at the acquire timeout; it names the holder of the one that
    ///   ends first.
    /// - [`LockError::InvalidOption`] if the number of permits is not 1 to 1000.
    /// - [`LockError::Reentrant`] inside a body that runs under a permit of this semaphore.
    /// - The others of [`DistributedLock::acquire`](crate::DistributedLock::acquire).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a request in flight runs to its end on a task of its own, and the permit that it acquires is released.
    /// Drop the future or keep polling it: a future that is kept without being polled may have acquired a permit, which is
    /// then renewed.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    #[must_use = "the permit is held only while its guard lives: bind it to a named variable such as `_permit`, because `let _ = …` drops it and releases it at once"]
    pub fn acquire(&self) -> impl Future<Output = Result<Permit, LockError>> + Send + use<> {
        let semaphore = self.clone();
        async move {
            semaphore.check()?;
            semaphore.refuse_own()?;
            let hold = semaphore.acquiring(OnBusy::Wait).acquire().await?;
            Ok(Permit::new(semaphore.guard(hold)))
        }
    }

    /// Acquires a permit if one is free; `None` if all of them are held.
    ///
    /// If others are faster each time, the call goes on until the acquire timeout, or for 10 s if that is 0 or `None`: it
    /// returns `None` only after a query that found no free permit. Callers that wait in this process already come first.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire). [`LockError::Timeout`] says that the call has reached its limit without such a
    /// query.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`acquire`](Self::acquire) is.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    #[must_use = "the permit is held only while its guard lives: bind it to a named variable such as `_permit`, because `let _ = …` drops it and releases it at once"]
    pub async fn try_acquire(&self) -> Result<Option<Permit>, LockError> {
        self.check()?;
        self.refuse_own()?;
        let hold = self.acquiring(OnBusy::TryOnce).make().await?.ok();
        Ok(hold.map(|hold| Permit::new(self.guard(hold))))
    }

    /// The number of permits that are free at this moment, which another caller may acquire right after it.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidName`] and [`LockError::InvalidOption`] as [`acquire`](Self::acquire), and
    /// [`LockError::Mongo`] if MongoDB refuses the query or does not reply.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn available(&self) -> Result<u32, LockError> {
        self.check()?;
        self.acquiring(OnBusy::TryOnce).available().await
    }

    /// Runs a body under a permit and then releases it.
    ///
    /// The body gets the [`LockContext`], which is also [`LockContext::current`] for the code that it calls. It has no
    /// fencing token. When the permit is lost, the body is cancelled at its next await point, and the call returns
    /// [`LockError::Lost`].
    ///
    /// Inside a body that already runs under a permit of the same semaphore and provider, the call joins that permit
    /// instead of acquiring a second one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let name = provider
    ///     .semaphore("export", 5)
    ///     .run(async |permit| Ok::<_, mongolock::LockError>(permit.name().to_owned()))
    ///     .await?;
    /// assert_eq!(name, "export");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the body, or else a [`LockError`] in the body's own error type: those of [`acquire`](Self::acquire)
    /// except [`LockError::Reentrant`], and [`LockError::Lost`] if the permit was lost before the body ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body first, and then releases the permit in the background.
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
        let semaphore = self.clone();
        let acquiring = Acquiring::new(async move { semaphore.hold(OnBusy::Wait, OnLost::Cancel).await });
        run::run(acquiring, body)
    }

    /// Acquires a permit for a body, or joins the permit that the caller already runs under.
    pub(crate) async fn hold(&self, on_busy: OnBusy, on_lost: OnLost) -> Result<RunningHold, LockError> {
        self.check()?;
        if let Some((outer, lease)) = self.own() {
            return RunningHold::join(&outer, lease, &self.name, on_busy, on_lost).await;
        }
        let hold = self.acquiring(on_busy).acquire().await?;
        Ok(RunningHold::own(
            self.guard(hold),
            self.options.await_release,
            on_lost,
        ))
    }

    /// The enclosing call that has a permit of this semaphore, and its lease.
    fn own(&self) -> Option<(LockContext, Arc<Lease>)> {
        LockContext::enclosing_permit(&self.engine, self.name())
    }

    fn acquiring(&self, on_busy: OnBusy) -> AcquirePermit<'_> {
        let enclosing = LockContext::enclosing_holds(&self.engine);
        AcquirePermit::new(
            &self.engine,
            &self.name,
            self.permits,
            &self.options,
            enclosing,
            on_busy,
        )
    }

    fn guard(&self, hold: Hold) -> LockGuard {
        LockGuard::new(hold, &self.engine, self.name.template())
    }

    fn check(&self) -> Result<(), LockError> {
        self.name.check()?;
        if !(1..=MOST_PERMITS).contains(&self.permits) {
            return Err(LockError::InvalidOption {
                option: "permits",
                value: self.permits.to_string(),
                bound: format!("it must be 1 to {MOST_PERMITS}"),
            });
        }
        self.options.check()
    }

    fn refuse_own(&self) -> Result<(), LockError> {
        run::refuse_own(self.own(), self.name())
    }
}

impl IntoFuture for Semaphore {
    type Output = Result<Permit, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name())
            .field("permits", &self.permits)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
