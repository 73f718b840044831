//! The items that the expansion of `#[distributed_lock]` names. They are not part of the public interface: any release
//! may change them.

use std::fmt::{self, Display, Write};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::lock::{DistributedLock, OnBusy};
use crate::once::Once;
use crate::options::Options;
pub use crate::output::{Output, output};
use crate::run::OnLost;
pub use crate::run::{Acquired, Finished, LockedBody};
use crate::{LockError, LockProvider};
pub use crate::{LockOutput, Skipped};

/// A lock's name while it is rendered.
#[derive(Debug, Default)]
pub struct Name {
    rendered: String,
    /// The first placeholder whose value rendered to an empty string.
    empty: Option<&'static str>,
}

/// A value that a placeholder in a lock name can stand for.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used in a lock name",
    label = "it does not implement `std::fmt::Display`",
    note = "implement `Display` for `{Self}`, or name a field or an argument-less method of it that does"
)]
pub trait NameValue: Display {}

impl<T: Display + ?Sized> NameValue for T {}

impl Name {
    /// An empty name.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends fixed text.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.rendered.push_str(text);
        self
    }

    /// Appends the value of a placeholder.
    #[must_use]
    pub fn value<T: NameValue + ?Sized>(mut self, placeholder: &'static str, value: &T) -> Self {
        let before = self.rendered.len();
        let written = write!(self.rendered, "{value}");
        if self.rendered.len() == before || written.is_err() {
            self.empty.get_or_insert(placeholder);
        }
        self
    }

    fn finish(self) -> Result<String, LockError> {
        match self.empty {
            None => Ok(self.rendered),
            Some(placeholder) => Err(LockError::InvalidName {
                name: self.rendered,
                reason: format!(
                    "`<{placeholder}>` rendered to an empty string, with which different values would share one lock"
                ),
            }),
        }
    }
}

// The return type is the only generic argument of these functions. The compiler then reports a return type that cannot
// carry an error once, at the place where the type is written.

/// Releases the lock after the body, and returns the return value of the call. The type has no bound, because the
/// compiler would report the bound of an opaque future a second time, at the attribute.
pub fn finish<T>(finished: Finished<T>, output: Output<T>) -> impl Future<Output = T> {
    finished.finish(output)
}

/// The return value of a call whose lock was not acquired.
#[must_use]
pub fn failed<T: LockOutput>(error: LockError) -> T {
    T::from_lock_error(error)
}

/// The return value of a call whose body did not run because another holder has the lock.
#[must_use]
pub fn skipped<T: SkipOutput>() -> T {
    T::skipped()
}

/// Both conditions of `on_busy = "skip"` as one, so that the compiler reports a type that meets neither only once.
pub trait SkipOutput {
    /// The value of a call whose body did not run.
    fn skipped() -> Self;
}

impl<T: LockOutput<Success: Skipped>> SkipOutput for T {
    fn skipped() -> Self {
        T::from_success(T::Success::skipped())
    }
}

/// Decides what a call with `once` or `once_per` returns whose body did not run: the skipped value if the work is done and
/// the type has one, and otherwise the error.
///
/// The compiler finds [`SkipsWhenDone`] first, because it takes one reference less, and [`FailsWhenDone`] for a type that
/// cannot be skipped.
#[derive(Debug)]
pub struct NotRun<T>(PhantomData<T>);

impl<T> NotRun<T> {
    /// The decision for this return type.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "only the expansion makes one")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

/// A return type with a skipped value.
pub trait SkipsWhenDone {
    /// The return type.
    type Output;

    /// The return value for this error.
    fn outcome(&self, error: LockError) -> Self::Output;
}

impl<T: SkipOutput + LockOutput> SkipsWhenDone for NotRun<T> {
    type Output = T;

    fn outcome(&self, error: LockError) -> T {
        match error {
            LockError::Done { .. } => <T as SkipOutput>::skipped(),
            error => T::from_lock_error(error),
        }
    }
}

/// A return type without a skipped value.
pub trait FailsWhenDone {
    /// The return type.
    type Output;

    /// The return value for this error.
    fn outcome(&self, error: LockError) -> Self::Output;
}

impl<T: LockOutput> FailsWhenDone for &NotRun<T> {
    type Output = T;

    fn outcome(&self, error: LockError) -> T {
        T::from_lock_error(error)
    }
}

/// One call of an annotated function: its provider and its options.
pub struct Call {
    provider: Result<LockProvider, LockError>,
    options: Arc<Options>,
    /// Whether the attribute itself sets an `acquire_timeout`.
    has_acquire_timeout: bool,
    on_lost: OnLost,
}

impl Call {
    /// A call with the provider of the enclosing `LockProvider::scope`, or else the global one.
    #[must_use]
    pub fn global() -> Self {
        Self::new(LockProvider::global())
    }

