use crate::LockError;

/// A return type that can carry a [`LockError`]: what `#[distributed_lock]` asks of a function.
///
/// Every `Result<T, E>` with `E: From<LockError>` is one, so `anyhow::Result`, `Result<_, LockError>` and
/// any error enum with a `#[from] LockError` variant work as they are. Implement it for a return type of
/// your own, such as an HTTP response:
///
/// ```
/// use mongolock::{LockError, LockOutput};
///
/// struct Response { status: u16, body: String }
///
/// impl LockOutput for Response {
///     type Success = String;
///     fn from_success(body: String) -> Self { Response { status: 200, body } }
///     fn from_lock_error(error: LockError) -> Self { Response { status: 503, body: error.to_string() } }
///     fn is_success(&self) -> bool { self.status < 400 }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot report a failure to take the lock",
    label = "cannot carry a `mongolock::LockError`",
    note = "return a `Result<_, E>` where `E: From<mongolock::LockError>`, or implement `mongolock::LockOutput` for your own type"
)]
pub trait LockOutput: Sized {
    /// What the function returns when all went well; with `on_busy = "skip"` it must be [`Skipped`].
    type Success;

    /// A return value that says that all went well.
    fn from_success(value: Self::Success) -> Self;

    /// The return value when the lock was not acquired, or was lost.
    fn from_lock_error(error: LockError) -> Self;

    /// Whether the body succeeded: a failure of the body is reported before a loss of the lock.
    fn is_success(&self) -> bool;
}

impl<T, E: From<LockError>> LockOutput for Result<T, E> {
    type Success = T;

    fn from_success(value: T) -> Self {
        Ok(value)
    }

    fn from_lock_error(error: LockError) -> Self {
        Err(error.into())
    }

    fn is_success(&self) -> bool {
        self.is_ok()
    }
}

/// A success value that can say "skipped, somebody else is at it": what `on_busy = "skip"` returns.
///
/// `()` and `Option<T>` (as `None`) can; implement it for a type of your own:
///
/// ```
/// enum Tick { Done(u64), Skipped }
///
/// impl mongolock::Skipped for Tick {
///     fn skipped() -> Self { Tick::Skipped }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot say that the call was skipped",
    label = "`on_busy = \"skip\"` needs a return type with a \"skipped\" value",
    note = "return `Result<(), E>` or `Result<Option<T>, E>`, or implement `mongolock::Skipped` for `{Self}`"
)]
pub trait Skipped {
    /// The value of a call whose body did not run.
    fn skipped() -> Self;
}

impl Skipped for () {
    fn skipped() -> Self {}
}

impl<T> Skipped for Option<T> {
    fn skipped() -> Self {
        None
    }
}

/// The functions of a return type that the end of a call needs, kept as values so that no other code has the bound.
#[derive(Debug)]
pub struct Output<T> {
    pub(crate) from_lock_error: fn(LockError) -> T,
    pub(crate) is_success: fn(&T) -> bool,
}

/// How this return type carries an error.
#[must_use]
pub fn output<T: LockOutput>() -> Output<T> {
    Output {
        from_lock_error: T::from_lock_error,
        is_success: T::is_success,
    }
}
