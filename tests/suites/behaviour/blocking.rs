//! Programs without async code, `mongolock::blocking`: their connections, and what they call by `wait`. The tests of holds run
//! `with threads` of such a program as well.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use mongolock::blocking::LockProvider;
use mongolock::{LockContext, LockError, LockFilter, LockName, LossReason};
use mongolock_tests::AMPLE;
use tokio::runtime::{Handle, Runtime};

use crate::fixture::{Fixture, assert_lost, refused_option};

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
            assert!(
                !is_inside.swap(true, Ordering::SeqCst),
                "another thread is inside"
            );
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
        assert_one_at_a_time(|| {
            let guard = locks.acquire(&locks.lock("resumed"))?;
            let handle = locks.wait(guard.detach(AMPLE))?;
            locks.wait(locks.provider().resume(&handle))
        });
    });
}

#[test]
fn a_shutdown_refuses_waiters_and_lets_bodies_end() {
    both(|locks, _, _| {
        let (holds, held) = mpsc::channel();
        let body = |context: LockContext| {
            holds.send(()).unwrap();
            while !locks.wait(locks.provider().health()).is_shut_down {
                thread::sleep(Duration::from_millis(5));
            }
            context.ensure_held()
        };
        thread::scope(|scope| {
            let body = scope.spawn(|| locks.run(&locks.lock("held"), body));
            held.recv().unwrap();
            let waiter = scope.spawn(|| locks.acquire(&locks.lock("held")).map(drop));
            locks.wait(locks.provider().shutdown_after(AMPLE));
            body.join().unwrap().unwrap();
            let late = locks.acquire(&locks.lock("late")).map(drop);
            for refused in [waiter.join().unwrap(), late] {
                assert!(matches!(refused, Err(LockError::ShutDown { .. })), "{refused:?}");
            }
        });
    });
}

#[test]
fn the_options_of_a_lock_are_those_of_async_code() {
    both(|locks, runtime, rivals| {
        let nightly = locks.lock("nightly").once_per(Duration::from_secs(24 * 60 * 60));
        locks.run(&nightly, |_| Ok::<_, LockError>(())).unwrap();
        assert!(matches!(locks.acquire(&nightly), Err(LockError::Done { .. })));
        let tick = locks.lock("tick").once();
        locks.wait(locks.acquire(&tick).unwrap().done()).unwrap();
        assert!(matches!(locks.acquire(&tick), Err(LockError::Done { .. })));

        let rare = locks.lock("rare").min_hold(AMPLE);
        locks.wait(locks.acquire(&rare).unwrap().release()).unwrap();
        let is_free = runtime.block_on(rivals.is_free("rare"));
        assert!(!is_free, "the minimum hold is not over");
    });
}

#[test]
fn the_administration_is_that_of_async_code() {
    both(|locks, _, _| {
        let guard = locks.acquire(&locks.lock("stuck")).unwrap();
        let (provider, admin) = (locks.provider(), locks.provider().admin());
        assert_eq!(provider.held()[0].fencing_token, guard.fencing_token());
        assert!(locks.wait(provider.health()).has_primary);
        let listed = locks.wait(admin.list(LockFilter::new())).unwrap();
        assert_eq!(listed[0].fencing_token, guard.fencing_token());
        assert!(locks.wait(admin.force_release("stuck")).unwrap());
        assert_lost(locks.wait(guard.release()), LossReason::Gone);
    });
}

#[derive(LockName)]
#[lock("report:<id>")]
struct Report {
    id: u32,
}

#[test]
fn a_declared_name_comes_with_its_template() {
    both(|locks, runtime, rivals| {
        let body = |context: LockContext| {
            assert!(!runtime.block_on(rivals.is_free("report:7")));
            Ok::<_, LockError>((context.name().to_owned(), context.template()))
        };
        let seen = locks.run(&locks.lock(&Report { id: 7 }), body).unwrap();
        assert_eq!(seen, ("report:7".to_owned(), Some("report:<id>")));
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

#[test]
fn mistakes_are_errors_of_the_start() {
    let refused = LockProvider::connect("mongodb://").unwrap_err();
    assert!(matches!(refused, LockError::Mongo(_)), "{refused}");
    let refused = LockProvider::connect_with("mongodb://localhost", |options| options.expiry(Duration::ZERO));
    assert_eq!(refused_option(refused), "expiry");
}
