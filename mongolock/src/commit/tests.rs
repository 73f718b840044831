use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::{LockError, LockGuard, LockProvider, LossReason};

/// A lock whose work may succeed once, with a lease of a second that is not renewed.
async fn committing(provider: &LockProvider) -> LockGuard {
    let lock = provider.lock("a").once().expiry(Duration::from_secs(1));
    lock.max_hold(Duration::ZERO).acquire().await.unwrap()
}

fn assert_lost(guard: &LockGuard, expected: LossReason) {
    assert!(guard.is_lost());
    let error = guard.ensure_held().unwrap_err();
    assert!(
        matches!(error, LockError::Lost { reason, .. } if reason == expected),
        "{error}"
    );
}

/// The deadline passes before the commit has failed, or before its outcome has become unknown. The guard still exists,
/// and does not keep the turn.
#[tokio::test(start_paused = true)]
async fn a_lease_ends_after_a_failed_commit_that_took_too_long() {
    for is_known in [true, false] {
        let provider = LockProvider::in_memory();
        let guard = committing(&provider).await;
        let open = provider.engine().begin_commit(guard.lease(), true);
        sleep(Duration::from_secs(2)).await;
        if is_known {
            open.ended(false);
        } else {
            drop(open);
        }
        let next = provider.lock("a").acquire();
        drop(timeout(Duration::from_secs(10), next).await.unwrap().unwrap());
        assert_lost(&guard, LossReason::Expired);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_commit_has_no_known_outcome_keeps_no_shutdown_waiting() {
    let provider = LockProvider::in_memory();
    let guard = committing(&provider).await;
    drop(provider.engine().begin_commit(guard.lease(), false));
    timeout(Duration::from_secs(5), provider.shutdown())
        .await
        .unwrap();
    assert_lost(&guard, LossReason::ShutDown);
}

/// The claim guards the commit: the next hold must not use the same claim while the commit may still take effect.
#[tokio::test(start_paused = true)]
async fn a_claim_with_an_open_commit_is_not_handed_over() {
    let provider = LockProvider::in_memory();
    let guard = provider.lock("a").await.unwrap();
    let next = tokio::spawn(provider.lock("a").acquire());
    tokio::task::yield_now().await;
    let (engine, lease) = (Arc::clone(provider.engine()), Arc::clone(guard.lease()));
    let open = engine.begin_commit(&lease, false);
    let releasing = tokio::spawn(guard.release());
    sleep(Duration::from_secs(1)).await;
    assert!(!next.is_finished() && !releasing.is_finished());
    open.ended(true);
    releasing.await.unwrap().unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
}
