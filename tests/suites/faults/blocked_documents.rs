//! Free locks whose document an open foreign transaction has changed: every acquire request waits for it in the server.

use std::time::Duration;

use mongodb::ClientSession;
use mongolock::{LockError, LockProvider};
use mongolock_tests::{TestDb, test_db, transaction_on};
use tokio::time::Instant;

use crate::{assert_free, until_indexed};

/// A lock that is free, and a transaction that has changed its document.
async fn blocked(db: &TestDb, name: &str) -> (LockProvider, ClientSession) {
    let provider = LockProvider::new(db.database());
    until_indexed(&provider).await;
    assert_free(&provider, name).await;
    let foreign = db.connect_again().await.unwrap();
    let session = transaction_on(&foreign, &[name]).await;
    (provider, session)
}

/// Asserts that the error names the lock and the transaction that blocks it, and not an unreachable server.
fn names_the_blocked_document(error: &LockError, name: &str) {
    let text = error.to_string().to_lowercase();
    assert!(!text.contains("reachable"), "{text}");
    assert!(text.contains("transaction"), "{text}");
    assert!(text.contains(name), "{text}");
}

async fn waits_and_names_the_blocked_document(limit: Duration) {
    let db = test_db().await;
    let (provider, mut session) = blocked(&db, "stuck").await;
    let begun = Instant::now();
    let lock = provider.lock("stuck").acquire_timeout(limit);
    let error = lock.acquire().await.unwrap_err();
    assert!(begun.elapsed() < limit + Duration::from_secs(1));
    names_the_blocked_document(&error, "stuck");
    session.abort_transaction().await.unwrap();
    assert_free(&provider, "stuck").await;
}

/// B13: a wait that is shorter than the server's own limit for a request ends with an error that says what blocks the
/// lock. After the transaction the lock can be acquired.
#[tokio::test]
async fn a_short_wait_names_the_transaction_that_blocks_it() {
    waits_and_names_the_blocked_document(Duration::from_secs(3)).await;
}

/// B13: the same with a wait that takes several requests.
#[tokio::test]
async fn a_long_wait_names_the_transaction_that_blocks_it() {
    waits_and_names_the_blocked_document(Duration::from_secs(8)).await;
}

/// B13: a single try says the same. It is not "busy": the lock is free.
#[tokio::test]
async fn a_try_names_the_transaction_that_blocks_it() {
    let db = test_db().await;
    let (provider, mut session) = blocked(&db, "stuck").await;
    let limit = Duration::from_secs(3);
    let begun = Instant::now();
    let lock = provider.lock("stuck").acquire_timeout(limit);
    let error = lock.try_acquire().await.unwrap_err();
    assert!(begun.elapsed() < limit + Duration::from_secs(1));
    names_the_blocked_document(&error, "stuck");
    session.abort_transaction().await.unwrap();
    assert_free(&provider, "stuck").await;
}
