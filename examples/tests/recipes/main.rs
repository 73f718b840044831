//! Resources other than MongoDB that check tokens (S1.20): the recipes of the guide, with real holders.

mod file_store;
mod http_service;
mod sql_table;

use std::time::Duration;

use mongolock::{FencingToken, LockProvider};
use mongolock_tests::test_db;

/// The tokens of a holder whose lease has expired, and of the holder after it.
async fn stale_and_next() -> (FencingToken, FencingToken) {
    let db = test_db().await;
    let lock = LockProvider::new(db.database()).lock("resource");
    let short = lock.clone().expiry(Duration::from_millis(100));
    let stale = short.max_hold(Duration::ZERO).acquire().await.unwrap();
    let next = lock.acquire().await.unwrap();
    assert!(stale.is_lost());
    let tokens = (stale.fencing_token(), next.fencing_token());
    next.release().await.unwrap();
    tokens
}
