//! A hold from its acquisition to its end: renewal, expiry, release, minimum hold and shutdown.

use std::future::pending;
use std::time::Duration;

use futures_util::future::join_all;
use mongolock::{LockError, LossReason};
use mongolock_tests::BEFORE_EXPIRY;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::conformance_of_kinds;
use super::kind::Kind;
use super::subject::Subject;
use super::target::Target;
use crate::fixture::{AppError, assert_lost, in_time, renewing};

conformance_of_kinds!(
    min_hold_keeps_others_out: HOLDS,
    every_exit_releases: HOLDS with threads,
    a_held_lock_outlives_its_expiry: HOLDS,
    an_expired_lease_is_lost_and_its_release_changes_nothing: HOLDS with threads,
    shutdown_ends_holds_and_waits: HOLDS with threads,
    a_removed_claim_is_gone: HOLDS with threads,
    a_body_learns_of_a_loss: CALLS with threads,
    a_lost_lock_can_be_acquired_again_by_its_holder: CALLS,
);

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

/// S0.6, S1.1
async fn every_exit_releases(subject: Subject) {
    let hold = subject.ours().acquire().await.unwrap();
    assert!(!hold.is_lost() && hold.remaining() > BEFORE_EXPIRY);
    subject.assert_held().await;
    hold.release().await.unwrap();
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
    let end = Instant::now() + expiry * 3 / 2;
    while Instant::now() < end {
        subject.assert_held().await;
        assert!(!hold.is_lost());
        sleep(Duration::from_millis(200)).await;
    }
    hold.release().await.unwrap();
}

/// S0.13, S1.6, S1.26, S2.9, S2.10, B8, S3.8
async fn an_expired_lease_is_lost_and_its_release_changes_nothing(subject: Subject) {
    let dead = subject.ours().unrenewed().acquire().await.unwrap();
    // A slow server may have granted the lease long before its reply.
    let (begun, left) = (Instant::now(), dead.remaining());
    let context = dead.context();
    context.ensure_held().unwrap();
    dead.ensure_held().unwrap();
    let next = subject.theirs().spawn_acquire();
    in_time(async { tokio::join!(context.lost(), dead.lost()) }).await;
    let next = in_time(next).await.unwrap().unwrap();
    let lasted = begun.elapsed();
    assert!(lasted >= left, "held for {lasted:?} of {left:?}");
    assert!(dead.is_lost() && dead.remaining() == Duration::ZERO);
    subject.assert_newer(&next.context(), &context);
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
    subject.force_release_one(&subject.fixture.rival()).await;
    // A set asks for the outcome of its release, and takes one of just now for its own.
    sleep(Duration::from_millis(500)).await;
    let lost = removed.release().await;
    let is_of_hold = |name: &str, token| name == context.name() && token == context.fencing_token();
    assert!(matches!(&lost, Err(LockError::Lost { name, token, .. }) if is_of_hold(name, *token)));
    assert_lost(lost, LossReason::Gone);
    assert_lost(context.ensure_held(), LossReason::Gone);
    subject.assert_released().await;

    // The process of the operator notices it long before the next renewal, which comes after 10 s.
    let own = subject.ours().acquire().await.unwrap();
    subject.force_release_one(subject.provider()).await;
    let lost = timeout(Duration::from_secs(5), own.lost()).await;
    lost.expect("its own process is told");
    drop(own);

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
    let often = renewing(subject.provider(), Duration::from_millis(100));
    let target = subject.kind.of(&often, subject.threads.clone());
    let body = target.run(async |context| {
        subject.force_release_one(&subject.fixture.rival()).await;
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

/// Each part of it is free when the minimum hold is over.
async fn min_hold_keeps_others_out(subject: Subject) {
    let min_hold = Duration::from_secs(3);
    let begun = Instant::now();
    subject.ours().min_hold(min_hold).acquire_and_release().await;
    assert!(begun.elapsed() < min_hold, "the release waits for the end of it");
    let parts = subject.their_parts().into_iter().map(async |part| {
        part.acquire_and_release().await;
        assert!(begun.elapsed() >= min_hold);
    });
    join_all(parts).await;
}

async fn a_lost_lock_can_be_acquired_again_by_its_holder(subject: Subject) {
    let outer = subject.ours().unrenewed().acquire().await.unwrap();
    let again = outer.context().scope(async {
        outer.lost().await;
        subject.ours().acquire_and_release().await;
    });
    in_time(again).await;
}
