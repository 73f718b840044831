//! Nested calls that lock the same name (B11).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongolock::{FencingToken, LockContext, LockError, LockProvider, distributed_lock};
use tokio::time::sleep;

use crate::conformance::subject::Subject;
use crate::conformance::target::Target;
use crate::conformance::{conformance, conformance_of_kinds};
use crate::fixture::{Fixture, in_time};

conformance!(
    a_nested_call_joins_the_hold,
    siblings_are_busy_to_each_other,
    another_provider_is_another_lock,
    a_lost_hold_cannot_be_joined,
    a_sibling_does_not_begin_under_a_lost_hold,
);

conformance_of_kinds!(
    a_nested_call_joins_across_other_locks_and_levels: CALLS with threads,
    siblings_are_serialised: CALLS,
    an_explicit_acquire_within_the_own_hold_is_refused: CALLS with threads,
    a_context_can_be_carried_into_a_task: CALLS,
    a_guard_is_joined_only_in_its_scope: CALLS,
);

/// The context of the hold that encloses the caller.
fn current() -> LockContext {
    LockContext::current().expect("within a hold")
}

async fn a_nested_call_joins_the_hold(fixture: Fixture) {
    #[distributed_lock(name = "joined:<id>")]
    async fn outer(id: u32) -> Result<(FencingToken, FencingToken), LockError> {
        let inner = inner(id).await?;
        // The end of the inner call has not released the lock of the outer one.
        current().ensure_held()?;
        Ok((current().fencing_token(), inner))
    }

    // The options of the inner call do not apply, because it joins the hold of the outer one.
    #[distributed_lock(name = "joined:<id>", on_busy = "fail", min_hold = "1h")]
    async fn inner(id: u32) -> Result<FencingToken, LockError> {
        assert_eq!(current().name(), format!("joined:{id}"));
        Ok(current().fencing_token())
    }

    let (outer, inner) = in_time(fixture.provider.scope(outer(1))).await.unwrap();
    assert_eq!(outer, inner);
    // The outer call releases the lock, without the minimum hold of the inner one.
    assert!(fixture.is_free("joined:1").await);
}

async fn a_nested_call_joins_across_other_locks_and_levels(subject: Subject) {
    let (whole, between) = (subject.ours(), subject.named("between"));
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
        joins(&whole, &outer).await?;
        // A call of another name of a set within a call of one of its names joins as well, and does not wait for that call.
        let parts = subject.our_parts();
        for part in &parts {
            let deeper = part.run(async |_| {
                let inner = between.run(async |_| {
                    for other in &parts {
                        joins(other, &outer).await?;
                    }
                    joins(&whole, &outer).await
                });
                inner.await
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

    #[distributed_lock(name = "pair", on_busy = "skip")]
    async fn skipping() -> Result<Option<()>, LockError> {
        Ok(Some(()))
    }

    let provider = fixture.process("siblings");
    let pair = provider.lock("pair").run(async |_| {
        let both = tokio::join!(failing(), failing(), skipping());
        Ok::<_, LockError>(both)
    });
    let (first, second, third) = provider.scope(pair).await.unwrap();
    first.unwrap();
    let Err(LockError::Busy {
        name,
        holder,
        remaining,
        ..
    }) = second
    else {
        panic!("{second:?}");
    };
    assert_eq!((&*name, holder.as_deref()), ("pair", Some("siblings")));
    assert!(remaining.is_some_and(|remaining| !remaining.is_zero()));
    assert_eq!(third.unwrap(), None);
}

async fn an_explicit_acquire_within_the_own_hold_is_refused(subject: Subject) {
    let whole = subject.ours();
    let refused = whole.run(async |_| {
        for target in subject.our_parts().into_iter().chain([subject.ours()]) {
            for refused in [
                target.acquire().await.map(drop),
                target.try_acquire().await.map(drop),
            ] {
                assert!(
                    matches!(&refused, Err(LockError::Reentrant { name, .. }) if subject.has_name(name)),
                    "{refused:?}"
                );
            }
        }
        Ok::<_, LockError>(())
    });
    in_time(refused).await.unwrap();
}

async fn another_provider_is_another_lock(fixture: Fixture) {
    let rival = fixture
        .rival()
        .lock("theirs")
        .acquire_timeout(Duration::from_millis(500));
    let own = fixture.provider.lock("theirs").run(async |_| {
        let theirs = rival.run(async |_| Ok::<_, LockError>(())).await;
        Ok::<_, LockError>(theirs)
    });
    assert!(matches!(own.await.unwrap(), Err(LockError::Timeout { .. })));
    let elsewhere = LockProvider::in_memory().lock("theirs");
    let apart = fixture
        .provider
        .lock("theirs")
        .run(async |_| elsewhere.run(async |_| Ok::<_, LockError>(())).await);
    apart.await.unwrap();
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

async fn a_lost_hold_cannot_be_joined(fixture: Fixture) {
    #[distributed_lock(name = "lost", expiry = "200ms", max_hold = "0s", on_lost = "continue")]
    async fn outer() -> Result<Result<(), LockError>, LockError> {
        current().lost().await;
        Ok(inner().await)
    }

    #[distributed_lock(name = "lost")]
    async fn inner() -> Result<(), LockError> {
        unreachable!("the hold is lost")
    }

    let joined = in_time(fixture.provider.scope(outer())).await.unwrap();
    assert!(matches!(joined, Err(LockError::Lost { name, .. }) if name == "lost"));
}

/// B16: the lock is lost while the second call waits for its sibling.
async fn a_sibling_does_not_begin_under_a_lost_hold(fixture: Fixture) {
    #[distributed_lock(name = "family", expiry = "200ms", max_hold = "0s", on_lost = "continue")]
    async fn family() -> Result<(Result<(), LockError>, Result<(), LockError>), LockError> {
        Ok(tokio::join!(first(), second()))
    }

    #[distributed_lock(name = "family")]
    async fn first() -> Result<(), LockError> {
        std::future::pending().await
    }

    #[distributed_lock(name = "family", on_lost = "continue")]
    async fn second() -> Result<(), LockError> {
        unreachable!("the hold is lost before this call begins")
    }

    let (first, second) = in_time(fixture.provider.scope(family())).await.unwrap();
    assert!(matches!(first, Err(LockError::Lost { .. })));
    assert!(matches!(second, Err(LockError::Lost { .. })));
}

/// A guard alone encloses no call: calls of its name wait for it. Within its scope they join it.
async fn a_guard_is_joined_only_in_its_scope(subject: Subject) {
    let whole = subject.ours();
    let hold = whole.acquire().await.unwrap();
    let target = whole.acquire_timeout(Some(Duration::from_secs(2)));
    let body = async |context: LockContext| Ok::<_, LockError>(context.fencing_token());
    let token = || target.run(body);
    assert!(matches!(token().await, Err(LockError::Timeout { .. })));
    assert!(matches!(target.acquire().await, Err(LockError::Timeout { .. })));
    assert!(!target.is_free().await);

    let context = hold.context();
    let joined = context.clone().scope(token()).await.unwrap();
    assert_eq!(joined, context.fencing_token());
    let refused = context.scope(target.acquire()).await;
    assert!(matches!(refused, Err(LockError::Reentrant { .. })));
    hold.release().await.unwrap();
}
