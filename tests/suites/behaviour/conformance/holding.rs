//! A hold from its acquisition to its end: renewal, expiry, release, minimum hold and shutdown.

use std::time::Duration;

use mongolock::{LockError, LossReason};
use mongolock_tests::AMPLE;
use tokio::time::{Instant, sleep, timeout};

use super::{conformance, unrenewed};
use crate::fixture::{Fixture, acquire_and_release, assert_released};

conformance!(
    leaving_the_scope_releases,
    a_held_lock_outlives_its_expiry,
    a_lock_that_is_not_renewed_can_be_acquired_after_its_expiry,
    an_expired_lease_is_lost_and_its_release_changes_nothing,
    shutdown_ends_holds_and_waits,
    a_removed_claim_is_gone,
    min_hold_keeps_others_out,
    a_lost_lock_can_be_acquired_again_by_its_holder,
);

/// S0.6, S1.1
async fn leaving_the_scope_releases(fixture: Fixture) {
    {
        let guard = fixture.provider.lock("scope").acquire().await.unwrap();
        assert!(!guard.is_lost() && guard.remaining() > Duration::ZERO);
        assert!(
            fixture
                .rival()
                .lock("scope")
                .try_acquire()
                .await
                .unwrap()
                .is_none()
        );
    }
    assert_released(&fixture.rival().lock("scope")).await;
}

/// S1.4
async fn a_held_lock_outlives_its_expiry(fixture: Fixture) {
    let expiry = Duration::from_secs(3);
    let guard = fixture
        .provider
        .lock("long")
        .expiry(expiry)
        .acquire()
        .await
        .unwrap();
    let rival = fixture.rival().lock("long");
    let end = Instant::now() + expiry * 2;
    while Instant::now() < end {
        assert!(rival.try_acquire().await.unwrap().is_none());
        assert!(!guard.is_lost());
        sleep(Duration::from_millis(25)).await;
    }
    guard.release().await.unwrap();
}

/// S0.13, S1.6, S2.9, S1.26
async fn a_lock_that_is_not_renewed_can_be_acquired_after_its_expiry(fixture: Fixture) {
    let lock = unrenewed(&fixture.provider, "dead");
    let begun = Instant::now();
    let dead = lock.acquire().await.unwrap();
    let next = fixture.rival().lock("dead").acquire().await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert!(dead.is_lost() && dead.remaining() == Duration::ZERO);
    assert!(next.fencing_token() > dead.fencing_token());
}

/// S2.10, B8, S3.8
async fn an_expired_lease_is_lost_and_its_release_changes_nothing(fixture: Fixture) {
    let dead = unrenewed(&fixture.provider, "stale").acquire().await.unwrap();
    let context = dead.context();
    context.ensure_held().unwrap();
    dead.ensure_held().unwrap();
    timeout(AMPLE, context.lost())
        .await
        .expect("the deadline ends the lease");
    let next = fixture.rival().lock("stale").acquire().await.unwrap();
    assert_lost(&context.ensure_held(), LossReason::Expired);
    assert_lost(&dead.ensure_held(), LossReason::Expired);
    assert_lost(&dead.release().await, LossReason::Expired);
    assert!(
        fixture
            .provider
            .lock("stale")
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    next.release().await.expect("the next holder still has the lock");
}

async fn shutdown_ends_holds_and_waits(fixture: Fixture) {
    let held = fixture.provider.lock("held").await.unwrap();
    let waiting = fixture.provider.lock("held");
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    let dropped = fixture.provider.lock("dropped").await.unwrap();
    drop(dropped);
    fixture.provider.shutdown().await;
    assert!(matches!(waiter.await.unwrap(), Err(LockError::ShutDown { name, .. }) if name == "held"));
    assert!(held.is_lost());
    for name in ["held", "dropped"] {
        let free = fixture.rival().lock(name).try_acquire().await.unwrap();
        free.expect("the lock is released at the server when shutdown returns")
            .release()
            .await
            .unwrap();
        assert!(matches!(
            fixture.provider.lock(name).acquire().await,
            Err(LockError::ShutDown { .. })
        ));
    }
    assert_lost(&held.context().ensure_held(), LossReason::ShutDown);
    assert_lost(&held.release().await, LossReason::ShutDown);
}

/// S2.10: the claim is gone when the release looks for it, and after every release.
async fn a_removed_claim_is_gone(fixture: Fixture) {
    let removed = fixture.provider.lock("removed").await.unwrap();
    let context = removed.context();
    assert!(fixture.rival().admin().force_release("removed").await.unwrap());
    assert_lost(&removed.release().await, LossReason::Gone);
    assert_lost(&context.ensure_held(), LossReason::Gone);

    let released = fixture.provider.lock("released").await.unwrap();
    let context = released.context();
    released.release().await.unwrap();
    assert_lost(&context.ensure_held(), LossReason::Gone);
}

fn assert_lost(result: &Result<(), LockError>, expected: LossReason) {
    match result {
        Err(error @ LockError::Lost { reason, forced, .. }) => {
            assert_eq!(*reason, expected);
            let why = forced.clone().unwrap_or_else(|| reason.to_string());
            assert!(error.to_string().ends_with(&why), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

async fn min_hold_keeps_others_out(fixture: Fixture) {
    let min_hold = Duration::from_millis(400);
    for dropped in [false, true] {
        let begun = Instant::now();
        let guard = fixture
            .provider
            .lock("job")
            .min_hold(min_hold)
            .acquire()
            .await
            .unwrap();
        if dropped {
            drop(guard);
        } else {
            guard.release().await.unwrap();
            assert!(begun.elapsed() < min_hold, "the release returns at once");
        }
        acquire_and_release(&fixture.rival().lock("job")).await;
        assert!(begun.elapsed() >= min_hold, "{dropped}");
    }
}

async fn a_lost_lock_can_be_acquired_again_by_its_holder(fixture: Fixture) {
    let lock = unrenewed(&fixture.provider, "again");
    let outer = lock.acquire().await.unwrap();
    let again = outer.context().scope(async {
        outer.lost().await;
        fixture.provider.lock("again").acquire().await
    });
    timeout(AMPLE, again)
        .await
        .expect("the lock is free")
        .unwrap()
        .release()
        .await
        .unwrap();
}
