//! A hold from its acquisition to its end: renewal, expiry, release, minimum hold and shutdown.

use std::future::pending;
use std::time::Duration;

use mongolock::{LockError, LossReason};
use mongolock_tests::BEFORE_EXPIRY;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::kind::Kind;
use super::subject::Subject;
use super::target::Target;
use super::{UNRENEWED, conformance_of_kinds};
use crate::fixture::{AppError, assert_lost, in_time};

conformance_of_kinds!(
    leaving_the_scope_releases: HOLDS with threads,
    every_exit_releases: HOLDS with threads,
    a_held_lock_outlives_its_expiry: HOLDS,
    a_lock_that_is_not_renewed_can_be_acquired_after_its_expiry: HOLDS with threads,
    an_expired_lease_is_lost_and_its_release_changes_nothing: HOLDS with threads,
    shutdown_ends_holds_and_waits: HOLDS with threads,
    a_removed_claim_is_gone: HOLDS with threads,
    a_body_learns_of_a_loss: CALLS with threads,
    min_hold_keeps_others_out: HOLDS,
    a_lost_lock_can_be_acquired_again_by_its_holder: CALLS,
);

/// S0.6, S1.1
async fn leaving_the_scope_releases(subject: Subject) {
    {
        let hold = subject.ours().acquire().await.unwrap();
        assert!(!hold.is_lost() && hold.remaining() > BEFORE_EXPIRY);
        subject.assert_held().await;
    }
    subject.assert_released().await;
}

/// Acquires it and leaves it in one of the ways of a subject.
async fn leave(target: Target, way: &str) {
    match way {
        "release" => target.acquire_and_release().await,
        "drop" => drop(target.acquire().await.unwrap()),
        "return" => {
            let returned = target.run(async |_| Ok::<_, LockError>("the value")).await;
            assert_eq!(returned.unwrap(), "the value");
        }
        "fail" => {
            let failed = target.run(async |_| Err::<(), _>(AppError::Body)).await;
            assert!(matches!(failed, Err(AppError::Body)), "{failed:?}");
        }
        "panic" => {
            let body = async |_| -> Result<(), LockError> { panic!("the body fails") };
            let panicked = tokio::spawn(async move { target.run(body).await }).await;
            let panic = panicked.unwrap_err().into_panic();
            assert_eq!(panic.downcast_ref(), Some(&"the body fails"));
        }
        "cancel" => {
            let (begins, begun) = oneshot::channel();
            let body = target.run(async |_| {
                begins.send(()).unwrap();
                pending::<Result<(), LockError>>().await
            });
            tokio::select! {
                ended = body => panic!("{ended:?}"),
                begun = begun => begun.unwrap(),
            }
        }
        other => panic!("{other} is no way"),
    }
}

/// The ways in which a hold ends that is not lost: a lease that was resumed has no body, and the body of a thread is not
/// cancelled.
fn ways(subject: &Subject) -> &'static [&'static str] {
    let ways = &["release", "drop", "return", "fail", "panic", "cancel"];
    match subject.kind {
        Kind::Resumed => &ways[..2],
        _ if subject.has_threads() => &ways[..5],
        _ => ways,
    }
}

async fn every_exit_releases(subject: Subject) {
    for await_release in [true, false] {
        for way in ways(&subject) {
            leave(subject.ours().await_release(await_release), way).await;
            subject.assert_released().await;
        }
    }
}

/// S1.4
async fn a_held_lock_outlives_its_expiry(subject: Subject) {
    let expiry = Duration::from_secs(3);
    let hold = subject.ours().expiry(expiry).acquire().await.unwrap();
    let end = Instant::now() + expiry * 2;
    while Instant::now() < end {
        subject.assert_held().await;
        assert!(!hold.is_lost());
        sleep(Duration::from_millis(200)).await;
    }
    hold.release().await.unwrap();
}

/// S0.13, S1.6, S2.9, S1.26
async fn a_lock_that_is_not_renewed_can_be_acquired_after_its_expiry(subject: Subject) {
    let begun = Instant::now();
    let dead = subject.ours().unrenewed().acquire().await.unwrap();
    let next = subject.theirs().acquire().await.unwrap();
    assert!(begun.elapsed() >= UNRENEWED);
    assert!(dead.is_lost() && dead.remaining() == Duration::ZERO);
    subject.assert_newer(&next.context(), &dead.context());
}

