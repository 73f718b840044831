//! A server that limits the rate of requests, and exempts an application name: `ingressRequestRateLimiterApplicationExemptions`
//! of MongoDB 8.2. Here a fail point rejects the commands of the other application name.

use std::time::Duration;

use mongolock::LockProvider;
use mongolock_tests::{FailPoint, must, test_db};
use tokio::time::sleep;

use crate::{acquire_soon, assert_free, connect, fail, warm_up};

/// B9: all commands of the application's client are rejected for three times as long as a lease lasts. The client for
/// background work, which has an application name of its own, keeps the leases and releases the locks of dropped guards.
#[tokio::test]
async fn an_exempt_background_client_keeps_all_leases() {
    let expiry = Duration::from_secs(3);
    let db = test_db().await;
    let database = connect(db.uri(), db.name()).await;
    let exempt = connect(db.uri(), "exempt").await;
    let builder = LockProvider::builder(&database).background_client(exempt.client().clone());
    let provider = builder.expiry(expiry).build().unwrap();
    warm_up(&provider).await;
    let mut guards = Vec::new();
    for number in 0..100 {
        guards.push(acquire_soon(&provider, &format!("lease:{number}")).await);
    }
    let labels = ["SystemOverloadedError", "RetryableError", "NoWritesPerformed"];
    let limit = FailPoint::on(&["update", "findAndModify", "find", "aggregate", "getMore"]).always();
    let point = fail(&db, limit.error_code(462).error_labels(&labels)).await;
    let lock = provider.lock("free").acquire_timeout(Duration::from_secs(2));
    let error = lock.acquire().await.unwrap_err();
    assert!(error.to_string().starts_with("MongoDB is overloaded"), "{error}");
    sleep(expiry * 3).await;
    let lost = guards.iter().filter(|guard| guard.is_lost()).count();
    assert_eq!(lost, 0);
    drop(guards);
    for number in [0, 50, 99] {
        assert_free(
            &LockProvider::new(&exempt.client().database(db.name())),
            &format!("lease:{number}"),
        )
        .await;
    }
    must(point.clear().await);
}
