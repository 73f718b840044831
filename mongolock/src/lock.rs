//! A lock, a set of locks and a semaphore: one type. What it acquires is a value, and its parameter says which guard its callers get.

pub(crate) mod kinds;
mod parts;
mod target;

use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

pub(crate) use self::target::Target;
use crate::context::LockContext;
use crate::core::Wanted;
use crate::engine::{About, AcquireCall, Engine, Hold};
use crate::name::RenderedName;
use crate::options::{self, OnBusy, Options};
use crate::output;
use crate::run::{Acquiring, Body};
use crate::{LockError, LockOutput, permit_id};

/// A lock with its options, which can be acquired: a [`DistributedLock`](crate::DistributedLock), a [`LockSet`](crate::LockSet) or a [`Semaphore`](crate::Semaphore), by its
/// [kind](LockKind).
///
/// It gives mutual exclusion across all processes that use the same collection, for as long as a lease lasts. The value
/// itself holds nothing. It is acquired with [`acquire`](Self::acquire), [`try_acquire`](Self::try_acquire) or
/// [`run`](Self::run), or by awaiting it, any number of times.
///
/// Write the name of the kind if you know it. A function for all kinds has a type parameter:
///
/// ```
/// use mongolock::{Lock, LockError, LockKind};
///
/// /// The guard or the permit, after one attempt and a last one.
/// async fn twice<K: LockKind>(lock: &Lock<K>) -> Result<Option<K::Guard>, LockError> {
///     match lock.try_acquire().await? {
///         None => lock.try_acquire().await,
///         held => Ok(held),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let (guard, permit) = (twice(&provider.lock("a")).await?, twice(&provider.semaphore("b", 5)).await?);
/// assert!(guard.is_some() && permit.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is held before it is awaited, acquired or run; then bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases it at once"]
pub struct Lock<K> {
    engine: Arc<Engine>,
    target: Target,
    pub(crate) options: Arc<Options>,
    kind: PhantomData<fn() -> K>,
}

/// The kind of a [`Lock`]: [one](crate::One) lock, [several](crate::Several) locks, or [permits](crate::Permits). No
/// other crate can implement it.
#[expect(private_bounds, reason = "no type of another crate can be a kind")]
pub trait LockKind: Kind {
    /// The type of a hold for its caller: a [`LockGuard`](crate::LockGuard), or a [`Permit`](crate::Permit) of a semaphore.
    type Guard: From<Hold> + Send + 'static;
}

/// A kind of this crate, of which there is no value.
pub(crate) trait Kind: Clone + fmt::Debug + Send + Sync + Unpin + 'static {}

impl<K: LockKind> Lock<K> {
    pub(crate) fn new(engine: &Arc<Engine>, target: Target) -> Self {
        Self {
            engine: Arc::clone(engine),
            target,
            options: Arc::clone(&engine.config.options),
            kind: PhantomData,
        }
    }

    pub(crate) fn with(self, options: Arc<Options>) -> Self {
        Self { options, ..self }
    }

    options::lease_setters!(options);

    /// Waits for the lock and acquires it: all locks of a set, or any permit of a semaphore. Awaiting the value itself does
    /// the same.
    ///
    /// # Errors
    ///
    /// - [`LockError::Timeout`] if another holder still has the lock at the acquire timeout. For a set the error names
    ///   a lock that is held, and for a semaphore the holder of the permit whose lease ends first.
    /// - [`LockError::Done`] if the work under the lock is done, with [`once_per`](Self::once_per) or
    ///   [`once`](Self::once).
    /// - [`LockError::Mongo`] if MongoDB has given no usable reply by the acquire timeout. The call ends earlier if the
    ///   server has refused the user for 10 s (a missing privilege, a refused log-in). It ends at once if no repetition
    ///   can succeed, for instance if a validator refuses the document, or if the client has never been able to log in.
    /// - [`LockError::InvalidName`] and [`LockError::InvalidOption`] before anything is sent. A set must have 1 to 500
    ///   names, and a semaphore 1 to 1000 permits.
    /// - [`LockError::Reentrant`] inside a body, or a [`LockContext::scope`](crate::LockContext::scope), that already runs
    ///   under this lock, under one lock of this set, or under a permit of this semaphore: waiting for it would be a
    ///   deadlock.
    /// - [`LockError::CorruptDocument`] if the document of the lock cannot be read.
    /// - [`LockError::ShutDown`] after [`LockProvider::shutdown`](crate::LockProvider::shutdown).
    ///
    /// If the caller holds only a guard of the lock, a second acquire is not detected: the call waits until the guard is
    /// dropped, or until the timeout.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a request in flight is completed on a task of its own, and a lock that it acquires is released.
    /// Drop the future or keep polling it: a future that is kept without being polled may have acquired the lock, and
    /// the lease is then renewed.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    #[must_use = "the lock is held only while its guard lives: bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases the lock at once"]
    pub fn acquire(&self) -> impl Future<Output = Result<K::Guard, LockError>> + Send + use<K> {
        // The call takes the place of the lock. An `async` block would have room for both, and for the call twice.
        let mut call = Err(self.clone());
        poll_fn(move |cx| {
            if let Err(lock) = &call {
                call = Ok(Some(lock.begin_alone(OnBusy::Wait)?));
            }
            let Ok(Some(begun)) = &mut call else {
                return Poll::Pending;
            };
            let acquired = ready!(Pin::new(begun).poll(cx));
            call = Ok(None);
            Poll::Ready(acquired.map(K::Guard::from))
        })
    }

