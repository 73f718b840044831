//! The synchronisation of values that several threads share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex that only guards plain data: a panic elsewhere leaves it usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
