//! What the test process itself does with a lock, as a part of a history.

use mongolock::{DistributedLock, LockError, LockGuard};
use mongolock_tests::{AMPLE, History, Step};

use crate::act::{acquired, ended, outcome};

/// Acquires a lock as the process of this number.
pub(crate) async fn acquire(history: &mut History, process: usize, lock: DistributedLock) -> LockGuard {
    history.note(process, Step::Invoke);
    let guard = lock.acquire_timeout(AMPLE).acquire().await.unwrap();
    let begun = acquired(&guard.context()).expect("the lock was held");
    history.add(begun.of(process));
    guard
}

/// Ends the section of this process and releases the lock.
pub(crate) async fn release(
    history: &mut History,
    process: usize,
    guard: LockGuard,
) -> Result<(), LockError> {
    history.add(ended(&guard.context()).of(process));
    let released = guard.release().await;
    history.note(process, Step::Released(outcome(&released)));
    released
}
