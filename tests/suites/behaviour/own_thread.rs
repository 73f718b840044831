//! A provider of `connect` works on a thread of its own: nothing in the program's runtimes stops its renewals.

mod subscribers;

use std::thread;
use std::time::{Duration, Instant};

use mongolock::{LockGuard, LockProvider};
use mongolock_tests::{AMPLE, TestDb, must, test_db, with_parameter};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

const EXPIRY: Duration = Duration::from_secs(2);

/// A lease without renewals would be over for long.
const LONG: Duration = Duration::from_secs(5);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn connect(uri: &str, name: &str) -> LockProvider {
    let provider = LockProvider::connect(uri).await.unwrap();
    provider.to_builder().database(name).build().unwrap()
}

async fn hold(provider: &LockProvider) -> LockGuard {
    provider.lock("held").expiry(EXPIRY).acquire().await.unwrap()
}

/// Asserts that the hold has lasted, and that the server says so as well.
async fn has_lasted(guard: LockGuard) {
    guard.ensure_held().unwrap();
    guard.release().await.unwrap();
}

/// A database that has nothing to do with the runtime of the test.
fn database() -> TestDb {
    runtime().block_on(test_db())
}

/// A thread that is blocked, and the end of the runtime that has connected, lose no lease. The guard outlives both, and its
/// drop releases the lock without a runtime.
#[test]
fn a_blocked_thread_and_the_end_of_a_runtime_lose_no_lease() {
    let db = database();
    let first = runtime();
    let (provider, guard) = first.block_on(async {
        let provider = connect(db.uri(), db.name()).await;
        let guard = hold(&provider).await;
        thread::sleep(LONG);
        guard.ensure_held().unwrap();
        (provider, guard)
    });
    drop(first);
    thread::sleep(LONG);
    let again = runtime().block_on(async {
        has_lasted(guard).await;
        timeout(AMPLE, hold(&provider)).await.unwrap()
    });
    drop((provider, again));
    runtime().block_on(async {
        let other = connect(db.uri(), db.name()).await;
        let next = timeout(EXPIRY * 5, other.lock("held").acquire()).await;
        must(next).unwrap().release().await.unwrap();
    });
}

/// A paused clock jumps to the next timer as soon as nothing else is to be done.
#[test]
fn a_paused_clock_ends_no_lease_and_no_call() {
    let db = database();
    let mut builder = Builder::new_current_thread();
    let paused = builder.enable_all().start_paused(true).build();
    paused.unwrap().block_on(async {
        let provider = connect(db.uri(), db.name()).await;
        let guard = hold(&provider).await;
        let rival = connect(db.uri(), db.name()).await;
        let waiting = tokio::spawn(async move {
            let lock = rival.lock("held").acquire_timeout(AMPLE);
            lock.acquire().await
        });
        sleep(Duration::from_secs(3600)).await;
        assert!(!waiting.is_finished(), "a minute has not passed");
        has_lasted(guard).await;
        let held = waiting.await.unwrap().unwrap();
        held.release().await.unwrap();
        let (guard, begun) = (hold(&provider).await, Instant::now());
        provider.shutdown_after(EXPIRY).await;
        let took = begun.elapsed();
        assert!(guard.is_lost() && took >= EXPIRY, "{took:?}");
    });
}

/// Renewals, claims and the change stream of many holds with one connection: there is no stream then.
#[test]
fn one_connection_loses_no_lease() {
    let db = database();
    runtime().block_on(async {
        let uri = with_parameter(db.uri(), "maxPoolSize=1");
        let (one, other) = (connect(&uri, db.name()).await, connect(&uri, db.name()).await);
        let mut guards = Vec::new();
        for number in 0..20 {
            let lock = one.lock(format!("lock:{number}")).expiry(EXPIRY);
            guards.push(lock.acquire().await.unwrap());
        }
        let waiting = tokio::spawn(async move {
            let lock = other.lock("lock:0").acquire_timeout(AMPLE);
            lock.acquire().await
        });
        sleep(LONG).await;
        for guard in guards {
            has_lasted(guard).await;
        }
        waiting.await.unwrap().unwrap().release().await.unwrap();
    });
}
