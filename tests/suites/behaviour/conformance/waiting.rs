//! Waiting for a lock: its limit, its end, its cancellation, and many waiters at once.

use std::time::Duration;

use mongolock::LockError;
use mongolock_tests::{AMPLE, BEFORE_EXPIRY};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::conformance;
use crate::fixture::{Fixture, acquire_and_release, assert_released};

conformance!(
    a_release_lets_the_next_waiter_acquire,
    a_wait_ends_with_an_error_that_names_the_lock,
    a_free_lock_is_acquired_without_waiting,
    the_lock_itself_is_awaitable,
    trying_never_waits,
    a_cancelled_wait_leaves_no_claim,
    waiting_without_a_limit_ends_with_the_release,
    a_thousand_waiters_on_one_thread_make_progress,
    contention_is_never_a_server_error,
    a_cancelled_wait_has_no_minimum_hold,
);

/// S0.10, S1.5
async fn a_release_lets_the_next_waiter_acquire(fixture: Fixture) {
    let first = fixture.provider.lock("next").await.unwrap();
    let rival = fixture.rival().lock("next");
    let waiter = tokio::spawn(async move { rival.acquire().await });
    let local = fixture.provider.lock("next");
    let local_waiter = tokio::spawn(async move { local.acquire().await.unwrap().release().await });
    sleep(Duration::from_millis(30)).await;
    assert!(!waiter.is_finished() && !local_waiter.is_finished());
    first.release().await.unwrap();
    let second = timeout(BEFORE_EXPIRY, waiter).await.unwrap().unwrap().unwrap();
    second.release().await.unwrap();
    timeout(BEFORE_EXPIRY, local_waiter)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

/// S0.5, S0.16: only the call that waited in vain gets the error.
async fn a_wait_ends_with_an_error_that_names_the_lock(fixture: Fixture) {
    let _held = fixture.provider.lock("busy:7").await.unwrap();
    let limit = Duration::from_millis(120);
    for provider in [fixture.provider.clone(), fixture.rival()] {
        let begun = Instant::now();
        let error = provider
            .lock("busy:7")
            .acquire_timeout(limit)
            .acquire()
            .await
            .unwrap_err();
        assert!(begun.elapsed() >= limit);
        assert!(
            matches!(&error, LockError::Timeout { name, waited, .. } if name == "busy:7" && *waited >= limit)
        );
        assert!(error.to_string().contains("busy:7"), "{error}");
        acquire_and_release(&provider.lock("other")).await;
    }
}

/// S4.3: the pauses between attempts are a minute long, so a pause before the first attempt would fail the test.
async fn a_free_lock_is_acquired_without_waiting(fixture: Fixture) {
    let minute = Duration::from_secs(60);
    let slow = fixture
        .provider
        .to_builder()
        .retry_interval(minute..=minute)
        .build()
        .unwrap();
    timeout(Duration::from_secs(10), slow.lock("free").acquire())
        .await
        .expect("the first attempt comes without a pause")
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// S4.7
async fn the_lock_itself_is_awaitable(fixture: Fixture) {
    let guard = fixture.provider.lock("t1").await.unwrap();
    assert_eq!(guard.name(), "t1");
}

async fn trying_never_waits(fixture: Fixture) {
    let lock = fixture.provider.lock("try");
    let guard = lock.try_acquire().await.unwrap().expect("the lock is free");
    assert!(
        lock.try_acquire().await.unwrap().is_none(),
        "the lock is held in this process"
    );
    assert!(
        fixture.rival().lock("try").try_acquire().await.unwrap().is_none(),
        "the lock is held in the other process"
    );
    guard.release().await.unwrap();
    lock.try_acquire()
        .await
        .unwrap()
        .expect("the lock is free again")
        .release()
        .await
        .unwrap();
}

/// B2
async fn a_cancelled_wait_leaves_no_claim(fixture: Fixture) {
    for micros in (0..4000).step_by(40) {
        let lock = fixture.provider.lock("cancelled");
        let _ = timeout(Duration::from_micros(micros), lock.acquire()).await;
    }
    assert_released(&fixture.rival().lock("cancelled")).await;
}

async fn waiting_without_a_limit_ends_with_the_release(fixture: Fixture) {
    let guard = fixture.provider.lock("ever").await.unwrap();
    let lock = fixture.rival().lock("ever").acquire_timeout(None);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    sleep(Duration::from_millis(50)).await;
    guard.release().await.unwrap();
    timeout(AMPLE, waiter)
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// S4.2: the runtime of this test has one thread, and no waiter blocks it.
async fn a_thousand_waiters_on_one_thread_make_progress(fixture: Fixture) {
    let held = fixture.provider.lock("thousand").await.unwrap();
    let mut waiters = JoinSet::new();
    for index in 0..1000 {
        let limit = if index % 100 == 0 {
            AMPLE * 4
        } else {
            Duration::from_millis(200)
        };
        let lock = fixture.provider.lock("thousand").acquire_timeout(limit);
        waiters.spawn(async move { lock.acquire().await?.release().await });
    }
    let mut timeouts = 0;
    while timeouts < 990 {
        match waiters.join_next().await.expect("a waiter ends").unwrap() {
            Err(LockError::Timeout { .. }) => timeouts += 1,
            other => panic!("{other:?}"),
        }
    }
    held.release().await.unwrap();
    while let Some(done) = waiters.join_next().await {
        done.unwrap().unwrap();
    }
}

/// B13: contention alone never looks like a server that does not answer.
async fn contention_is_never_a_server_error(fixture: Fixture) {
    let first = fixture.provider.lock("crowd").acquire().await.unwrap();
    let mut crowd = JoinSet::new();
    for index in 0..200_u64 {
        let lock = fixture
            .provider
            .lock("crowd")
            .acquire_timeout(Duration::from_millis(5 + index % 20));
        crowd.spawn(async move {
            let guard = lock.acquire().await?;
            sleep(Duration::from_millis(1)).await;
            guard.release().await
        });
    }
    first.release().await.unwrap();
    while let Some(ended) = crowd.join_next().await {
        match ended.unwrap() {
            Ok(()) | Err(LockError::Timeout { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// B2: a wait that was given up never held the lock, so no minimum hold applies.
async fn a_cancelled_wait_has_no_minimum_hold(fixture: Fixture) {
    for micros in (0..3000).step_by(100) {
        let lock = fixture.provider.lock("given up").min_hold(AMPLE * 4);
        let ended = timeout(Duration::from_micros(micros), lock.acquire()).await;
        if let Ok(Ok(guard)) = ended {
            // The acquire was faster than its limit, so its minimum hold applies, which another test covers.
            let name = guard.name().to_owned();
            drop(guard);
            assert!(fixture.rival().lock(name).try_acquire().await.unwrap().is_none());
            return;
        }
        assert_released(&fixture.provider.lock("given up")).await;
    }
}
