//! Nested calls that lock the same name (B11), and calls that hold several locks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongolock::{LockContext, LockError, LockProvider, distributed_lock};
use mongolock_tests::AMPLE;
use tokio::sync::Barrier;
use tokio::time::sleep;

use crate::conformance::subject::Subject;
use crate::conformance::target::Target;
use crate::conformance::{conformance, conformance_of_kinds};
use crate::fixture::{Fixture, assert_released, in_time};

conformance!(
    siblings_are_busy_to_each_other,
    a_deadlock_ends_at_the_inner_timeout,
);

conformance_of_kinds!(
    a_nested_call_joins_across_other_locks_and_levels: CALLS with threads,
    siblings_are_serialised: CALLS,
    an_explicit_acquire_within_the_own_hold_is_refused: CALLS with threads,
    a_context_can_be_carried_into_a_task: CALLS,
    a_guard_is_joined_only_in_its_scope: CALLS,
);

/// The timeout of calls that end by it: long enough for the reply of a busy server.
const SHORT: Duration = Duration::from_secs(2);

/// The context of the hold that encloses the caller.
fn current() -> LockContext {
    LockContext::current().expect("within a hold")
}

async fn a_nested_call_joins_across_other_locks_and_levels(subject: Subject) {
    let (whole, between) = (subject.ours(), subject.named("between"));
    // The options of an inner call do not apply.
    let inner = subject.ours().min_hold(AMPLE);
    let joins = async |inner: &Target, outer: &LockContext| {
        inner
            .run(async |joined| {
                for name in joined.names().filter(|name| subject.has_name(name)) {
                    assert_eq!(joined.fencing_token_of(name), outer.fencing_token_of(name));
                }
                assert_eq!((current().name(), joined.is_lost()), (joined.name(), false));
                Ok::<_, LockError>(())
            })
            .await
    };
    let body = whole.run(async |outer| {
        joins(&inner, &outer).await?;
        // A call of another name of a set within a call of one of its names joins as well, and does not wait for that call.
        let parts = subject.our_parts();
        for part in &parts {
            let deeper = part.run(async |_| {
                let deepest = between.run(async |_| {
                    for other in &parts {
                        joins(other, &outer).await?;
                    }
                    joins(&inner, &outer).await
                });
                deepest.await
            });
            deeper.await?;
        }
        // The end of the inner calls has released nothing of the outer one.
        subject.assert_held().await;
        outer.ensure_held()
    });
    in_time(body).await.unwrap();
    assert!(LockContext::current().is_none());
    subject.assert_released().await;
}

/// Calls that join different names of one set do not run at the same time either.
async fn siblings_are_serialised(subject: Subject) {
    let running = AtomicUsize::new(0);
    let sibling = async |target: &Target| {
        target
            .run(async |_| {
                let others = running.fetch_add(1, Ordering::SeqCst);
                assert_eq!(others, 0, "another call runs under the same hold");
                sleep(Duration::from_millis(5)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, LockError>(())
            })
            .await
    };
    let (whole, parts) = (subject.ours(), subject.our_parts());
    let (first, last) = (&parts[0], &parts[parts.len() - 1]);
    let body = whole.run(async |_| {
        let (one, two, three, four) =
            tokio::join!(sibling(first), sibling(last), sibling(&whole), sibling(first));
        one.and(two).and(three).and(four)
    });
    in_time(body).await.unwrap();
}

async fn siblings_are_busy_to_each_other(fixture: Fixture) {
    #[distributed_lock(name = "pair", on_busy = "fail")]
    async fn failing() -> Result<(), LockError> {
        sleep(Duration::from_millis(50)).await;
        Ok(())
    }

    let provider = fixture.process("siblings");
    let pair = provider.lock("pair").run(async |_| {
        let both = tokio::join!(failing(), failing());
        Ok::<_, LockError>(both)
    });
    let (first, second) = provider.scope(pair).await.unwrap();
    first.unwrap();
    match second {
        Err(LockError::Busy { name, holder, .. }) => {
            assert_eq!((&*name, holder.as_deref()), ("pair", Some("siblings")));
        }
        other => panic!("{other:?}"),
    }
}

async fn an_explicit_acquire_within_the_own_hold_is_refused(subject: Subject) {
    let whole = subject.ours();
    let refused = whole.run(async |_| {
        for target in subject.our_parts().into_iter().chain([subject.ours()]) {
            for refused in [
                target.acquire().await.map(drop),
                target.try_acquire().await.map(drop),
            ] {
                let is_refused =
                    matches!(&refused, Err(LockError::Reentrant { name, .. }) if subject.has_name(name));
                assert!(is_refused, "{refused:?}");
            }
        }
        Ok::<_, LockError>(())
    });
    in_time(refused).await.unwrap();
}

async fn a_context_can_be_carried_into_a_task(subject: Subject) {
    let target = subject.ours();
    let inner = target.clone();
    let joined = target.run(async move |context| {
        let token = context.fencing_token();
        let carried = context.scope(async move { inner.run(async |_| Ok::<_, LockError>(current())).await });
        let joined = tokio::spawn(carried).await.expect("the task does not panic")?;
        assert_eq!((joined.fencing_token(), joined.name()), (token, current().name()));
        Ok::<_, LockError>(())
    });
    in_time(joined).await.unwrap();
    assert!(LockContext::current().is_none());
}

/// A guard alone encloses no call: calls of its name wait for it. Within its scope they join it.
async fn a_guard_is_joined_only_in_its_scope(subject: Subject) {
    let whole = subject.ours();
    let hold = whole.acquire().await.unwrap();
    let target = whole.acquire_timeout(Some(SHORT));
    let body = async |context: LockContext| Ok::<_, LockError>(context.fencing_token());
    let token = || target.run(body);
    let (ran, acquired) = tokio::join!(token(), target.acquire());
    assert!(matches!(ran, Err(LockError::Timeout { .. })));
    assert!(matches!(acquired.map(drop), Err(LockError::Timeout { .. })));
    assert!(!target.is_free().await);

    let context = hold.context();
    let joined = context.clone().scope(token()).await.unwrap();
    assert_eq!(joined, context.fencing_token());
    let refused = context.scope(target.acquire()).await;
    assert!(matches!(refused, Err(LockError::Reentrant { .. })));
    hold.release().await.unwrap();
}

/// Each of two calls holds one lock and waits for the other one. Both locks are free after that.
async fn a_deadlock_ends_at_the_inner_timeout(fixture: Fixture) {
    let both_hold = Barrier::new(2);
    let call = async |provider: LockProvider, outer: &str, inner: &str| {
        let inner = provider.lock(inner).acquire_timeout(SHORT);
        let body = provider.lock(outer).run(async |_| {
            both_hold.wait().await;
            inner.run(async |_| Ok::<_, LockError>(())).await
        });
        body.await
    };
    let (ours, theirs) = (fixture.provider.clone(), fixture.rival());
    let (one, other) = in_time(async { tokio::join!(call(ours, "a", "b"), call(theirs, "b", "a")) }).await;
    let timed_out = |outcome: &Result<(), LockError>| matches!(outcome, Err(LockError::Timeout { .. }));
    assert!(timed_out(&one) || timed_out(&other), "{one:?}, {other:?}");
    let ended_well = |outcome: &Result<(), LockError>| outcome.is_ok() || timed_out(outcome);
    assert!(ended_well(&one) && ended_well(&other), "{one:?}, {other:?}");
    for name in ["a", "b"] {
        assert_released(&fixture.provider.lock(name)).await;
    }
}
