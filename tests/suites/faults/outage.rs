//! A server that is down: no process listens at its address.

use std::time::Duration;

use mongodb::Client;
use mongolock::{DistributedLock, LockError, LockGuard, LockProvider, distributed_lock};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::closed_address;

/// The limit of a single try: 300 ms, less than the 500 ms after which a missing reply counts as no reply.
const SHORT: Duration = Duration::from_millis(300);

/// A provider with default options, at an address where nothing listens.
async fn unreachable_provider() -> LockProvider {
    let uri = format!("mongodb://{}/?directConnection=true", closed_address());
    let client = Client::with_uri_str(uri).await.unwrap();
    LockProvider::new(&client.database("app"))
}

/// Asserts that a try ends with an error of the server, and in time.
async fn try_fails(lock: &DistributedLock, what: &str) {
    let begun = Instant::now();
    let answer = lock.try_acquire().await;
    assert!(
        matches!(answer, Err(LockError::Mongo(_))),
        "{what} after {:?}: {answer:?}",
        begun.elapsed()
    );
    assert!(begun.elapsed() < SHORT + Duration::from_secs(1), "{what}");
}

/// S4.5, B13: all waiters of one name get the error of the server, and none gets "busy".
#[tokio::test]
async fn waiters_for_a_dead_server_never_get_busy() {
    let provider = unreachable_provider().await;
    let lock = provider.lock("down").acquire_timeout(Duration::from_secs(2));
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..40 {
        let lock = lock.clone();
        callers.spawn(async move { lock.acquire().await });
    }
    let outcomes = callers.join_all().await;
    let errors = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    let wrong: Vec<_> = errors
        .filter(|error| !matches!(error, LockError::Mongo(_)))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {}: {}",
        wrong.len(),
        outcomes.len(),
        wrong[0]
    );
    assert!(outcomes.iter().all(Result::is_err));
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// B13: a try with little time is an error and not "busy", the first and every later one.
#[tokio::test]
async fn a_short_try_at_a_dead_server_is_an_error() {
    let provider = unreachable_provider().await;
    let lock = provider.lock("down").acquire_timeout(SHORT);
    for number in 0..5 {
        try_fails(&lock, &format!("try {number}")).await;
    }
}

/// B13: the same for several tries at the same time. They delay each other, but the lock is not held.
#[tokio::test]
async fn concurrent_tries_at_a_dead_server_are_errors() {
    let provider = unreachable_provider().await;
    let lock = provider.lock("down").acquire_timeout(SHORT);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        // The test above checks these results. These tries only make the outage last a second.
        let _ = lock.try_acquire().await;
    }
    let mut tries = JoinSet::new();
    for number in 0..10 {
        let lock = lock.clone();
        tries.spawn(async move { try_fails(&lock, &format!("try {number} of ten")).await });
    }
    tries.join_all().await;
}

/// B13: a try at the same time as a waiter without a reply is an error as well.
#[tokio::test]
async fn a_try_beside_a_waiter_without_a_reply_is_an_error() {
    let provider = unreachable_provider().await;
    let lock = provider.lock("down");
    let waiter = tokio::spawn(acquire(lock.clone().acquire_timeout(Duration::from_secs(4))));
    sleep(Duration::from_secs(1)).await;
    try_fails(&lock.acquire_timeout(SHORT), "beside a waiter").await;
    assert!(matches!(waiter.await.unwrap(), Err(LockError::Mongo(_))));
}

async fn acquire(lock: DistributedLock) -> Result<LockGuard, LockError> {
    lock.acquire().await
}

#[distributed_lock(name = "job", on_busy = "skip")]
async fn skipping() -> Result<Option<()>, LockError> {
    unreachable!("the server is down")
}

#[distributed_lock(name = "job", on_busy = "skip", acquire_timeout = "300ms")]
async fn patiently_skipping() -> Result<Option<()>, LockError> {
    unreachable!("the server is down")
}

/// B13, B16: a job is skipped only if another process holds its lock, and never because the server is down.
#[tokio::test]
async fn an_outage_skips_no_job() {
    let provider = unreachable_provider().await;
    // One attempt takes as long as the provider's acquire timeout at most.
    let quick = provider.to_builder().acquire_timeout(SHORT).build().unwrap();
    for number in 0..3 {
        for outcome in [
            quick.scope(skipping()).await,
            provider.scope(patiently_skipping()).await,
        ] {
            assert!(
                matches!(outcome, Err(LockError::Mongo(_))),
                "call {number}: {outcome:?}"
            );
        }
    }
}
