//! Waiting for a lock: its limit, its end, its cancellation, and many waiters at once.

use std::time::Duration;

use mongolock::LockError;
use mongolock_tests::{AMPLE, BEFORE_EXPIRY};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::kind::Kind;
use super::subject::Subject;
use super::target::Target;
use super::{conformance, conformance_of_kinds};
use crate::fixture::{Fixture, assert_released};

conformance!(
    a_free_lock_is_acquired_without_waiting,
    a_thousand_waiters_on_one_thread_make_progress,
    contention_is_never_a_server_error,
);

conformance_of_kinds!(
    a_release_lets_the_next_waiter_acquire: HOLDS with threads,
    a_wait_ends_with_an_error_that_names_the_lock: HOLDS with threads,
    trying_never_waits: HOLDS with threads,
    a_call_knows_whether_it_has_waited: CALLS,
    a_cancelled_wait_leaves_no_claim: CALLS,
    a_cancelled_wait_has_no_minimum_hold: CALLS,
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
    let limit = Duration::from_secs(6);
    for part in subject.their_parts() {
        let held = part.acquire().await.unwrap();
        let context = held.context();
        let expected = context.names().find(|name| subject.has_name(name));
        let waits = [subject.ours(), subject.theirs()].map(|target| target.acquire_timeout(Some(limit)));
        // A set that waits keeps the locks before the one that it waits for: another one beside it would wait for those.
        let keeps_some = subject.kind == Kind::Set;
        for waits in waits.chunks(if keeps_some { 1 } else { 2 }) {
            let begun = Instant::now();
            let waiting: Vec<_> = waits.iter().map(Target::spawn_acquire).collect();
            for wait in waiting {
                let error = wait.await.unwrap().err().unwrap();
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
            }
        }
        subject.named("other").acquire_and_release().await;
        held.release().await.unwrap();
    }
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
        assert!(!target.is_free().await);
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

/// B2: waits are cancelled at many moments, while a request is in flight and while the call waits.
async fn a_cancelled_wait_leaves_no_claim(subject: Subject) {
    for micros in (0..4000).step_by(40) {
        let _ = timeout(Duration::from_micros(micros), subject.ours().acquire()).await;
    }
    subject.assert_released().await;
    for part in subject.their_parts() {
        let held = part.acquire().await.unwrap();
        for millis in [1, 5, 30] {
            let cut = timeout(Duration::from_millis(millis), subject.ours().acquire()).await;
            assert!(cut.is_err(), "a part of it is held");
        }
        held.release().await.unwrap();
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
async fn a_cancelled_wait_has_no_minimum_hold(subject: Subject) {
    let target = subject.ours().min_hold(AMPLE * 4);
    for part in subject.their_parts() {
        let held = part.acquire().await.unwrap();
        assert!(!target.is_free().await);
        held.release().await.unwrap();
        subject.assert_released().await;
    }
    for micros in (0..3000).step_by(100) {
        let ended = timeout(Duration::from_micros(micros), target.acquire()).await;
        if let Ok(Ok(hold)) = ended {
            // The acquire was faster than its limit, so its minimum hold applies.
            drop(hold);
            subject.assert_held().await;
            return;
        }
        subject.assert_released().await;
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
            assert!(
                held.context().waited(),
                "{kind:?}: call {place}: another holder had it"
            );
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
