//! Nested calls that lock the same name (B11).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongolock::{FencingToken, LockContext, LockError, LockProvider, distributed_lock};
use mongolock_tests::AMPLE;
use tokio::time::{sleep, timeout};

use crate::conformance::conformance;
use crate::fixture::Fixture;

conformance!(
    a_nested_call_joins_the_hold,
    a_nested_call_joins_across_other_locks_and_levels,
    siblings_are_serialised,
    siblings_are_busy_to_each_other,
    an_explicit_acquire_within_the_own_hold_is_refused,
    another_provider_is_another_lock,
    a_context_can_be_carried_into_a_task,
    a_lost_hold_cannot_be_joined,
    a_context_ends_with_its_hold,
    a_sibling_does_not_begin_under_a_lost_hold,
);

/// The token of the hold that encloses the caller.
fn token() -> FencingToken {
    LockContext::current().expect("within a hold").fencing_token()
}

async fn a_nested_call_joins_the_hold(fixture: Fixture) {
    #[distributed_lock(name = "joined:<id>")]
    async fn outer(id: u32) -> Result<(FencingToken, FencingToken), LockError> {
        let inner = inner(id).await?;
        // The end of the inner call has not released the lock of the outer one.
        LockContext::current().expect("within a hold").ensure_held()?;
        Ok((token(), inner))
    }

    // The options of the inner call do not apply, because it joins the hold of the outer one.
    #[distributed_lock(name = "joined:<id>", on_busy = "fail", min_hold = "1h")]
    async fn inner(id: u32) -> Result<FencingToken, LockError> {
        assert_eq!(
            LockContext::current().expect("within a hold").name(),
            format!("joined:{id}")
        );
        Ok(token())
    }

    let (outer, inner) = timeout(AMPLE, fixture.provider.scope(outer(1)))
        .await
        .expect("no deadlock")
        .unwrap();
    assert_eq!(outer, inner);
    let free = fixture.rival().lock("joined:1").try_acquire().await.unwrap();
    drop(free.expect("the outer call releases the lock, without the minimum hold of the inner one"));
}

async fn a_nested_call_joins_across_other_locks_and_levels(fixture: Fixture) {
    let (a, b) = (fixture.provider.lock("a"), fixture.provider.lock("b"));
    let tokens = a.run(async |_| {
        let first = token();
        let deeper = b.run(async |context| {
            assert_eq!(context.name(), "b");
            a.run(async |context| {
                assert_eq!(context.name(), "a");
                let third = a.run(async |_| Ok::<_, LockError>(token())).await?;
                Ok::<_, LockError>([token(), third])
            })
            .await
        });
        let [second, third] = deeper.await?;
        Ok::<_, LockError>([first, second, third])
    });
    let [first, second, third] = timeout(AMPLE, tokens).await.expect("no deadlock").unwrap();
    assert_eq!([first, first], [second, third]);
}

async fn siblings_are_serialised(fixture: Fixture) {
    let lock = fixture.provider.lock("siblings");
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let sibling = || {
        lock.run(async |_| {
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(5)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, LockError>(token())
        })
    };
    let tokens = lock
        .run(async |_| {
            let (a, b, c) = tokio::join!(sibling(), sibling(), sibling());
            Ok::<_, LockError>([token(), a?, b?, c?])
        })
        .await
        .unwrap();
    assert!(tokens.iter().all(|token| *token == tokens[0]));
    assert_eq!(most.load(Ordering::SeqCst), 1);
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
    match second {
        Err(LockError::Busy {
            name,
            holder,
            remaining,
            ..
        }) => {
            assert_eq!((name, holder), ("pair".to_owned(), Some("siblings".to_owned())));
            assert!(
                remaining.is_some_and(|remaining| !remaining.is_zero()),
                "{remaining:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(third.unwrap(), None);
}

async fn an_explicit_acquire_within_the_own_hold_is_refused(fixture: Fixture) {
    let lock = fixture.provider.lock("own");
    let refused = lock.run(async |_| {
        let waited = lock.acquire().await;
        let tried = lock.try_acquire().await;
        Ok::<_, LockError>((waited.map(drop), tried.map(drop)))
    });
    let (waited, tried) = timeout(AMPLE, refused)
        .await
        .expect("both are refused at once")
        .unwrap();
    assert!(matches!(waited, Err(LockError::Reentrant { name, .. }) if name == "own"));
    assert!(matches!(tried, Err(LockError::Reentrant { .. })));
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

async fn a_context_can_be_carried_into_a_task(fixture: Fixture) {
    let lock = Arc::new(fixture.provider.lock("carried"));
    let inner = Arc::clone(&lock);
    let tokens = lock.run(async move |context| {
        let carried = context.scope(async move { inner.run(async |_| Ok::<_, LockError>(token())).await });
        let joined = tokio::spawn(carried).await.expect("the task does not panic")?;
        Ok::<_, LockError>((token(), joined))
    });
    let (outer, joined) = timeout(AMPLE, tokens).await.expect("no deadlock").unwrap();
    assert_eq!(outer, joined);
    assert!(LockContext::current().is_none());
}

async fn a_lost_hold_cannot_be_joined(fixture: Fixture) {
    #[distributed_lock(name = "lost", expiry = "200ms", max_hold = "0s", on_lost = "continue")]
    async fn outer() -> Result<Result<(), LockError>, LockError> {
        LockContext::current().expect("within a hold").lost().await;
        Ok(inner().await)
    }

    #[distributed_lock(name = "lost")]
    async fn inner() -> Result<(), LockError> {
        unreachable!("the hold is lost")
    }

    let joined = timeout(AMPLE, fixture.provider.scope(outer()))
        .await
        .expect("the lease ends")
        .unwrap();
    assert!(matches!(joined, Err(LockError::Lost { name, .. }) if name == "lost"));
}

async fn a_context_ends_with_its_hold(fixture: Fixture) {
    let context = fixture
        .provider
        .lock("over")
        .run(async |context| Ok::<_, LockError>(context))
        .await
        .unwrap();
    assert!(context.is_lost() && context.remaining().is_zero());
    assert!(context.ensure_held().is_err());
    timeout(AMPLE, context.lost()).await.expect("the hold has ended");
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

    let (first, second) = timeout(AMPLE, fixture.provider.scope(family()))
        .await
        .expect("the lease ends")
        .unwrap();
    assert!(matches!(first, Err(LockError::Lost { .. })));
    assert!(matches!(second, Err(LockError::Lost { .. })));
}
