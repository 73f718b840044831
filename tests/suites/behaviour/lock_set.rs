//! Several locks that are acquired all or nothing, on both stores.

use std::time::Duration;

use mongolock::{LockContext, LockError};
use mongolock_tests::{AMPLE, until};
use tokio::time::sleep;

use crate::conformance::conformance;
use crate::fixture::{Fixture, assert_released, in_time};

conformance!(
    a_set_holds_all_names_and_releases_them,
    a_set_leaves_what_it_cannot_use,
    a_nested_set_acquires_what_is_missing,
);

async fn assert_all_released(fixture: &Fixture, names: &[&str]) {
    let observer = fixture.process("observer");
    for name in names {
        assert_released(&observer.lock(name)).await;
    }
}

/// Names are sorted and count once, and the one that was written first stands for the set.
async fn a_set_holds_all_names_and_releases_them(fixture: Fixture) {
    let set = fixture.provider.lock_all(["b", "a", "b", "c", "a"]);
    assert!(set.names().eq(["a", "b", "c"]));
    let body = set.run(async |context: LockContext| {
        let held = fixture.provider.held();
        assert!(held.iter().map(|lock| &*lock.name).eq(["a", "b", "c"]));
        assert_eq!(fixture.provider.health().await.held, 3);
        let current = LockContext::current().unwrap();
        assert_eq!((context.name(), current.name()), ("b", "b"));
        assert_eq!(Some(context.fencing_token()), context.fencing_token_of("b"));
        assert!(context.names().eq(["a", "b", "c"]) && context.fencing_token_of("d").is_none());
        for name in ["a", "b", "c"] {
            let token = fixture.info(name).await.fencing_token;
            assert_eq!(context.fencing_token_of(name), Some(token));
        }
        let part = fixture.provider.lock_all(["c", "a"]);
        let inner = part.run(async |context: LockContext| {
            assert!(context.name() == "c" && context.names().eq(["a", "c"]));
            assert_eq!(Some(context.fencing_token()), context.fencing_token_of("c"));
            Ok::<_, LockError>(())
        });
        inner.await?;
        context.ensure_held()
    });
    body.await.unwrap();
    for name in ["a", "b", "c"] {
        assert!(fixture.is_free(name).await, "{name}");
    }
}

/// While a set waits for one lock, which another process or a caller of its own process holds, the locks behind it are free, and
/// those before it are held or free. Without a stream a set asks again and again.
async fn a_set_leaves_what_it_cannot_use(fixture: Fixture) {
    let polling = fixture.with(|options| options.wake_up(false));
    let (ours, theirs) = (&fixture.provider, &fixture.rival());
    for (provider, holder) in [(ours, theirs), (ours, ours), (&polling, theirs)] {
        let held = holder.lock("b").await.unwrap();
        let waiting = tokio::spawn(
            provider
                .lock_all(["a", "b", "c"])
                .acquire_timeout(AMPLE)
                .acquire(),
        );
        until("the set has its first lock", async || !fixture.is_free("a").await).await;
        for _ in 0..20 {
            let free = [fixture.is_free("a").await, fixture.is_free("c").await];
            // It keeps those before the one that it waits for.
            assert_eq!(free, [false, true]);
            sleep(Duration::from_millis(10)).await;
        }
        held.release().await.unwrap();
        let guard = in_time(waiting).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
}

async fn a_nested_set_acquires_what_is_missing(fixture: Fixture) {
    let provider = &fixture.provider;
    for missing in [&["b"][..], &["b", "c"][..]] {
        let outer = provider.lock("a");
        let all: Vec<&str> = missing.iter().copied().chain(["a"]).collect();
        let inner = provider.lock_all(&all);
        let body = outer.run(async |outer: LockContext| {
            let nested = inner.run(async |context: LockContext| {
                assert_eq!(context.name(), "b");
                assert_eq!(context.fencing_token_of("a"), Some(outer.fencing_token()));
                for name in &all {
                    assert!(!fixture.is_free(name).await, "{name}");
                    assert!(context.fencing_token_of(name).is_some());
                }
                // Deeper calls join both holds.
                let deeper = provider.lock_all(&all);
                let names = deeper.run(async |context| Ok::<_, LockError>(context.names().count()));
                assert_eq!(names.await?, all.len());
                context.ensure_held()
            });
            nested.await?;
            for name in missing {
                assert!(fixture.is_free(name).await, "{name}");
            }
            assert!(!fixture.is_free("a").await, "the outer call still holds its lock");
            outer.ensure_held()
        });
        in_time(body).await.unwrap();
        assert_all_released(&fixture, &["a", "b", "c"]).await;
    }

    // The loss of the joined hold cancels the inner body.
    let inner = provider.lock_all(["a", "b"]);
    let body = provider.lock("a").run(async |_| {
        let lost = inner.run(async |_| {
            assert!(provider.admin().force_release("a").await?);
            std::future::pending::<Result<(), LockError>>().await
        });
        lost.await
    });
    let lost = in_time(body).await;
    let is_lost = matches!(&lost, Err(LockError::Lost { name, .. }) if name == "a");
    assert!(is_lost, "{lost:?}");
    assert_all_released(&fixture, &["a", "b"]).await;
}
