//! Several locks in one task, as the guide's page on deadlocks describes them.

use std::sync::Arc;
use std::time::Duration;

use mongolock::{FencingToken, LockError, LockProvider};
use mongolock_tests::AMPLE;
use tokio::sync::Barrier;
use tokio::time::timeout;

use crate::conformance::conformance;
use crate::fixture::{Fixture, acquire_and_release};

conformance!(
    a_deadlock_ends_at_the_inner_timeout,
    locks_in_one_order_do_not_deadlock,
    a_guard_is_joined_only_in_its_scope,
);

/// The timeout of calls that end by it: long enough for the reply of a busy server.
const SHORT: Duration = Duration::from_secs(2);

/// Each of two calls holds one lock and waits for the other one. Both locks are free after that.
async fn a_deadlock_ends_at_the_inner_timeout(fixture: Fixture) {
    let both_hold = Arc::new(Barrier::new(2));
    let call = async |provider: LockProvider, outer: &str, inner: &str| {
        let inner = provider.lock(inner).acquire_timeout(SHORT);
        let outer = provider.lock(outer);
        let body = outer.run(async |_| {
            both_hold.wait().await;
            inner.run(async |_| Ok::<_, LockError>(())).await
        });
        body.await
    };
    let calls = async {
        tokio::join!(
            call(fixture.provider.clone(), "a", "b"),
            call(fixture.rival(), "b", "a")
        )
    };
    let (one, other) = timeout(AMPLE, calls).await.expect("the deadlock ends");
    let outcomes = [one, other];
    let timed_out = |outcome: &Result<(), LockError>| matches!(outcome, Err(LockError::Timeout { .. }));
    assert!(outcomes.iter().any(timed_out), "{outcomes:?}");
    let ended_well = |outcome: &Result<(), LockError>| outcome.is_ok() || timed_out(outcome);
    assert!(outcomes.iter().all(ended_well), "{outcomes:?}");
    for name in ["a", "b"] {
        acquire_and_release(&fixture.provider.lock(name)).await;
    }
}

/// Calls of two processes acquire the same two locks, in the order of their names, many times.
async fn locks_in_one_order_do_not_deadlock(fixture: Fixture) {
    let calls = async |provider: LockProvider| {
        for _ in 0..10 {
            let first = provider.lock("a").await.unwrap();
            let second = provider.lock("b").await.unwrap();
            second.release().await.unwrap();
            first.release().await.unwrap();
        }
    };
    let all = async { tokio::join!(calls(fixture.provider.clone()), calls(fixture.rival())) };
    timeout(AMPLE, all).await.expect("no deadlock");
}

/// A guard alone encloses no call: calls of its name wait for it. Within its scope they join it.
async fn a_guard_is_joined_only_in_its_scope(fixture: Fixture) {
    let guard = fixture.provider.lock("guarded").await.unwrap();
    let lock = fixture.provider.lock("guarded").acquire_timeout(SHORT);
    let token = async || {
        lock.run(async |context| Ok::<_, LockError>(context.fencing_token()))
            .await
    };
    assert!(matches!(token().await, Err(LockError::Timeout { .. })));
    assert!(matches!(lock.acquire().await, Err(LockError::Timeout { .. })));
    assert!(lock.try_acquire().await.unwrap().is_none());

    let joined: FencingToken = guard.context().scope(token()).await.unwrap();
    assert_eq!(joined, guard.fencing_token());
    let refused = guard.context().scope(lock.acquire()).await;
    assert!(matches!(refused, Err(LockError::Reentrant { .. })));
    guard.release().await.unwrap();
}
