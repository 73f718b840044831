use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;
use crate::LossReason;
use crate::{FencingToken, LockGuard, LockProvider};

/// The tokens of two holders, one after the other, that both waited for the lock.
async fn tokens(between: impl FnOnce(&LockGuard)) -> (FencingToken, FencingToken) {
    let provider = LockProvider::in_memory();
    let rival = provider.to_builder().build().unwrap().lock("a").await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..2 {
        let lock = provider.lock("a");
        waiting.spawn(async move { lock.acquire().await.unwrap() });
    }
    tokio::task::yield_now().await;
    rival.release().await.unwrap();
    let first = waiting.join_next().await.unwrap().unwrap();
    let token = first.fencing_token();
    between(&first);
    first.release().await.unwrap();
    (token, waiting.join_next().await.unwrap().unwrap().fencing_token())
}

/// A lock whose work may succeed once, with a lease of a second that is not renewed.
async fn committing(provider: &LockProvider) -> LockGuard {
    let lock = provider.lock("a").once().expiry(Duration::from_secs(1));
    let guard = lock.max_hold(Duration::ZERO).acquire().await.unwrap();
    assert!(guard.lease().begin_commit_with_end());
    guard
}

fn assert_lost(guard: &LockGuard, expected: LossReason) {
    assert!(guard.lease().is_lost());
    let error = guard.lease().lost_error();
    assert!(
        matches!(error, LockError::Lost { reason, .. } if reason == expected),
        "{error}"
    );
}

/// The guard lives on, and does not keep the turn.
async fn assert_turn_is_free(provider: &LockProvider) {
    let next = provider.lock("a").acquire();
    drop(timeout(Duration::from_secs(10), next).await.unwrap().unwrap());
}

/// The deadline passes before the commit has failed, or before its outcome has become unknown.
#[tokio::test(start_paused = true)]
async fn a_lease_ends_after_a_failed_commit_that_took_too_long() {
    for is_known in [true, false] {
        let provider = LockProvider::in_memory();
        let guard = committing(&provider).await;
        let open = guard.lease().begin_commit();
        sleep(Duration::from_secs(2)).await;
        assert!(!guard.lease().is_lost(), "the commit decides");
        let renewer = &provider.engine().renewer;
        if is_known {
            open.ended(false);
            renewer.resume(guard.lease());
        } else {
            drop(open);
            renewer.go_on(guard.lease());
        }
        assert_lost(&guard, LossReason::Expired);
        assert_turn_is_free(&provider).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_commit_has_no_known_outcome_ends_at_its_deadline() {
    let provider = LockProvider::in_memory();
    let guard = committing(&provider).await;
    drop(guard.lease().begin_commit());
    guard.lease().lose(LossReason::Gone);
    assert!(!guard.lease().is_lost(), "the commit may have ended the claim");
    sleep(Duration::from_secs(2)).await;
    assert_lost(&guard, LossReason::Expired);
    assert_turn_is_free(&provider).await;
}

/// A commit that finds no claim leaves the decision to another one under way.
#[tokio::test(start_paused = true)]
async fn a_hold_whose_work_a_commit_has_marked_has_ended_well() {
    let provider = LockProvider::in_memory();
    let guard = committing(&provider).await;
    let (made, late) = (guard.lease().begin_commit(), guard.lease().begin_commit());
    guard.lease().claim_is_gone();
    assert!(matches!(guard.lease().lost_error(), LockError::Lost { .. }));
    late.ended(false);
    assert!(!guard.lease().is_lost());
    made.ended(true);
    let renewer = &provider.engine().renewer;
    renewer.committed(guard.lease());
    assert!(guard.lease().is_over() && !guard.lease().is_lost() && !guard.lease().should_cancel());
    assert!(guard.lease().ensure_held().is_err());
    // The store still has the claim, and a release is not sent.
    guard.release().await.unwrap();
    assert!(provider.lock("a").try_acquire().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_commit_has_no_known_outcome_keeps_no_shutdown_waiting() {
    let provider = LockProvider::in_memory();
    let guard = committing(&provider).await;
    drop(guard.lease().begin_commit());
    timeout(Duration::from_secs(5), provider.shutdown())
        .await
        .unwrap();
    assert_lost(&guard, LossReason::ShutDown);
}

/// The claim guards the commit: the next hold must not use the same claim while the commit may still take effect.
#[tokio::test(start_paused = true)]
async fn a_claim_with_an_open_commit_is_not_handed_over() {
    let is_next = |(token, next): (FencingToken, FencingToken)| next.get() == token.get() + 1;
    assert!(is_next(tokens(|_| ()).await), "this is how a hand-over looks");
    let made = |guard: &LockGuard| guard.lease().begin_commit().ended(true);
    assert!(is_next(tokens(made).await));

    let under_way = |guard: &LockGuard| std::mem::forget(guard.lease().begin_commit());
    assert!(!is_next(tokens(under_way).await));
    let cut_off = |guard: &LockGuard| drop(guard.lease().begin_commit());
    assert!(!is_next(tokens(cut_off).await));
}
