//! Replies to acquire requests that arrive late, around the release of the lock: the library's own background releases of
//! the same claim must not be taken for a loss, and must not end a minimum hold.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::Database;
use mongolock::LockProvider;
use mongolock_tests::{Fault, Proxy, Purpose, TestDb, must, test_db, with_parameter};
use tokio::time::{Instant, sleep, sleep_until};

use crate::callers::{hold_all, release_all};
use crate::{connect, warm_up};

/// The number of locks in one test; they are acquired and released at the same time.
const LOCKS: u32 = 10;

/// The minimum hold of each lock: 600 s, longer than a test lasts.
const MIN_HOLD: Duration = Duration::from_secs(600);

/// A database through a proxy with a connection for each request of the test, so that none waits for another.
async fn with_many_connections() -> (TestDb, Proxy, Database) {
    let db = test_db().await;
    let proxy = must(db.proxy().await);
    let uri = with_parameter(&proxy.uri(), "maxPoolSize=50");
    let database = connect(&uri, db.name()).await;
    (db, proxy, database)
}

fn name(number: u32) -> String {
    format!("held:{number}")
}

/// Asserts that the minimum hold keeps a rival from each of the locks.
async fn assert_minimum_holds(db: &TestDb) {
    let rival = LockProvider::new(db.database());
    for number in 0..LOCKS {
        let acquired = rival.lock(name(number)).try_acquire().await.unwrap();
        assert!(
            acquired.is_none(),
            "lock {number} is free within its minimum hold"
        );
    }
}

/// A copy of the request gets the first reply, after 2 s, and the reply to the request itself arrives 30 ms later,
/// during the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_during_the_release_ends_no_minimum_hold() {
    let (db, proxy, database) = with_many_connections().await;
    // A provider sends few copies at the same time, so each lock has a provider of its own.
    let providers: Vec<_> = (0..LOCKS).map(|_| LockProvider::new(&database)).collect();
    for provider in &providers {
        warm_up(provider).await;
    }
    let late = Fault::delay_reply(Duration::from_millis(2030)).command(Purpose::Acquire);
    let late = proxy.inject(late.times(LOCKS));
    let slow = Fault::delay_request(Duration::from_millis(200)).command(Purpose::Release);
    let slow = proxy.inject(slow.times(LOCKS));
    let rounds = providers.iter().zip(0..).map(|(provider, number)| async move {
        let lock = provider.lock(name(number)).min_hold(MIN_HOLD);
        lock.acquire().await.unwrap().release().await
    });
    for released in join_all(rounds).await {
        released.unwrap();
    }
    assert_eq!((late.hits(), slow.hits()), (LOCKS, LOCKS));
    // A background release that follows the reply would have been sent by then. No event shows that there is none.
    sleep(Duration::from_millis(500)).await;
    assert_minimum_holds(&db).await;
}

/// After a slow reply the id is released once more 10 s after the request, in case another copy takes effect. The
/// release of the hold is in progress at that time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_release_does_not_overtake_the_first_one() {
    let (db, proxy, database) = with_many_connections().await;
    // A provider sends the requests of several calls together, so each lock has a provider of its own.
    let providers: Vec<_> = (0..LOCKS).map(|_| LockProvider::new(&database)).collect();
    for provider in &providers {
        warm_up(provider).await;
    }
    let slow_reply = Fault::delay_reply(Duration::from_millis(700)).command(Purpose::Acquire);
    let slow_reply = proxy.inject(slow_reply.times(LOCKS));
    let sent = Instant::now();
    let locks = providers.iter().zip(0..);
    let guards =
        hold_all(locks.map(|(provider, number)| provider.lock(name(number)).min_hold(MIN_HOLD))).await;
    assert_eq!(slow_reply.hits(), LOCKS);
    sleep_until(sent + Duration::from_millis(9800)).await;
    let slow = Fault::delay_request(Duration::from_secs(1)).command(Purpose::Release);
    proxy.inject(slow.times(LOCKS));
    release_all(guards).await;
    assert_minimum_holds(&db).await;
}
