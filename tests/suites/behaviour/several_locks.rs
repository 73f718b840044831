//! Several locks in one task, as the guide describes them.

use std::sync::Arc;
use std::time::Duration;

use mongolock::{LockError, LockProvider};
use tokio::sync::Barrier;

use crate::conformance::conformance;
use crate::fixture::{Fixture, assert_released, in_time};

conformance!(
    a_deadlock_ends_at_the_inner_timeout,
    locks_in_one_order_do_not_deadlock,
);

/// The timeout of calls that end by it: long enough for the reply of a busy server.
const SHORT: Duration = Duration::from_secs(2);

/// Each of two calls holds one lock and waits for the other one, alone or in a set. Both locks are free after that.
async fn a_deadlock_ends_at_the_inner_timeout(fixture: Fixture) {
    for inner_is_a_set in [false, true] {
        let both_hold = Arc::new(Barrier::new(2));
        let call = async |provider: LockProvider, outer: &str, inner: &str| {
            let body = provider.lock(outer).run(async |_| {
                both_hold.wait().await;
                if inner_is_a_set {
                    let both = provider.lock_all([outer, inner]).acquire_timeout(SHORT);
                    return both.run(async |_| Ok::<_, LockError>(())).await;
                }
                let inner = provider.lock(inner).acquire_timeout(SHORT);
                inner.run(async |_| Ok(())).await
            });
            body.await
        };
        let (ours, theirs) = (fixture.provider.clone(), fixture.rival());
        let calls = async { tokio::join!(call(ours, "a", "b"), call(theirs, "b", "a")) };
        let (one, other) = in_time(calls).await;
        let outcomes = [one, other];
        let timed_out = |outcome: &Result<(), LockError>| matches!(outcome, Err(LockError::Timeout { .. }));
        assert!(outcomes.iter().any(timed_out), "{outcomes:?}");
        // What ends the wait of a set can be the limit of a request.
        let ended_well = |outcome: &Result<(), LockError>| outcome.is_ok() || timed_out(outcome);
        assert!(inner_is_a_set || outcomes.iter().all(ended_well), "{outcomes:?}");
        for name in ["a", "b"] {
            assert_released(&fixture.provider.lock(name)).await;
        }
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
    in_time(all).await;
}
