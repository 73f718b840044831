//! Errors of the test support.

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the test support could not do, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SupportError(pub(crate) String);

impl SupportError {
    /// The error of an attempt whose own error is the reason.
    pub(crate) fn at<E: Display>(what: impl Display) -> impl FnOnce(E) -> Self {
        move |reason| Self(format!("{what}: {reason}"))
    }
}

/// The value, or a failed test: the only place of this crate that panics on purpose.
#[track_caller]
pub fn must<T, E: Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// The value of a mutex, whose other users may have panicked.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
