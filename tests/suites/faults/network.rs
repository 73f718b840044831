//! Lost, late and frozen messages, on a replica set (where the driver repeats commands) and on a standalone server.

use std::time::Duration;

use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, Fault, Purpose, eventually, must, test_db, with_parameter};
use tokio::time::{Instant, timeout};

use crate::{
    DEFAULT_EXPIRY, LONG_EXPIRY, Proxied, Standalone, acquire_soon, assert_free, connect, document,
    is_released, take_over, through_proxy, with_expiry,
};

/// B2: the reply arrives after the caller's limit.
#[tokio::test]
async fn a_reply_after_the_timeout_leaves_no_claim() {
    let it = Proxied::start(DEFAULT_EXPIRY).await;
    let fault = Fault::delay_reply(Duration::from_secs(3));
    let late = it.proxy.inject(fault.command(Purpose::Acquire));
    let begun = Instant::now();
    let lock = it.provider.lock("late");
    let short = lock.acquire_timeout(Duration::from_millis(700));
    let error = short.await.unwrap_err();
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "the call does not wait for the reply"
    );
    // Without a reply the error is not "held by another".
    assert!(matches!(error, LockError::Mongo(_)), "{error}");
    must(late.happened(AMPLE).await);
    assert_free(&it.rival(), "late").await;
}

/// B2: the request of a first attempt arrives after a second attempt has acquired the lock and released it.
#[tokio::test]
async fn a_late_copy_of_a_successful_request_leaves_no_claim() {
    let (server, provider) = Standalone::with_provider(DEFAULT_EXPIRY).await;
    let late = server
        .proxy
        .inject(Fault::late_request(Duration::from_secs(2)).command(Purpose::Acquire));
    assert_free(&provider, "late").await;
    must(late.happened(AMPLE).await);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let free = async || is_released(&server.direct, "late").await.then_some(());
    must(eventually(Duration::from_secs(10), "the lock is free", free).await);
}

/// B2: the server executes renewals whose replies reach the holder too late. A shutdown releases the lease that they
/// have extended.
#[tokio::test]
async fn a_shutdown_releases_a_lease_that_a_late_renewal_extended() {
    let db = test_db().await;
    let (proxy, database) = through_proxy(&db).await;
    let provider = with_expiry(&database, Duration::from_secs(3));
    let rival = LockProvider::new(db.database());
    let guard = acquire_soon(&provider, "prolonged").await;
    let ends = async || {
        let stored = document(db.database(), "prolonged").await;
        *stored.get_datetime("expiresAt").unwrap()
    };
    let first_end = ends().await;
    for purpose in [Purpose::Renew, Purpose::Release] {
        let replies = Fault::delay_reply(Duration::from_secs(4)).command(purpose);
        proxy.inject(replies.times(u32::MAX));
    }
    let prolonged = async || (ends().await > first_end).then_some(());
    must(eventually(AMPLE, "the server has renewed the lease", prolonged).await);
    must(timeout(AMPLE, guard.lost()).await);
    let begun = Instant::now();
    provider.shutdown().await;
    assert!(
        begun.elapsed() < Duration::from_secs(12),
        "the shutdown does not wait for its own limit"
    );
    let taken = rival.lock("prolonged").try_acquire().await.unwrap();
    taken
        .expect("the extended lease is released")
        .release()
        .await
        .unwrap();
}

/// B13: a waiter behind a release that cannot reach the server gets the error of the server, and not "busy".
#[tokio::test]
async fn waiting_behind_a_stuck_release_is_an_error_of_the_server() {
    let db = test_db().await;
    let (proxy, database) = through_proxy(&db).await;
    let uri = with_parameter(&proxy.uri(), "serverSelectionTimeoutMS=500");
    drop(database);
    let provider = LockProvider::new(&connect(&uri, db.name()).await);
    let guard = acquire_soon(&provider, "stuck").await;
    let waiting = provider.lock("stuck").acquire_timeout(Duration::from_secs(8));
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    tokio::task::yield_now().await;
    drop(proxy);
    drop(guard);
    let error = waiter.await.unwrap().unwrap_err();
    assert!(matches!(error, LockError::Mongo(_)), "{error}");
}

/// B4, S1.11, S1.27: a holder that is cut off from the server loses the lock before a rival can acquire it.
#[tokio::test]
async fn a_frozen_connection_ends_the_hold_in_time() {
    let db = test_db().await;
    let (proxy, database) = through_proxy(&db).await;
    let provider = with_expiry(&database, Duration::from_secs(1));
    let guard = acquire_soon(&provider, "cut").await;
    let (inside, entered) = tokio::sync::oneshot::channel();
    let body = provider.lock("body").run(async |_| {
        inside.send(()).unwrap();
        std::future::pending::<Result<(), LockError>>().await
    });
    let taking = take_over(&LockProvider::new(db.database()), &guard);
    let freeze = async {
        entered.await.unwrap();
        proxy.freeze();
    };
    let (ran, (), ()) = timeout(AMPLE, async { tokio::join!(body, freeze, guard.lost()) })
        .await
        .expect("the body and the guard notice the loss");
    assert!(
        matches!(&ran, Err(LockError::Lost { name, .. }) if name == "body"),
        "{ran:?}"
    );
    assert!(guard.is_lost() && guard.remaining().is_zero());
    let next = taking.await.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    // The release of a lost lock does not wait for the network.
    assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
    proxy.thaw();
    next.release()
        .await
        .expect("late commands of the first holder change nothing");
}

/// B9: a renewal without a reply is repeated while the lease lasts.
#[tokio::test]
async fn renewals_go_on_after_failures() {
    let it = Proxied::start(Duration::from_secs(3)).await;
    let (proxy, guard) = (&it.proxy, it.provider.lock("kept").await.unwrap());
    for _ in 0..3 {
        let failed = proxy.inject(Fault::drop_request().command(Purpose::Renew));
        must(failed.happened(AMPLE).await);
        let before = proxy.seen(Purpose::Renew);
        let again = async || (proxy.seen(Purpose::Renew) > before).then_some(());
        must(eventually(AMPLE, "the renewal is repeated", again).await);
    }
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
}

/// One connection is silent, as after a router has dropped its state, and all others work. The lease is longer than the
/// test, so only a release that arrives can free the lock.
#[tokio::test]
async fn a_release_without_a_reply_blocks_no_waiter() {
    for waits_for_it in [true, false] {
        let it = Proxied::start(LONG_EXPIRY * 4).await;
        let guard = acquire_soon(&it.provider, "silent").await;
        let fault = Fault::delay_request(AMPLE * 2).command(Purpose::Release);
        let silent = it.proxy.inject(fault);
        if waits_for_it {
            let released = guard.release().await;
            released.expect("it is repeated while its caller waits");
        } else {
            drop(guard);
        }
        must(silent.happened(AMPLE).await);
        assert_free(&it.provider, "silent").await;
    }
}
