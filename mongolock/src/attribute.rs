//! The items that the expansions of `#[distributed_lock]` and `#[derive(LockName)]` use. They are not part of the
//! public interface: any release may change them.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error::Busy;
use crate::lock::Target;
pub use crate::name::{NameBuilder, NameValue, SignedInteger, UnsignedInteger, declared_lock_name};
use crate::options::{self, OnBusy, OnLost, Once, Options};
use crate::output::{self, Output};
pub use crate::run::{Acquired, Acquiring, Body};
use crate::{Lock, LockError, LockProvider, One};
pub use crate::{LockOutput, Skipped};

// The return type is the only generic argument of the functions that make a value of it. The compiler then reports a
// return type that cannot carry an error once, at the position of the type.

/// A return type of an annotated function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot report a failure to take the lock",
    label = "cannot carry a `mongolock::LockError`",
    note = "return a `Result<_, E>` where `E: From<mongolock::LockError>`: add a variant `Lock(#[from] mongolock::LockError)` to `E`, or return `anyhow::Result`; in place of an error type of another crate, return a type of your own that converts into it, or lock a function below and convert its error",
    note = "a type of your own that is not a `Result` implements `mongolock::LockOutput`"
)]
pub trait CallOutput: LockOutput {}

// The error names this trait, and not the trait behind it.
#[diagnostic::do_not_recommend]
impl<T: LockOutput> CallOutput for T {}

/// The function that puts an error into a return type.
pub fn output<T: CallOutput>() -> Output<T> {
    output::output()
}

/// The return value of a call whose lock was not acquired.
#[inline(never)]
#[expect(clippy::boxed_local, reason = "each annotated function passes it on as it is")]
pub fn failed<T: CallOutput>(error: Box<LockError>) -> T {
    T::from_lock_error(*error)
}

/// The return value of a call whose body did not run because another holder has the lock.
pub fn skipped<T: SkipOutput>() -> T {
    T::skipped()
}

/// Whether a call with `on_busy = "skip"` is skipped: another holder has the lock, or the work is done.
///
/// # Errors
/// Any other error.
pub fn skips(error: Box<LockError>) -> Result<(), Box<LockError>> {
    match *error {
        LockError::Done { .. } => Ok(()),
        _ => busy(error).map(drop),
    }
}

/// What is known of the other holder, for the function of `on_busy = path`.
///
/// # Errors
/// Any other error.
pub fn busy(error: Box<LockError>) -> Result<Busy, Box<LockError>> {
    Busy::of(&error).ok_or(error)
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

/// A return type with a skipped value, which a call with `once` or `once_per` returns if the work is done.
///
/// The compiler finds this trait first, because it takes one reference less, and [`FailsWhenDone`] for a type that cannot be
/// skipped. The choice does not require that the type can carry an error, which [`failed`] and `output` do.
pub trait SkipsWhenDone<T> {
    /// The skipped value if the work is done.
    ///
    /// # Errors
    /// Any other error.
    fn skipped_if_done(&self, error: Box<LockError>) -> Result<T, Box<LockError>>;
}

impl<T: SkipOutput> SkipsWhenDone<T> for PhantomData<T> {
    fn skipped_if_done(&self, error: Box<LockError>) -> Result<T, Box<LockError>> {
        match *error {
            LockError::Done { .. } => Ok(T::skipped()),
            _ => Err(error),
        }
    }
}

/// A return type without a skipped value.
pub trait FailsWhenDone<T> {
    /// Nothing, in the form of the error.
    ///
    /// # Errors
    /// Every error.
    fn skipped_if_done(&self, error: Box<LockError>) -> Result<T, Box<LockError>>;
}

impl<T> FailsWhenDone<T> for &PhantomData<T> {
    fn skipped_if_done(&self, error: Box<LockError>) -> Result<T, Box<LockError>> {
        Err(error)
    }
}

/// The value of `provider`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `LockProvider`",
    label = "`provider` must be `AsRef<LockProvider>`",
    note = "for a `static` of the type `LazyLock<LockProvider>` write `*` before its name, such as `provider = *LOCKS`"
)]
pub trait ProviderValue: AsRef<LockProvider> {}

// The error names this trait, and not the trait behind it.
#[diagnostic::do_not_recommend]
impl<T: AsRef<LockProvider> + ?Sized> ProviderValue for T {}

