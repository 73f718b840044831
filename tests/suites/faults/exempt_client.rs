//! A server that limits the rate of requests, and exempts an application name: `ingressRequestRateLimiterApplicationExemptions`
//! of MongoDB 8.2. Here a fail point rejects the commands of the other application name.

use std::time::Duration;

use mongodb::bson::doc;
use mongolock::LockProvider;
use mongolock_tests::{FailPoint, must, test_db, with_parameter};
use tokio::time::sleep;

use crate::callers::{LEASE, hold, lost};
use crate::{assert_free, connect, fail, warm_up};

/// B9: all commands of the application's client are rejected for twice as long as a lease lasts. The client of
/// [`LockProvider::connect`], which has an application name of its own, keeps the leases, serves calls, and releases the locks
/// of dropped guards.
#[tokio::test]
async fn an_exempt_client_of_connect_keeps_all_leases() {
    let expiry = Duration::from_secs(5);
    let db = test_db().await;
    let application = connect(db.uri(), db.name()).await;
    let exempt = LockProvider::connect(with_parameter(db.uri(), "appName=exempt"));
    let builder = exempt.await.unwrap().to_builder().database(db.name());
    let provider = builder.expiry(expiry).build().unwrap();
    warm_up(&provider).await;
    let guards = hold(&provider, 100).await;
    let limit = FailPoint::rejecting(&["update", "findAndModify", "find", "aggregate", "getMore", "ping"]);
    let point = fail(&db, limit.always()).await;
    application.run_command(doc! { "ping": 1 }).await.unwrap_err();
    assert_free(&provider, "free").await;
    sleep(expiry * 2).await;
    assert_eq!(lost(&guards), 0);
    drop(guards);
    for number in [0, 50, 99] {
        assert_free(&provider, &format!("{LEASE}{number}")).await;
    }
    must(point.clear().await);
}