    /// A call with this provider.
    #[must_use]
    pub fn on<P: AsRef<LockProvider> + ?Sized>(provider: &P) -> Self {
        Self::new(Ok(provider.as_ref().clone()))
    }

    fn new(provider: Result<LockProvider, LockError>) -> Self {
        let options = provider
            .as_ref()
            .map(|provider| Arc::clone(provider.options()))
            .unwrap_or_default();
        Self {
            provider,
            options,
            has_acquire_timeout: false,
            on_lost: OnLost::Cancel,
        }
    }

    /// Sets `expiry`.
    #[must_use]
    pub fn expiry(mut self, millis: u64) -> Self {
        Arc::make_mut(&mut self.options).expiry = Duration::from_millis(millis);
        self
    }

    /// Sets `renew_interval`.
    #[must_use]
    pub fn renew_interval(mut self, millis: u64) -> Self {
        Arc::make_mut(&mut self.options).renew_interval = Some(Duration::from_millis(millis));
        self
    }

    /// Sets `acquire_timeout`; `None` waits without a limit.
    #[must_use]
    pub fn acquire_timeout(mut self, millis: Option<u64>) -> Self {
        let options = Arc::make_mut(&mut self.options);
        options.acquire_timeout = millis.map(Duration::from_millis);
        options.has_own_timeout = true;
        self.has_acquire_timeout = true;
        self
    }

    /// Sets `min_hold`.
    #[must_use]
    pub fn min_hold(mut self, millis: u64) -> Self {
        Arc::make_mut(&mut self.options).min_hold = Duration::from_millis(millis);
        self
    }

    /// Sets `once_per`.
    #[must_use]
    pub fn once_per(mut self, millis: u64) -> Self {
        Arc::make_mut(&mut self.options).set_once(Once::PerPeriod(Duration::from_millis(millis)));
        self
    }

    /// Sets `once`: marks are kept for the retention of the provider.
    #[must_use]
    pub fn once(mut self) -> Self {
        if let Ok(provider) = &self.provider {
            Arc::make_mut(&mut self.options).set_once(Once::Kept(provider.retention()));
        }
        self
    }

    /// Sets `max_hold`.
    #[must_use]
    pub fn max_hold(mut self, millis: u64) -> Self {
        Arc::make_mut(&mut self.options).max_hold = Some(Duration::from_millis(millis));
        self
    }

    /// Sets `on_lost = "continue"`.
    #[must_use]
    pub fn continue_when_lost(mut self) -> Self {
        self.on_lost = OnLost::Continue;
        self
    }

    /// Sets `release`: whether the call waits until the release is confirmed.
    #[must_use]
    pub fn await_release(mut self, await_release: bool) -> Self {
        Arc::make_mut(&mut self.options).await_release = await_release;
        self
    }

    // These are not `async fn`s: they use their arguments before the future begins, so that the future does not contain
    // them.

    /// Acquires the lock with `on_busy = "wait"`.
    pub fn wait(self, name: Name) -> impl Future<Output = Result<Acquired, LockError>> {
        self.hold(name, OnBusy::Wait)
    }

    /// Acquires the lock with `on_busy = "fail"`.
    pub fn fail(self, name: Name) -> impl Future<Output = Result<Acquired, LockError>> {
        self.hold(name, OnBusy::TryOnce)
    }

    /// Acquires the lock with `on_busy = "skip"`: it makes one attempt, or waits for the `acquire_timeout` if the
    /// attribute itself sets one.
    pub fn skip(self, name: Name) -> impl Future<Output = Result<Option<Acquired>, LockError>> {
        let on_busy = if self.has_acquire_timeout {
            OnBusy::Wait
        } else {
            OnBusy::TryOnce
        };
        let acquiring = self.hold(name, on_busy);
        async move {
            match acquiring.await {
                Ok(acquired) => Ok(Some(acquired)),
                Err(LockError::Busy { .. } | LockError::Timeout { .. } | LockError::Done { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        }
    }

    fn hold(self, name: Name, on_busy: OnBusy) -> impl Future<Output = Result<Acquired, LockError>> {
        let on_lost = self.on_lost;
        let lock = self.lock(name);
        async move {
            let lock = lock?;
            lock.hold(on_busy, on_lost).await
        }
    }

    fn lock(self, name: Name) -> Result<DistributedLock, LockError> {
        let name = name.finish()?;
        Ok(self.provider?.named(name.into()).with(self.options))
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}
