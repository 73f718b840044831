//! Two places where threads share values without a lock, explored by loom: the files of the library are compiled with
//! loom's atomics in place of those of the standard library.
#![forbid(unsafe_code)]

mod scenarios;
mod turn;

/// What the library's module `sync` is here.
mod sync {
    pub(crate) use loom::sync::Mutex;
    use loom::sync::MutexGuard;

    pub(crate) mod atomic {
        pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
    }

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no thread panics with the mutex locked")
    }
}

#[path = "../../../mongolock/src/queue/handed_over.rs"]
mod handed_over;
mod lease;

#[test]
fn a_hold_is_taken_or_released() {
    scenarios::hand_over_to_a_cancelled_waiter();
}

#[test]
fn a_hold_goes_to_the_other_waiter_or_is_released() {
    scenarios::hand_over_to_one_of_two_waiters();
}

#[test]
fn a_release_sees_the_commit_or_the_commit_sees_the_release() {
    scenarios::commit_beside_a_release(scenarios::Steps::AsTheyAre);
}

#[test]
fn a_release_sees_a_commit_that_was_cut_off() {
    scenarios::commit_cut_off_beside_a_release();
}

#[test]
fn a_lease_that_was_over_stays_over() {
    scenarios::renewal_beside_the_deadline(scenarios::Steps::AsTheyAre);
}

/// The mutex of the state is what orders a commit and a release, if each of them does its two steps in the right order.
#[test]
#[should_panic(expected = "the claim of an open commit is handed over")]
fn a_commit_that_is_registered_after_the_check_is_missed() {
    scenarios::commit_beside_a_release(scenarios::Steps::InTheWrongOrder);
}

/// The state and the clock are read together, under one lock of the mutex.
#[test]
#[should_panic(expected = "a lease that was over is live again")]
fn a_renewal_that_looks_before_it_locks_revives_a_lease() {
    scenarios::renewal_beside_the_deadline(scenarios::Steps::InTheWrongOrder);
}