    /// Acquires the lock if it is free, without waiting for its holder; `None` if it is held.
    ///
    /// The call makes at most one attempt. Its time limit is the acquire timeout, or 10 s if that is 0 or `None`. If this
    /// process itself holds the lock, the result is `None` without a request. If other callers of this process wait, one
    /// request is sent for this call, because only a request that is sent after its beginning can show that the lock is
    /// held. If the call gets only some locks of a set, they are released again.
    ///
    /// For a semaphore it returns `None` only after a query that found no free permit. If other callers are faster each
    /// time, it repeats until its time limit. Callers that already wait in this process come first.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire) except [`LockError::Timeout`]: a held lock is `None`. For a semaphore
    /// [`LockError::Timeout`] means that the call has reached its time limit without such a query.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`acquire`](Self::acquire) is.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    #[must_use = "the lock is held only while its guard lives: bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases the lock at once"]
    pub async fn try_acquire(&self) -> Result<Option<K::Guard>, LockError> {
        match self.begin_alone(OnBusy::TryOnce)?.await {
            Ok(hold) => Ok(Some(hold.into())),
            Err(LockError::Busy { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs a body under the lock, under all locks of a set, or under a permit, and then releases it: the closure form of
    /// `#[distributed_lock]`.
    ///
    /// The body gets the [`LockContext`], which is also [`LockContext::current`] for the code that it calls. When the
    /// lock is lost, the body is cancelled at its next await point, and the call returns [`LockError::Lost`].
    ///
    /// The lock does not cover tasks that the body spawns: await them in the body.
    ///
    /// Inside a body that already runs under a lock of the same name and provider, or under a permit of the same semaphore,
    /// the call joins that hold instead of deadlocking: it has the same token, sends nothing, and its own lock options do not
    /// apply.
    ///
    /// If the caller already runs under some locks of a set, the call joins those holds, and acquires the other locks.
    /// It then holds some locks while it waits for others, which can be a **deadlock**: such a wait ends at the
    /// `acquire_timeout`, and after 10 s at the latest. Acquire all locks at the outermost call instead.
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
    /// The error of the body. Otherwise a [`LockError`], converted into the body's error type: those of
    /// [`acquire`](Self::acquire) except [`LockError::Reentrant`], and [`LockError::Lost`] if the lock was lost before the
    /// body ended. With [`once_per`](Self::once_per) or [`once`](Self::once) also those of [`LockGuard::done`](crate::LockGuard::done), because
    /// without the mark the work may run again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body first, and then releases the lock in the background.
    ///
    /// # Panics
    ///
    /// If the body panics: the panic continues after the release. Outside a tokio runtime with time enabled.
    pub fn run<F, B>(&self, body: F) -> impl Future<Output = B::Output> + use<K, F, B>
    where
        F: FnOnce(LockContext) -> B,
        B: Future,
        B::Output: LockOutput,
    {
        let lock = self.clone();
        let acquiring: Acquiring = Box::pin(async move { Ok(lock.hold(OnBusy::Wait).await?) });
        async move {
            let acquired = match acquiring.await {
                Ok(acquired) => acquired,
                Err(error) => return LockOutput::from_lock_error(*error),
            };
            let body = pin!(Body::new(body(acquired.context())));
            acquired.run(body, output::output()).await
        }
    }

    /// Begins a call of a caller that does not hold the lock itself.
    fn begin_alone(&self, on_busy: OnBusy) -> Result<AcquireCall, LockError> {
        self.check()?;
        self.refuse_own()?;
        self.begin(on_busy)
    }

    fn begin(&self, on_busy: OnBusy) -> Result<AcquireCall, LockError> {
        let (names, title) = (&self.target.names, self.target.title);
        let about = About {
            names: names.iter().map(|name| Arc::clone(&name.text)).collect(),
            title,
            template: names[title].template,
            options: Arc::clone(&self.options),
            resumes: None,
            is_inside_hold: LockContext::is_inside_hold(&self.engine),
            on_busy,
        };
        AcquireCall::begin(&self.engine, about, self.wanted(), &self.engine.owner)
    }

    /// What the core is asked for.
    fn wanted(&self) -> Wanted {
        let text = |name: &RenderedName| Arc::clone(&name.text);
        match (&*self.target.names, self.target.permits) {
            ([name], Some(number)) => Wanted::Permit(permit_id::group(&name.text), number),
            ([name], None) => Wanted::Lock(text(name)),
            (names, _) => Wanted::All(names.iter().map(text).collect()),
        }
    }

    fn check(&self) -> Result<(), LockError> {
        self.target.check()?;
        // The provider has checked its own options.
        let is_checked = Arc::ptr_eq(&self.options, &self.engine.config.options);
        if is_checked { Ok(()) } else { self.options.check() }
    }

    /// Returns an error if the caller itself holds the lock: waiting for it would be a deadlock.
    fn refuse_own(&self) -> Result<(), LockError> {
        let is_own = |name: &&RenderedName| {
            let own = LockContext::enclosing(&self.engine, |lease| self.target.is_hold(lease, &name.text));
            own.is_some_and(|(_, lease)| !lease.is_over())
        };
        let own = self.target.names.iter().find(is_own);
        let own = own.map(|name| name.text.to_string());
        own.map_or(Ok(()), |name| Err(LockError::Reentrant { name }))
    }
}

impl<K: LockKind> IntoFuture for Lock<K> {
    type Output = Result<K::Guard, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
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
        let most = [96, 256, 1024];
        assert!(
            sizes.iter().zip(most).all(|(size, most)| *size <= most),
            "{sizes:?}"
        );
        body.await.unwrap();
    }
}
