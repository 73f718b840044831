use crate::LockError;

/// A return type that can carry a [`LockError`]. A function with `#[distributed_lock]` needs one.
///
/// It is implemented for every `Result<T, E>` with `E: From<LockError>`: `anyhow::Result`, `Result<_, LockError>` and
/// any error enum with a `#[from] LockError` variant work without further code. Implement it for a return type of your
/// own, such as an HTTP response:
///
/// ```
/// use mongolock::{LockError, LockOutput};
///
/// struct Response { status: u16, body: String }
///
/// impl LockOutput for Response {
///     type Success = String;
///     fn from_success(body: String) -> Self { Response { status: 200, body } }
///     fn from_lock_error(_: LockError) -> Self { Response { status: 503, body: "try again later".to_owned() } }
///     fn is_success(&self) -> bool { self.status < 400 }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot report a failure to take the lock",
    label = "cannot carry a `mongolock::LockError`",
    note = "return a `Result<_, E>` where `E: From<mongolock::LockError>`: add a variant `Lock(#[from] mongolock::LockError)` to `E`, or return `anyhow::Result`; in place of an error type of another crate, return a type of your own that converts into it, or lock a function below and convert its error",
    note = "a type of your own that is not a `Result` implements `mongolock::LockOutput`",
    note = "an endless body needs its type: `async |lock| -> Result<(), LockError> {{ loop {{ .. }} }}`"
)]
pub trait LockOutput: Sized {
    /// The value of a successful call. With `on_busy = "skip"` it must implement [`Skipped`].
    type Success;

    /// Makes the return value of a successful call.
    fn from_success(value: Self::Success) -> Self;

    /// Makes the return value of a call whose lock was not acquired, or was lost.
    fn from_lock_error(error: LockError) -> Self;

    /// Whether the body succeeded. If it failed, the call returns its failure even if the lock was lost as well.
    ///
    /// It is called after every body that has returned, before the lock is released: it must be quick and must not block.
    fn is_success(&self) -> bool;
}

// The error about an unsuitable type is about the whole `Result`, without a list of what its error can be made from.
#[diagnostic::do_not_recommend]
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

/// A success value that represents a skipped call: with `on_busy = "skip"` a call returns it if the lock is held.
///
/// It is implemented for `()`, and for `Option<T>` as `None`. Implement it for a type of your own:
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

/// The functions of a return type that the end of a call needs. They are kept as values, so that no other code needs
/// the bound `T: LockOutput`.
#[derive(Debug)]
pub struct Output<T> {
    pub(crate) from_lock_error: fn(Box<LockError>) -> T,
    pub(crate) is_success: fn(&T) -> bool,
}

/// The functions that put an error into this return type.
pub(crate) fn output<T: LockOutput>() -> Output<T> {
    Output {
        from_lock_error: |error| T::from_lock_error(*error),
        is_success: T::is_success,
    }
}
