//! Waiting for a lock: its limit, its end, its cancellation, and many waiters at once.

use std::time::Duration;

use mongolock::LockError;
use mongolock_tests::{AMPLE, BEFORE_EXPIRY};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::subject::Subject;
use super::{conformance, conformance_of_kinds};
use crate::fixture::{Fixture, assert_released};

conformance!(
    a_free_lock_is_acquired_without_waiting,
    a_thousand_waiters_on_one_thread_make_progress,
);

conformance_of_kinds!(
    a_release_lets_the_next_waiter_acquire: HOLDS with threads,
    a_wait_ends_with_an_error_that_names_the_lock: HOLDS with threads,
    trying_never_waits: HOLDS with threads,
    a_call_knows_whether_it_has_waited: CALLS,
);

/// S0.10, S1.5
async fn a_release_lets_the_next_waiter_acquire(subject: Subject) {
    let first = subject.ours().acquire().await.unwrap();
    let without_limit = subject.ours().acquire_timeout(None);
    let waiters = [
        subject.theirs().spawn_turn(),
        subject.ours().spawn_turn(),
        without_limit.spawn_turn(),
    ];
    sleep(Duration::from_millis(30)).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    first.release().await.unwrap();
    for waiter in waiters {
        timeout(BEFORE_EXPIRY, waiter).await.unwrap().unwrap();
    }
}

/// S0.5, S0.16: only the calls that waited in vain get the error. Of a set it names the lock that was held.
async fn a_wait_ends_with_an_error_that_names_the_lock(subject: Subject) {
    // On a slow machine the first reply takes seconds, and without one the error is another.
    let limit = Duration::from_secs(3);
    // Of a set the last lock is held, by another set; those before it are kept.
    let part = subject.their_parts().pop().unwrap();
    let held = part.acquire().await.unwrap();
    let context = held.context();
    let expected = context.names().find(|name| subject.has_name(name));
    let begun = Instant::now();
    let error = subject.ours().acquire_timeout(Some(limit)).acquire().await;
    let error = error.err().unwrap();
    assert!(begun.elapsed() >= limit);
    match &error {
        LockError::Timeout {
            name, waited, holder, ..
        } => {
            assert!(expected == Some(&**name) && *waited >= limit, "{error:?}");
            assert_eq!(holder.as_deref(), Some("rival"));
            assert!(error.to_string().contains(&**name), "{error}");
        }
        other => panic!("{other:?}"),
    }
    subject.named("other").acquire_and_release().await;
    held.release().await.unwrap();
}

/// S4.3: the pauses between attempts are a minute long, so a pause before the first attempt would fail the test.
async fn a_free_lock_is_acquired_without_waiting(fixture: Fixture) {
    let minute = Duration::from_secs(60);
    let slow = fixture.with(|options| options.retry_interval(minute..=minute));
    assert_released(&slow.lock("free")).await;
}

async fn trying_never_waits(subject: Subject) {
    let hold = subject.ours().try_acquire().await.unwrap().expect("it is free");
    let targets = [subject.ours(), subject.theirs()];
    let at_once = targets
        .clone()
        .map(|target| target.acquire_timeout(Some(Duration::ZERO)));
    for (target, at_once) in targets.iter().zip(&at_once) {
        // The limit of a call in these tests is a minute, and that of a try ten seconds.
        let tried = timeout(Duration::from_secs(8), target.is_free()).await;
        assert_eq!(tried, Ok(false), "also of a lease that was resumed here");
        let refused = at_once.acquire().await;
        assert!(matches!(refused, Err(LockError::Timeout { name, .. }) if subject.has_name(&name)));
    }
    hold.release().await.unwrap();
    for (target, at_once) in targets.iter().zip(&at_once) {
        assert!(target.is_free().await);
        at_once.acquire_and_release().await;
    }
    // A part of it is enough to keep it, and a try in vain holds nothing.
    for part in subject.their_parts() {
        let taken = part.acquire().await.unwrap();
        assert!(!subject.ours().is_free().await);
        taken.release().await.unwrap();
        subject.assert_released().await;
    }
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

/// Whoever computes a value once looks again for that of another holder only if its call has waited.
async fn a_call_knows_whether_it_has_waited(subject: Subject) {
    let first = subject.ours().acquire().await.unwrap();
    assert!(!first.context().waited(), "it was free");
    let mut behind = JoinSet::new();
    let kind = subject.kind;
    for (place, target) in [subject.ours(), subject.theirs()].into_iter().enumerate() {
        behind.spawn(async move {
            let held = target.acquire().await.unwrap();
            let waited = held.context().waited();
            assert!(waited, "{kind:?}: call {place}: another holder had it");
            held.release().await.unwrap();
        });
    }
    sleep(Duration::from_millis(300)).await;
    first.release().await.unwrap();
    timeout(AMPLE, behind.join_all()).await.unwrap();
    let last = subject.ours().acquire().await.unwrap();
    assert!(!last.context().waited(), "it was free again");
    last.release().await.unwrap();
}
