//! What the test process itself does with a lock, as a part of a history.

use mongolock::{DistributedLock, LockContext, LockError, LockGuard};
use mongolock_tests::{AMPLE, Event, History, Outcome, Step, monotonic_now};
use serde_json::to_string;

use crate::actor::say;

/// The word before a step in the output of a process.
pub(crate) const WORD: &str = "history";

/// Prints a step for the history of the test.
pub(crate) fn tell(event: &Event) {
    say(format_args!("{WORD} {}", to_string(event).unwrap()));
}

/// The step of a holder that has just begun; `None` if it has lost the lock since. The clock is read first: the lock is
/// held at this time if it is held after it.
pub(crate) fn acquired(context: &LockContext) -> Option<Event> {
    let step = Step::Acquired {
        token: Some(context.fencing_token().get()),
        lease: context.remaining(),
    };
    let event = Event::now(0, step);
    (!context.is_lost()).then_some(event)
}

/// The step of a holder whose section ends.
pub(crate) fn ended(context: &LockContext) -> Event {
    let at = monotonic_now();
    let is_lost = context.is_lost();
    Event::at(0, at, Step::Ended { is_lost })
}

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
    let outcome = match &released {
        Ok(()) => Outcome::Ok,
        Err(error @ LockError::Lost { .. }) => Outcome::Failed(error.to_string()),
        Err(error) => Outcome::Unknown(error.to_string()),
    };
    history.note(process, Step::Released(outcome));
    released
}
