//! Programs without async code, `mongolock::blocking`: their connections, and what they call by `wait`. The tests of holds run
//! `with threads` of such a program as well.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mongolock::blocking::LockProvider;
use mongolock::{LockError, LockFilter, LossReason};
use mongolock_tests::AMPLE;
use tokio::runtime::{Handle, Runtime};

use crate::fixture::{Fixture, assert_lost};

/// Runs a test with a provider in memory, and then with one on MongoDB. The fixture is an async program with the same locks;
/// the thread of the test is in no runtime.
fn both(test: impl Fn(LockProvider, &Runtime, &Fixture)) {
    let runtime = Runtime::new().unwrap();
    let entered = runtime.enter();
    let places = [Fixture::memory(), runtime.block_on(Fixture::mongodb())];
    let programs = places.each_ref().map(Fixture::threads);
    drop(entered);
    for (locks, rivals) in programs {
        test(locks, &runtime, &rivals);
    }
}

#[test]
fn threads_exclude_each_other() {
    fn assert_one_at_a_time<G>(acquire: impl Fn() -> Result<G, LockError> + Sync) {
        let is_inside = AtomicBool::new(false);
        let turn = || {
            assert!(Handle::try_current().is_err(), "the thread is in no runtime");
            let hold = acquire().unwrap();
            let another = is_inside.swap(true, Ordering::SeqCst);
            assert!(!another, "another thread is inside");
            thread::sleep(Duration::from_millis(2));
            is_inside.store(false, Ordering::SeqCst);
            drop(hold);
        };
        thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(turn))));
    }

    both(|locks, _, _| {
        assert_one_at_a_time(|| locks.acquire(&locks.lock("n")));
        assert_one_at_a_time(|| locks.acquire(&locks.lock_all(["a", "b"])));
        assert_one_at_a_time(|| locks.acquire(&locks.semaphore("s", 1)));
    });
}

#[test]
fn threads_have_the_options_and_the_administration_of_async_code() {
    both(|locks, runtime, rivals| {
        let tick = locks.lock("tick").once();
        locks.wait(locks.acquire(&tick).unwrap().done()).unwrap();
        assert!(matches!(locks.acquire(&tick), Err(LockError::Done { .. })));
        let rare = locks.lock("rare").min_hold(AMPLE);
        locks.wait(locks.acquire(&rare).unwrap().release()).unwrap();
        let is_free = runtime.block_on(rivals.is_free("rare"));
        assert!(!is_free, "the minimum hold is not over");

        let guard = locks.acquire(&locks.lock("stuck")).unwrap();
        let (provider, admin) = (locks.provider(), locks.provider().admin());
        assert_eq!(provider.held()[0].fencing_token, guard.fencing_token());
        assert!(locks.wait(provider.health()).has_primary);
        let listed = locks.wait(admin.list(LockFilter::new().prefix("stuck"))).unwrap();
        assert_eq!(listed[0].fencing_token, guard.fencing_token());
        assert!(locks.wait(admin.force_release("stuck")).unwrap());
        assert_lost(locks.wait(guard.release()), LossReason::Gone);
    });
}

/// The release of a dropped guard is confirmed when the drop of the last clone returns.
#[test]
fn dropping_the_provider_releases_everything() {
    both(|locks, runtime, rivals| {
        let (guard, clone) = (locks.acquire(&locks.lock("dropped")).unwrap(), locks.clone());
        drop((locks, clone));
        assert!(!guard.is_lost(), "a guard keeps the provider");
        drop(guard);
        assert!(runtime.block_on(rivals.is_free("dropped")));
    });
}
