//! What the expansion of `#[distributed_lock]` names. Not part of the public interface: it changes with any release.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use crate::lock::{DistributedLock, OnBusy};
use crate::options::Options;
pub use crate::output::{Output, output};
use crate::run::OnLost;
pub use crate::run::{Acquired, Finished, LockedBody};
use crate::{LockError, LockProvider};
pub use crate::{LockOutput, Skipped};

/// A lock's name while it is put together.
#[derive(Debug, Default)]
pub struct Name {
    rendered: String,
    /// The first placeholder whose value was rendered as an empty string.
    empty: Option<&'static str>,
}

/// A value that a placeholder of a lock name can stand for.
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
                    "`<{placeholder}>` was rendered as nothing; different values would share one lock"
                ),
            }),
        }
    }
}

// Functions with the return type as their one generic argument: the compiler then reports a type that cannot carry
// an error at the place where that type is written, and only once.

/// Releases the lock after the body and returns what the call returns. The type has no bound: that of an opaque future
/// would be reported a second time, at the attribute.
pub fn finish<T>(finished: Finished<T>, output: Output<T>) -> impl Future<Output = T> {
    finished.finish(output)
}

/// What the call returns if the lock was not acquired.
#[must_use]
pub fn failed<T: LockOutput>(error: LockError) -> T {
    T::from_lock_error(error)
}

/// What the call returns if its body did not run because the lock is held by another.
#[must_use]
pub fn skipped<T: SkipOutput>() -> T {
    T::skipped()
}

/// Both conditions of `on_busy = "skip"` as one, so that a type which meets neither is reported once.
pub trait SkipOutput {
    /// The value of a call whose body did not run.
    fn skipped() -> Self;
}

impl<T: LockOutput<Success: Skipped>> SkipOutput for T {
    fn skipped() -> Self {
        T::from_success(T::Success::skipped())
    }
}

/// One call of an annotated function: its provider and its options.
pub struct Call {
    provider: Result<LockProvider, LockError>,
    options: Options,
    /// Whether the attribute itself sets an `acquire_timeout`.
    has_acquire_timeout: bool,
    on_lost: OnLost,
}

impl Call {
    /// With the global provider, or that of the enclosing `LockProvider::scope`.
    #[must_use]
    pub fn global() -> Self {
        Self::new(LockProvider::global())
    }

    /// With this provider.
    #[must_use]
    pub fn on<P: AsRef<LockProvider> + ?Sized>(provider: &P) -> Self {
        Self::new(Ok(provider.as_ref().clone()))
    }

    fn new(provider: Result<LockProvider, LockError>) -> Self {
        let options = provider
            .as_ref()
            .map(|provider| provider.options().clone())
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
        self.options.expiry = Duration::from_millis(millis);
        self
    }

    /// Sets `renew_interval`.
    #[must_use]
    pub fn renew_interval(mut self, millis: u64) -> Self {
        self.options.renew_interval = Some(Duration::from_millis(millis));
        self
    }

    /// Sets `acquire_timeout`; `None` waits without a limit.
    #[must_use]
    pub fn acquire_timeout(mut self, millis: Option<u64>) -> Self {
        self.options.acquire_timeout = millis.map(Duration::from_millis);
        self.has_acquire_timeout = true;
        self
    }

    /// Sets `min_hold`.
    #[must_use]
    pub fn min_hold(mut self, millis: u64) -> Self {
        self.options.min_hold = Duration::from_millis(millis);
        self
    }

    /// Sets `max_hold`.
    #[must_use]
    pub fn max_hold(mut self, millis: u64) -> Self {
        self.options.max_hold = Some(Duration::from_millis(millis));
        self
    }

    /// `on_lost = "continue"`.
    #[must_use]
    pub fn continue_when_lost(mut self) -> Self {
        self.on_lost = OnLost::Continue;
        self
    }

    /// `release = "awaited"` or `release = "background"`.
    #[must_use]
    pub fn await_release(mut self, await_release: bool) -> Self {
        self.options.await_release = await_release;
        self
    }

    // These are no `async fn`s: their arguments are used before the future begins, and take no room in it.

    /// `on_busy = "wait"`.
    pub fn wait(self, name: Name) -> impl Future<Output = Result<Acquired, LockError>> {
        self.hold(name, OnBusy::Wait)
    }

    /// `on_busy = "fail"`.
    pub fn fail(self, name: Name) -> impl Future<Output = Result<Acquired, LockError>> {
        self.hold(name, OnBusy::TryOnce)
    }

    /// `on_busy = "skip"`: one attempt, or as long as an `acquire_timeout` of the attribute itself allows.
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
                Err(LockError::Busy { .. } | LockError::Timeout { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        }
    }

    fn hold(self, name: Name, on_busy: OnBusy) -> impl Future<Output = Result<Acquired, LockError>> {
        let on_lost = self.on_lost;
        let lock = self.lock(name);
        async move {
            let lock = lock?;
            lock.hold(on_busy, on_lost)
                .await?
                .ok_or_else(|| lock.busy_error())
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
