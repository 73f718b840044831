//! A server whose disk is full: it refuses writes with the error 14031, until there is room again.

use std::time::Duration;

use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, FailPoint, test_db};
use tokio::time::{Instant, sleep};

use crate::{LONG_EXPIRY, assert_free, connect, fail, warm_up, with_expiry};

/// The code of the error (`OutOfDiskSpace`).
const OUT_OF_DISK_SPACE: i32 = 14031;

fn full() -> FailPoint {
    FailPoint::on(&["update", "findAndModify"])
        .always()
        .error_code(OUT_OF_DISK_SPACE)
}

/// Renewals are repeated until there is room, as long as the lease lasts. A call that waits goes on, and one that gives up
/// says what is wrong.
#[tokio::test]
async fn a_full_disk_delays_renewals_and_acquires_and_is_named() {
    let db = test_db().await;
    let database = connect(db.uri(), db.name()).await;
    let expiry = Duration::from_secs(9);
    let provider = with_expiry(&database, expiry);
    warm_up(&provider).await;
    let guard = provider.lock("kept").await.unwrap();
    // The first renewal is due before the point is cleared.
    let point = fail(&db, full()).await;
    let lock = provider.lock("free").acquire_timeout(AMPLE);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let begun = Instant::now();
    let lock = provider.lock("other").acquire_timeout(Duration::from_secs(1));
    let error = lock.acquire().await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_secs(1), "it is not repeated");
    assert_eq!(
        error.to_string(),
        "MongoDB refused an operation (error 14031, OutOfDiskSpace)"
    );
    assert!(error.help().contains("disk"), "{}", error.help());
    assert!(matches!(error, LockError::Mongo(_)));
    sleep(Duration::from_secs(4)).await;
    assert!(!waiting.is_finished());
    point.clear().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    sleep(expiry).await;
    guard.release().await.unwrap();
}

/// A release is repeated as well: for its caller for some seconds, and then in the background, long before the lease of 60 s
/// ends.
#[tokio::test]
async fn a_full_disk_ends_no_release() {
    let db = test_db().await;
    let database = connect(db.uri(), db.name()).await;
    let provider = with_expiry(&database, LONG_EXPIRY);
    warm_up(&provider).await;
    let guard = provider.lock("short").await.unwrap();
    let point = fail(&db, full()).await;
    let released = tokio::spawn(guard.release());
    sleep(Duration::from_secs(2)).await;
    assert!(!released.is_finished());
    point.clear().await.unwrap();
    released.await.unwrap().unwrap();

    let guard = provider.lock("long").await.unwrap();
    let point = fail(&db, full()).await;
    let error = guard.release().await.unwrap_err();
    assert!(error.to_string().contains("OutOfDiskSpace"), "{error}");
    point.clear().await.unwrap();
    assert_free(&LockProvider::new(db.database()), "long").await;
}
