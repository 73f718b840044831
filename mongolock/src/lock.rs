use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::Acquire;
use crate::context::LockContext;
use crate::engine::Engine;
use crate::options::Options;
use crate::run::{Acquired, OnLost};
use crate::{LockError, LockGuard, LockOutput, name, output};

/// A lock by name, with the options under which it is acquired. Made by [`LockProvider::lock`](crate::LockProvider::lock).
///
/// Nothing happens until it is awaited, acquired or run; it can be used any number of times.
///
/// ```
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let lock = provider.lock("report:1").expiry(Duration::from_secs(60)).acquire_timeout(Duration::from_secs(5));
/// let guard = lock.acquire().await?;
/// assert!(lock.try_acquire().await?.is_none(), "it is held");
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a lock is not held before it is awaited, acquired or run"]
pub struct DistributedLock {
    engine: Arc<Engine>,
    name: Arc<str>,
    options: Options,
}

/// What a call does when the lock is held by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnBusy {
    Wait,
    /// The call tries once and returns.
    TryOnce,
}

impl DistributedLock {
    pub(crate) fn new(engine: &Arc<Engine>, name: Arc<str>) -> Self {
        Self {
            engine: Arc::clone(engine),
            name,
            options: engine.config.options.clone(),
        }
    }

    pub(crate) fn with(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long the lease lasts without a renewal: 100 ms to 7 days, in whole milliseconds.
    ///
    /// It bounds how long others wait after this process crashed, and how long an outage the hold survives. A
    /// `renew_interval` that nobody set stays a third of it.
    pub fn expiry(mut self, expiry: Duration) -> Self {
        self.options.expiry = expiry;
        self
    }

    /// How often the lease is renewed: above 0 and below `expiry`.
    pub fn renew_interval(mut self, interval: Duration) -> Self {
        self.options.renew_interval = Some(interval);
        self
    }

    /// How long to wait for the lock: 0 to 7 days, or `None` to wait as long as others hold it. With 0 it asks once.
    ///
    /// Also with `None` the wait ends when MongoDB has given no usable answer about the lock for a minute, with the last
    /// error. The minute is the same for all callers in the process; one that begins later waits for 10 s at least.
    pub fn acquire_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options.acquire_timeout = timeout.into();
        self
    }

    /// How long the lock stays taken at the least, counted from its acquisition: 0 to 7 days. A release before that
    /// returns at once and lets nobody else in until then.
    pub fn min_hold(mut self, hold: Duration) -> Self {
        self.options.min_hold = hold;
        self
    }

    /// No renewal after this time, counted from the acquisition: 0 to 7 days. The cap for a body that hangs and for a
    /// guard that was leaked; the lock is lost at most one `expiry` later.
    pub fn max_hold(mut self, hold: Duration) -> Self {
        self.options.max_hold = Some(hold);
        self
    }

    /// Whether [`run`](Self::run) waits until MongoDB has confirmed the release; `true` unless the provider says otherwise.
    ///
    /// With `false` the call returns when its body has ended, which saves one of its two round trips. The release is sent
    /// at once by a task of the provider and is repeated like any other, and
    /// [`shutdown`](crate::LockProvider::shutdown) waits for it. Until it is sent, the next caller in this process can take
    /// the lock over without a command; after that, it waits for the reply. At most 256 such releases of a provider are
    /// pending; beyond that, calls wait.
    ///
    /// The call reports a loss only if it is known when the body ends: if the release finds that the claim is gone, only
    /// the event `mongolock.lost` says so. Do not use it in programs that end without `shutdown`, or where a caller expects
    /// that another process can acquire the lock as soon as the call has returned.
    ///
    /// It does not apply to guards: [`LockGuard::release`] always waits.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let lock = provider.lock("counter:1").await_release(false);
    /// for _ in 0..3 {
    ///     lock.run(|_| async { Ok::<_, mongolock::LockError>(()) }).await?;
    /// }
    /// provider.shutdown().await; // the last release is confirmed
    /// # Ok(())
    /// # }
    /// ```
    pub fn await_release(mut self, await_release: bool) -> Self {
        self.options.await_release = await_release;
        self
    }

