//! A server that limits the rate of requests, and exempts an application name: `ingressRequestRateLimiterApplicationExemptions`
//! of MongoDB 8.2. Here a fail point rejects the commands of the other application name.

use std::time::Duration;

use mongolock::LockProvider;
use mongolock_tests::{FailPoint, must, test_db};
use tokio::time::sleep;

use crate::callers::{LEASE, hold, lost};
use crate::{assert_free, connect, fail, warm_up};

/// B9: all commands of the application's client are rejected for twice as long as a lease lasts. The client for
/// background work, which has an application name of its own, keeps the leases and releases the locks of dropped guards.
#[tokio::test]
async fn an_exempt_background_client_keeps_all_leases() {
    let expiry = Duration::from_secs(5);
    let db = test_db().await;
    let database = connect(db.uri(), db.name()).await;
    let exempt = connect(db.uri(), "exempt").await;
    let builder = LockProvider::builder(&database).background_client(exempt.client().clone());
    let provider = builder.expiry(expiry).build().unwrap();
    warm_up(&provider).await;
    let guards = hold(&provider, 100).await;
    let limit = FailPoint::rejecting(&["update", "findAndModify", "find", "aggregate", "getMore"]).always();
    let point = fail(&db, limit).await;
    let lock = provider.lock("free").acquire_timeout(Duration::from_secs(2));
    let error = lock.acquire().await.unwrap_err();
    assert!(error.to_string().starts_with("MongoDB is overloaded"), "{error}");
    sleep(expiry * 2).await;
    assert_eq!(lost(&guards), 0);
    drop(guards);
    let rival = LockProvider::new(&exempt.client().database(db.name()));
    for number in [0, 50, 99] {
        assert_free(&rival, &format!("{LEASE}{number}")).await;
    }
    must(point.clear().await);
}