/// The value of `once_at`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a scheduled time",
    label = "`once_at` must be a `SystemTime`, or convert into one",
    note = "a `SystemTime` and a `DateTime<Utc>` of `chrono` are scheduled times; write `once_at = UNIX_EPOCH + Duration::from_secs(seconds)` for a number of seconds"
)]
pub trait TickValue: Clone + Into<SystemTime> {}

// The error names this trait, and not the trait behind it.
#[diagnostic::do_not_recommend]
impl<T: Clone + Into<SystemTime>> TickValue for T {}

/// What an annotated function acquires: a lock or a permit of a semaphore, or several locks.
#[derive(Debug)]
pub struct Names(Target);

impl From<NameBuilder> for Names {
    fn from(name: NameBuilder) -> Self {
        Self(Target::one(name.finish(), None))
    }
}

impl<const N: usize> From<[NameBuilder; N]> for Names {
    fn from(names: [NameBuilder; N]) -> Self {
        Self(Target::several(names.map(NameBuilder::finish).into()))
    }
}

/// One call of an annotated function: its provider and its options.
#[must_use]
pub struct Call {
    provider: Result<LockProvider, LockError>,
    options: Arc<Options>,
    /// The number of permits, if the name is that of a semaphore.
    permits: Option<u32>,
    /// The scheduled time that is a part of the name.
    tick: Option<SystemTime>,
}

impl Call {
    /// A call with the provider of the enclosing `LockProvider::scope`, or else the global one.
    pub fn global() -> Self {
        Self::new(LockProvider::global())
    }

    /// A call with this provider.
    pub fn on<P: ProviderValue + ?Sized>(provider: &P) -> Self {
        Self::new(Ok(provider.as_ref().clone()))
    }

    fn new(provider: Result<LockProvider, LockError>) -> Self {
        let options = provider
            .as_ref()
            .map(|provider| Arc::clone(&provider.engine.config.options))
            .unwrap_or_default();
        Self {
            provider,
            options,
            permits: None,
            tick: None,
        }
    }

    options::lease_setters!(options);

    /// Sets `once_per`.
    pub fn once_per(mut self, period: Duration) -> Self {
        Arc::make_mut(&mut self.options).set_once(Once::PerPeriod(period));
        self
    }

    /// Sets `once`: marks are kept for the retention of the provider.
    pub fn once(mut self) -> Self {
        if let Ok(provider) = &self.provider {
            Arc::make_mut(&mut self.options).set_once(Once::Kept(provider.engine.config.retention));
        }
        self
    }

    /// Sets `once_at`. The function can still move its argument.
    pub fn once_at<T: TickValue>(mut self, tick: &T) -> Self {
        self.tick = Some(tick.clone().into());
        self.once()
    }

    /// Sets `permits`: the name is that of a semaphore.
    pub fn permits(mut self, permits: u32) -> Self {
        self.permits = Some(permits);
        self
    }

    /// Sets `on_lost = "continue"`.
    pub fn continue_when_lost(mut self) -> Self {
        Arc::make_mut(&mut self.options).on_lost = OnLost::Continue;
        self
    }

    // These are not `async fn`s: they use their arguments before the future begins, so that the future does not contain
    // them.

    /// Acquires with `on_busy = "wait"`.
    pub fn wait<N: Into<Names>>(self, names: N) -> Acquiring {
        self.acquire(names.into(), OnBusy::Wait)
    }

    /// Acquires with `on_busy = "fail"`.
    pub fn fail<N: Into<Names>>(self, names: N) -> Acquiring {
        self.acquire(names.into(), OnBusy::TryOnce)
    }

    /// Acquires with `on_busy = "skip"` or `on_busy = path`: it makes one attempt, or waits for the `acquire_timeout` if the
    /// attribute itself sets one.
    pub fn skip<N: Into<Names>>(self, names: N) -> Acquiring {
        if self.options.has_own_timeout {
            self.wait(names)
        } else {
            self.fail(names)
        }
    }

    fn acquire(self, Names(mut target): Names, on_busy: OnBusy) -> Acquiring {
        target.permits = self.permits;
        if let Some(tick) = self.tick {
            target = target.at(tick);
        }
        // The kind only says which guard a caller gets, and a body gets none.
        let lock = |provider: LockProvider| Lock::<One>::new(&provider.engine, target);
        let lock = self.provider.map(|provider| lock(provider).with(self.options));
        Box::pin(async move { Ok(lock?.hold(on_busy).await?) })
    }
}
