//! A server that is down, for the client of an application: no process listens at its address.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::error::ErrorKind;
use mongolock::{DistributedLock, LockError, LockProvider, distributed_lock};
use mongolock_tests::with_parameter;
use tokio::time::{Instant, sleep};

use crate::refusals::is_told_once;
use crate::{closed_address, connect};

/// The limit of a single try: 300 ms, less than the 500 ms after which a missing reply counts as no reply.
const SHORT: Duration = Duration::from_millis(300);

/// The lock of a provider at an address where nothing listens.
async fn lock_of_a_dead_server() -> (LockProvider, DistributedLock) {
    let uri = format!("mongodb://{}/?directConnection=true", closed_address());
    let provider = LockProvider::new(&connect(&uri, "app").await);
    let lock = provider.lock("down");
    (provider, lock)
}

/// Asserts that a try ends with an error of the server, and in time.
async fn try_fails(lock: &DistributedLock) {
    let begun = Instant::now();
    let answer = lock.try_acquire().await;
    assert!(
        matches!(answer, Err(LockError::Mongo(_))),
        "after {:?}: {answer:?}",
        begun.elapsed()
    );
    assert!(begun.elapsed() < SHORT + Duration::from_secs(1));
}

/// S4.5, B13: all waiters of one name get the error of the server, and none gets "busy". Nor does a try beside them.
#[tokio::test]
async fn waiters_for_a_dead_server_never_get_busy() {
    let (_provider, lock) = lock_of_a_dead_server().await;
    let begun = Instant::now();
    let waits = (0..40).map(|_| lock.clone().acquire_timeout(Duration::from_secs(3)).acquire());
    let trying = async {
        sleep(Duration::from_secs(1)).await;
        try_fails(&lock.clone().acquire_timeout(SHORT)).await;
    };
    let (outcomes, ()) = tokio::join!(join_all(waits), trying);
    for outcome in outcomes {
        assert!(matches!(outcome, Err(LockError::Mongo(_))), "{outcome:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// B13: a try with little time is an error and not "busy", the first and every later one, and several at a time.
#[tokio::test]
async fn tries_at_a_dead_server_are_errors() {
    let (_provider, lock) = lock_of_a_dead_server().await;
    let lock = lock.acquire_timeout(SHORT);
    for _ in 0..5 {
        try_fails(&lock).await;
    }
    // They delay each other, but the lock is not held.
    join_all((0..10).map(|_| try_fails(&lock))).await;
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
    let (provider, _) = lock_of_a_dead_server().await;
    // One attempt takes as long as the provider's acquire timeout at most.
    let quick = provider.to_builder().acquire_timeout(SHORT).build().unwrap();
    for _ in 0..3 {
        for outcome in [
            quick.scope(skipping()).await,
            provider.scope(patiently_skipping()).await,
        ] {
            assert!(matches!(outcome, Err(LockError::Mongo(_))), "{outcome:?}");
        }
    }
}

/// A client of the application sends its events to the application only: the driver's own error is passed on when there is one,
/// and until then the help says how to get it.
#[tokio::test]
async fn the_drivers_own_error_is_passed_on() {
    let address = closed_address();
    let error_of = async |options: &str| {
        let uri = with_parameter(&format!("mongodb://{address}/?directConnection=true"), options);
        let provider = LockProvider::new(&connect(&uri, "app").await);
        let lock = provider.lock("down").acquire_timeout(Duration::from_secs(1));
        let error = lock.acquire().await.unwrap_err();
        is_told_once(&error);
        error
    };
    let error = error_of("serverSelectionTimeoutMS=100").await;
    let text = format!("MongoDB at {address} cannot be reached: Connection refused");
    assert_eq!(error.to_string(), text);
    assert!(
        matches!(&error, LockError::Mongo(error) if matches!(&*error.kind, ErrorKind::ServerSelection { .. }))
    );
    let report = format!("{:#}", anyhow::Error::from(error.clone()));
    assert!(
        report.contains(&address.to_string()) && report.contains("refused"),
        "{report}"
    );

    let error = error_of("retryWrites=true").await;
    let text = error.to_string();
    assert!(
        text.starts_with("MongoDB did not answer the acquire request within "),
        "{text}"
    );
    assert!(error.help().contains("serverSelectionTimeoutMS"));
}
