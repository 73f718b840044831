//! Programs without async code, `mongolock::blocking`: their connections, and what they call by `wait`. The tests of holds run
//! `with threads` of such a program as well.

use std::time::Duration;

use mongolock::blocking::LockProvider;
use mongolock::{LockContext, LockError, LockFilter, LockName, LossReason};
use mongolock_tests::AMPLE;
use tokio::runtime::Runtime;

use crate::fixture::{Fixture, assert_lost, refused_option};

/// Runs a test with a provider in memory, and then with one on MongoDB. The fixture is an async program with the same locks.
fn both(test: impl Fn(LockProvider, &Runtime, &Fixture)) {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    for place in [Fixture::memory(), runtime.block_on(Fixture::mongodb())] {
        let (locks, rivals) = place.threads();
        test(locks, &runtime, &rivals);
    }
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
