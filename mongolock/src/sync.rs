//! The synchronisation of values that several threads share. The suite `threads` replaces this module by that of loom.

pub(crate) use std::sync::Mutex;
use std::sync::{MutexGuard, PoisonError};

/// The atomics of the code whose orders of steps the suite `threads` explores.
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
}

/// Locks a mutex that only guards plain data: a panic elsewhere leaves it usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