/// S2.10, B8, S3.8
async fn an_expired_lease_is_lost_and_its_release_changes_nothing(subject: Subject) {
    let dead = subject.ours().unrenewed().acquire().await.unwrap();
    let context = dead.context();
    context.ensure_held().unwrap();
    dead.ensure_held().unwrap();
    in_time(async { tokio::join!(context.lost(), dead.lost()) }).await;
    let next = subject.theirs().acquire().await.unwrap();
    assert_lost(context.ensure_held(), LossReason::Expired);
    assert_lost(dead.ensure_held(), LossReason::Expired);
    assert_lost(dead.release().await, LossReason::Expired);
    assert!(!subject.ours().is_free().await);
    subject.assert_held().await;
    next.release().await.expect("the next holder still has the lock");
}

async fn shutdown_ends_holds_and_waits(subject: Subject) {
    let dropped = subject.fixture.process("dropped");
    drop(subject.of(&dropped).acquire().await.unwrap());
    dropped.shutdown().await;
    subject.assert_free().await;

    let held = subject.ours().acquire().await.unwrap();
    let waiter = subject.ours().spawn_acquire();
    subject.shut_down().await;
    subject.assert_free().await;
    for refused in [waiter.await.unwrap(), subject.ours().acquire().await] {
        assert!(matches!(refused, Err(LockError::ShutDown { name, .. }) if subject.has_name(&name)));
    }
    assert!(held.is_lost());
    assert_lost(held.context().ensure_held(), LossReason::ShutDown);
    assert_lost(held.release().await, LossReason::ShutDown);
}

/// S2.10: the claim is gone when the release looks for it, and after every release.
async fn a_removed_claim_is_gone(subject: Subject) {
    let removed = subject.ours().acquire().await.unwrap();
    let context = removed.context();
    subject.force_release(&subject.fixture.rival()).await;
    match removed.release().await {
        Err(LockError::Lost {
            name, token, reason, ..
        }) => {
            assert_eq!(
                (&*name, token, reason),
                (context.name(), context.fencing_token(), LossReason::Gone)
            );
        }
        other => panic!("{other:?}"),
    }
    assert_lost(context.ensure_held(), LossReason::Gone);
    subject.assert_released().await;

    // The process of the operator notices it long before the next renewal, which comes after 10 s.
    let own = subject.ours().acquire().await.unwrap();
    subject.force_release(subject.provider()).await;
    timeout(Duration::from_secs(5), own.lost())
        .await
        .expect("its own process is told");
    drop(own);
    subject.assert_released().await;

    let released = subject.ours().acquire().await.unwrap();
    let context = released.context();
    released.release().await.unwrap();
    assert!(context.is_lost() && context.remaining().is_zero());
    assert_lost(context.ensure_held(), LossReason::Gone);
    in_time(context.lost()).await;
}

/// A loss cancels a body that awaits. A thread gets the error when its body has returned.
async fn a_body_learns_of_a_loss(subject: Subject) {
    // The expiry is so long that it does not release the other locks of a set.
    let target = subject.ours_renewed_each(Duration::from_millis(100));
    let body = target.run(async |context| {
        subject.force_release(&subject.fixture.rival()).await;
        context.lost().await;
        if !subject.has_threads() {
            pending::<()>().await;
        }
        Ok::<_, LockError>("done")
    });
    let ended = in_time(body).await;
    assert_lost(ended, LossReason::Gone);
    subject.assert_released().await;
}

async fn min_hold_keeps_others_out(subject: Subject) {
    let min_hold = Duration::from_secs(3);
    for (round, way) in ways(&subject).iter().enumerate() {
        let target = subject.ours().min_hold(min_hold).await_release(round % 2 == 0);
        let begun = Instant::now();
        leave(target, way).await;
        assert!(begun.elapsed() < min_hold, "{way} waits for the end of it");
        let mut others = JoinSet::new();
        for part in subject.their_parts() {
            others.spawn(async move { part.acquire_and_release().await });
        }
        while let Some(other) = others.join_next().await {
            other.unwrap();
            assert!(begun.elapsed() >= min_hold, "{way}");
        }
    }
}

async fn a_lost_lock_can_be_acquired_again_by_its_holder(subject: Subject) {
    let outer = subject.ours().unrenewed().acquire().await.unwrap();
    let again = outer.context().scope(async {
        outer.lost().await;
        subject.ours().acquire_and_release().await;
    });
    in_time(again).await;
}
