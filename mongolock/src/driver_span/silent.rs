//! The spans of the driver without the feature `opentelemetry`: there are none.

use crate::LockError;
use crate::meter::CommandKind;

#[derive(Clone)]
pub(crate) struct Caller;

impl Caller {
    #[inline]
    pub(crate) fn present() -> Self {
        Self
    }
}

#[inline]
pub(crate) fn of_caller<F: Future>(work: F) -> impl Future<Output = F::Output> {
    work
}

#[inline]
pub(crate) fn of_kind<F: Future>(_: CommandKind, command: F) -> impl Future<Output = F::Output> {
    command
}

#[inline]
pub(crate) fn linked<T>(
    _name: &'static str,
    _command: (&'static str, &'static str),
    _requests: (&'static str, usize),
    _callers: Vec<Caller>,
    command: impl Future<Output = Result<T, LockError>>,
) -> impl Future<Output = Result<T, LockError>> {
    command
}

#[inline]
pub(crate) fn suppressed<F: Future>(work: F) -> impl Future<Output = F::Output> {
    work
}
