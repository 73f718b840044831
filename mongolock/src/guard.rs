use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use scopeguard::ScopeGuard;

use crate::context::LockContext;
use crate::engine::{Hold, Lease};
use crate::options::not_once;
use crate::{FencingToken, LockError, permit_id};

/// A held lock, or the held locks of a [`LockSet`](crate::LockSet), which have one lease. The locks of a set are released
/// together. If one of them is lost, all are lost. Its methods are those of [`Guard`].
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
pub type LockGuard = Guard<FencingToken>;

/// A held permit of a [`Semaphore`](crate::Semaphore). A permit has no fencing token; see [`Semaphore`](crate::Semaphore).
/// Its methods are those of [`Guard`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let permit = provider.semaphore("export", 5).await?;
/// assert!(permit.number() < 5);
/// permit.release().await?;
/// # Ok(())
/// # }
/// ```
pub type Permit = Guard<()>;

/// A hold of a caller: a [`LockGuard`], which has a token of the type `T`, or a [`Permit`] of a semaphore, which has none.
/// Its lease is renewed in the background until the guard is released or dropped.
///
/// [`release`](Self::release) waits for the server's confirmation and returns an error if the lock was not held to the
/// end. Dropping the guard also releases the lock, in the background; it may be dropped on any thread, inside or
/// outside a runtime. If the runtime ends before the release is sent, the lease expires on its own.
///
/// Bind the guard to a named variable such as `_guard`. `let _ = …` drops it, and releases the lock, at once.
#[must_use = "the lock is held only while its guard lives: bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases the lock at once"]
pub struct Guard<T> {
    /// It is made when it is first used.
    context: OnceLock<CallContext>,
    pub(crate) hold: Hold,
    token: PhantomData<fn() -> T>,
}

/// The context of a call, which ends with it.
pub(crate) type CallContext = ScopeGuard<LockContext, fn(LockContext)>;

pub(crate) fn of_call(context: LockContext) -> CallContext {
    scopeguard::guard(context, |context| context.close())
}

impl<T> From<Hold> for Guard<T> {
    fn from(hold: Hold) -> Self {
        let (context, token) = (OnceLock::new(), PhantomData);
        Self { context, hold, token }
    }
}

impl<T> Guard<T> {
    /// The name of the lock or of the semaphore; of a set the name that the caller has written first.
    pub fn name(&self) -> &str {
        self.lease().name()
    }

    /// The context of this hold, for code that needs the fencing token or must notice the loss of the lock. That of a permit has no
    /// fencing token.
    pub fn context(&self) -> LockContext {
        let context = || of_call(LockContext::of(self.lease()));
        LockContext::clone(self.context.get_or_init(context))
    }

    /// Whether the lock is no longer held: no renewal was confirmed in time, the lock was released by force or its
    /// document changed, or the provider was shut down.
    pub fn is_lost(&self) -> bool {
        self.lease().is_over()
    }

    /// Waits until the lock is lost. It returns when the lease ends by this process's own clock, at the latest.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub async fn lost(&self) {
        Lease::until_one_over(std::iter::once(self.lease())).await;
    }

    /// The time until the lease ends if it is not renewed again; zero once the lock is lost.
    pub fn remaining(&self) -> Duration {
        self.lease().remaining()
    }

    /// Checks that the lock is still held. Call it before a step that must not be taken without the lock.
    ///
    /// The check reads this process's own clock and sends no command. It does not protect data against a pause right
    /// after it; the [fencing token](Self::fencing_token) does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let guard = provider.lock("report:1").await?;
    /// for page in 0..3 {
    ///     guard.ensure_held()?;
    ///     println!("writing page {page}");
    /// }
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lease is over.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        self.lease().ensure_held()
    }

    /// Releases the lock and waits until the server confirms it.
    ///
    /// # Errors
    ///
    /// - [`LockError::Lost`] if the lock was lost before: another holder may have worked at the same time.
    /// - [`LockError::Mongo`] if MongoDB refused the release, or did not confirm it within 6 s. Unless it was refused,
    ///   the release is repeated in the background until the lease ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once the future was polled, the release is completed even if the future is dropped. Before that,
    /// dropping the future drops the guard, which releases the lock in the background.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled. The lock is then released in the background.
    pub async fn release(mut self) -> Result<(), LockError> {
        self.hold.release().await
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        self.hold.lease()
    }
}

impl LockGuard {
    /// The fencing token of this hold for [`name`](Self::name). It is greater than those of all earlier holds of that lock.
    pub fn fencing_token(&self) -> FencingToken {
        self.lease().token()
    }

    /// The names of all locks of the guard in their order, each once: one name, unless it is the guard of a set.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let guard = provider.lock_all(["report:2", "report:1"]).await?;
    /// assert_eq!(guard.name(), "report:2");
    /// for name in guard.names() {
    ///     println!("{name} is held with token {:?}", guard.fencing_token_of(name));
    /// }
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> + Send {
        self.lease().tokens().map(|(name, _)| &**name)
    }

    /// The fencing token of this hold for one of its names; `None` for another name. Tokens of different names are not
    /// ordered among each other.
    pub fn fencing_token_of(&self, name: &str) -> Option<FencingToken> {
        self.lease().token_of(name)
    }

    /// Marks the work under the lock as done, and waits until the server confirms it. The lock then stays taken until the
    /// end of the mark, for every process: see [`DistributedLock::once_per`](crate::DistributedLock::once_per) and
    /// [`DistributedLock::once`](crate::DistributedLock::once), one of which the lock must have.
    ///
    /// If the period has ended in the meantime, the lock is released instead. The request is repeated until the server has
    /// confirmed it, or until the lease ends, even if the future is dropped or the provider is
    /// [shut down](crate::LockProvider::shutdown). Meanwhile the lease is renewed, even beyond `max_hold`: for one `expiry`
    /// after the work has ended, and for 60 s at least. A guard that is released or dropped without `done` leaves no mark,
    /// so that another process runs the work.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use mongolock::{LockError, LockProvider};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let provider = LockProvider::in_memory();
    /// let nightly = provider.lock("nightly").once_per(Duration::from_secs(24 * 60 * 60));
    /// let guard = nightly.acquire().await?;
    /// // The work.
    /// guard.done().await?;
    /// assert!(matches!(nightly.acquire().await, Err(LockError::Done { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`LockError::InvalidOption`] if the lock has neither `once_per` nor `once`: it is released.
    /// - [`LockError::Lost`] if the lock was lost before, or if the server cannot confirm that this hold had it until
    ///   the end of the period: another holder may do the work again.
    /// - [`LockError::Mongo`] if MongoDB did not confirm the mark while the lease lasted: the work may run again, and
    ///   the error says for how long the lock stays taken. If the mark was refused for good, by a validator, a unique
    ///   index, or for 10 s for a missing right or a refused log-in, the lock is released.
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the work counts as done, and the mark is written even if the future is dropped.
    /// Before that, dropping the future drops the guard, which releases the lock.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled. The lock is then released in the background.
    pub async fn done(mut self) -> Result<(), LockError> {
        if self.lease().about.options.once.is_none() {
            return Err(not_once("done"));
        }
        self.hold.mark().await
    }
}

impl Permit {
    /// The number of this permit, from 0, as [`LockInfo::permit`](crate::LockInfo::permit) shows it and
    /// [`ForceRelease::permit`](crate::ForceRelease::permit) takes it.
    pub fn number(&self) -> u32 {
        permit_id::number(&self.lease().key().name).unwrap_or_default()
    }
}

impl<T> fmt::Debug for Guard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.fmt(f)
    }
}