    /// Waits for the lock and acquires it. Awaiting the lock itself does the same.
    ///
    /// # Errors
    ///
    /// [`LockError::Timeout`] at the acquire timeout, or [`LockError::Mongo`] if MongoDB gave no usable answer by then;
    /// an error that waiting cannot mend (no rights, wrong credentials) at once. [`LockError::InvalidName`] and
    /// [`LockError::InvalidOption`] before anything is sent, [`LockError::Reentrant`] inside a body (or a
    /// [`LockContext::scope`](crate::LockContext::scope)) that runs under this very lock, [`LockError::ShutDown`] after
    /// `shutdown`. A second acquire beside a guard of one's own is no error: it waits.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a request that is under way runs to its end on a task of its own, and what it may have acquired is
    /// released. Drop the future, or go on polling it: one that is kept and not polled may have acquired the lock, which
    /// is renewed then.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub fn acquire(&self) -> impl Future<Output = Result<LockGuard, LockError>> + Send + use<> {
        let lock = self.clone();
        async move {
            lock.check()?;
            lock.refuse_own()?;
            let hold = lock.acquiring().wait().await?;
            Ok(LockGuard::new(hold, &lock.engine))
        }
    }

    /// Acquires the lock if it is free now: at most one request, bounded by the acquire timeout or 10 s. None is sent
    /// if this process itself holds or awaits the lock.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but for `Timeout`: a held lock is `None`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`acquire`](Self::acquire) is.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
        self.check()?;
        self.refuse_own()?;
        let hold = self.acquiring().try_once().await?;
        Ok(hold.map(|hold| LockGuard::new(hold, &self.engine)))
    }

    /// Runs a body under the lock: the attribute as a function.
    ///
    /// The body gets the [`LockContext`], which is also its current one. When the lock is lost, the body is dropped at
    /// its next await point and the call returns [`LockError::Lost`]. Within a hold of the same name it joins that.
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
    /// What the body returns; or a [`LockError`] as for [`acquire`](Self::acquire), or `Lost`, in the body's own type.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the body and then releases the lock in the background.
    ///
    /// # Panics
    ///
    /// When the body does, after the release; and outside a tokio runtime with time enabled.
    pub fn run<F, B>(&self, body: F) -> impl Future<Output = B::Output> + use<F, B>
    where
        F: FnOnce(LockContext) -> B,
        B: Future,
        B::Output: LockOutput,
    {
        let lock = self.clone();
        async move {
            match lock.hold(OnBusy::Wait, OnLost::Cancel).await {
                Ok(Some(acquired)) => {
                    let body = body(acquired.context().clone());
                    acquired.run(body).await.finish(output::output()).await
                }
                Ok(None) => LockOutput::from_lock_error(lock.busy_error()),
                Err(error) => LockOutput::from_lock_error(error),
            }
        }
    }

    /// Acquires the lock for a body, or joins the hold that the caller already runs under.
    pub(crate) async fn hold(&self, on_busy: OnBusy, on_lost: OnLost) -> Result<Option<Acquired>, LockError> {
        self.check()?;
        if let Some(outer) = LockContext::enclosing(&self.engine, &self.name) {
            return join(&outer, on_busy, on_lost).await;
        }
        let acquire = self.acquiring();
        let hold = match on_busy {
            OnBusy::Wait => Some(acquire.wait().await?),
            OnBusy::TryOnce => acquire.try_once().await?,
        };
        Ok(hold.map(|hold| {
            Acquired::own(
                LockGuard::new(hold, &self.engine),
                self.options.await_release,
                on_lost,
            )
        }))
    }

    pub(crate) fn busy_error(&self) -> LockError {
        LockError::Busy {
            name: self.name.to_string(),
        }
    }

    fn acquiring(&self) -> Acquire<'_> {
        Acquire::new(&self.engine, &self.name, &self.options)
    }

    fn check(&self) -> Result<(), LockError> {
        name::check(&self.name)?;
        self.options.check()
    }

    fn refuse_own(&self) -> Result<(), LockError> {
        match LockContext::enclosing(&self.engine, &self.name) {
            Some(own) if !own.is_lost() => Err(LockError::Reentrant {
                name: self.name.to_string(),
            }),
            _ => Ok(()),
        }
    }
}

/// Joins the hold of the enclosing call. That is busy only while another call runs within it; the options of the inner
/// call do not apply.
async fn join(outer: &LockContext, on_busy: OnBusy, on_lost: OnLost) -> Result<Option<Acquired>, LockError> {
    let lease = outer.lease();
    lease.ensure_held()?;
    let inner_calls = outer.inner_calls();
    let permit = match on_busy {
        OnBusy::TryOnce => inner_calls.try_acquire_owned().ok(),
        OnBusy::Wait => tokio::select! {
            biased;
            permit = inner_calls.acquire_owned() => permit.ok(),
            () = lease.until_over() => return Err(lease.lost_error()),
        },
    };
    // The wait for a sibling may have outlasted the hold.
    lease.ensure_held()?;
    Ok(permit.map(|permit| Acquired::joined(outer, permit, on_lost)))
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
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    /// The futures of calls nest, so that the size of one of them counts at every level of an application.
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
