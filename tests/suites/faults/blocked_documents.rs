//! Free locks whose document an open foreign transaction has changed: every acquire request waits for it in the server.

use std::time::Duration;

use mongodb::ClientSession;
use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, TestDb, test_db, transaction_on};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::error_reports::{has_its_source, is_told_once};
use crate::{assert_free, foreign_transaction, until_indexed};

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
    has_its_source(error);
    is_told_once(error);
}

/// The lock is free, so that neither a wait nor a try says that it is held. After the transaction it can be acquired.
async fn names_what_blocks_it(limit: Duration, is_try: bool) {
    let db = test_db().await;
    let (provider, mut session) = blocked(&db, "stuck").await;
    let begun = Instant::now();
    let lock = provider.lock("stuck").acquire_timeout(limit);
    let outcome = if is_try {
        lock.try_acquire().await
    } else {
        lock.acquire().await.map(Some)
    };
    // The server's own limit for a request is 5 s.
    assert!(begun.elapsed() < limit + Duration::from_millis(1_500));
    names_the_blocked_document(&outcome.unwrap_err(), "stuck");
    session.abort_transaction().await.unwrap();
    assert_free(&provider, "stuck").await;
}

/// B13: a wait that is shorter than the server's own limit for a request ends with an error that says what blocks the
/// lock.
#[tokio::test]
async fn a_short_wait_names_the_transaction_that_blocks_it() {
    names_what_blocks_it(Duration::from_secs(3), false).await;
}

/// B13: the same with a wait that takes several requests.
#[tokio::test]
async fn a_long_wait_names_the_transaction_that_blocks_it() {
    names_what_blocks_it(Duration::from_secs(8), false).await;
}

/// B13: a single try gets the same error, and not "busy".
#[tokio::test]
async fn a_try_names_the_transaction_that_blocks_it() {
    names_what_blocks_it(Duration::from_secs(3), true).await;
}

/// B3: the documents of six names are blocked, so their requests are without a reply for up to 5 s. The locks of other
/// names are free, and every try acquires one of them.
#[tokio::test]
async fn blocked_documents_do_not_stop_other_names() {
    let db = test_db().await;
    let provider = LockProvider::new(db.database());
    until_indexed(&provider).await;
    let names: Vec<String> = (0..6).map(|number| format!("blocked:{number}")).collect();
    for name in &names {
        assert_free(&provider, name).await;
    }
    let mut session = foreign_transaction(&db, &names).await;
    let mut waiters = JoinSet::new();
    for name in &names {
        let lock = provider.lock(name).acquire_timeout(AMPLE);
        waiters.spawn(async move { lock.acquire().await.map(drop) });
    }
    // After 2 s a request counts as overdue, and for 2 s after a reply the server counts as working.
    sleep(Duration::from_millis(2300)).await;
    for number in 0..8 {
        let lock = provider.lock(format!("free:{number}"));
        let tried = lock.acquire_timeout(Duration::from_secs(2)).try_acquire().await;
        let guard = tried.unwrap_or_else(|error| panic!("try {number}: {error}"));
        assert!(guard.is_some(), "try {number}");
        // The waiters notice the reply within 100 ms, and may then send copies.
        sleep(Duration::from_millis(150)).await;
    }
    session.abort_transaction().await.unwrap();
    for waited in waiters.join_all().await {
        waited.unwrap();
    }
}
