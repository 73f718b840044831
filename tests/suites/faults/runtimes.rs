//! Guards and clients whose runtime ends.

use std::time::Duration;

use mongolock::LockProvider;
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, test_db};
use tokio::runtime::{Builder, Runtime};

use crate::{assert_free, connect, patient, with_expiry};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The leases of a runtime that ends expire, and nothing panics.
#[test]
fn the_leases_of_a_runtime_that_has_ended_expire() {
    let main = runtime();
    let db = main.block_on(test_db());
    for multi_thread in [false, true] {
        let short = if multi_thread {
            Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap()
        } else {
            runtime()
        };
        let (provider, kept) = short.block_on(async {
            let database = connect(db.uri(), db.name()).await;
            let provider = with_expiry(&database, Duration::from_secs(2));
            let owned = provider.lock("owned by a task").acquire().await.unwrap();
            tokio::spawn(async move {
                let _owned = owned;
                std::future::pending::<()>().await;
            });
            let kept = provider.lock("kept outside").acquire().await.unwrap();
            (provider, kept)
        });
        short.shutdown_timeout(Duration::from_secs(5));
        drop(kept);
        drop(provider);
        main.block_on(async {
            let rival = patient(db.database());
            for name in ["owned by a task", "kept outside"] {
                rival.lock(name).acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
}

/// An in-memory provider can be used on one runtime after another: its background task is started again.
#[test]
fn the_background_task_starts_again_on_the_next_runtime() {
    let provider = LockProvider::in_memory();
    for round in 0..2 {
        runtime().block_on(async {
            let lock = provider.lock("again").expiry(Duration::from_secs(1));
            let guard = lock.acquire().await.unwrap();
            tokio::time::sleep(Duration::from_millis(1500)).await;
            assert!(!guard.is_lost(), "the lease is renewed in round {round}");
            guard.release().await.unwrap();
        });
    }
}

/// B14: `max_hold` ends the hold of a leaked guard.
#[tokio::test]
async fn a_leaked_guard_ends_at_max_hold() {
    let db = test_db().await;
    let provider = patient(db.database());
    let lock = provider.lock("leaked").expiry(Duration::from_secs(2));
    let lock = lock.max_hold(Duration::from_secs(3));
    let guard = lock.acquire().await.unwrap();
    let context = guard.context();
    std::mem::forget(guard);
    let begun = tokio::time::Instant::now();
    let here = provider.lock("leaked").acquire().await.unwrap();
    let lasted = begun.elapsed() >= Duration::from_millis(2900);
    assert!(lasted, "the lease is renewed until `max_hold`");
    assert!(context.is_lost());
    here.release().await.unwrap();
}

/// Each `#[tokio::test]` has a runtime of its own, so a provider that they share outlives the runtime of its client.
#[test]
fn a_client_whose_runtime_has_ended_is_named_as_the_cause() {
    let main = runtime();
    let db = main.block_on(test_db());
    let uri = db.uri();
    for is_connected in [true, false] {
        let first = runtime();
        let provider = first.block_on(async {
            let provider = if is_connected {
                let connected = LockProvider::connect(&uri).await.unwrap();
                connected.to_builder().database(db.name()).build().unwrap()
            } else {
                LockProvider::new(&connect(uri, db.name()).await)
            };
            assert_free(&provider, "first").await;
            provider
        });
        // A runtime that lives can use the provider of another one that does.
        std::thread::scope(|scope| {
            let (end, ended) = tokio::sync::oneshot::channel::<()>();
            let driven = scope.spawn(|| first.block_on(ended));
            main.block_on(async { assert_free(&provider, "second").await });
            end.send(()).unwrap();
            driven.join().unwrap().unwrap();
        });
        drop(first);
        if is_connected {
            // It works on a thread of its own.
            main.block_on(async { assert_free(&provider, "third").await });
            continue;
        }
        main.block_on(async {
            let begun = tokio::time::Instant::now();
            let lock = provider.lock("third").acquire_timeout(AMPLE);
            for error in [
                lock.acquire().await.unwrap_err(),
                lock.try_acquire().await.unwrap_err(),
                provider.health().await.error.expect("no server replies"),
                provider.admin().get("third").await.unwrap_err(),
            ] {
                let text = "the MongoDB client belongs to a tokio runtime that has ended";
                assert_eq!(error.to_string(), text);
                assert!(error.help().contains("#[tokio::test]"), "{}", error.help());
            }
            assert!(begun.elapsed() < BEFORE_EXPIRY, "{:?}", begun.elapsed());
        });
    }
}
