//! Replies that carry a `writeConcernError`: the command was executed, but no majority has confirmed it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongodb::bson::Document;
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::{Client, Database};
use mongolock::{LockError, LockProvider};
use mongolock_tests::{
    AMPLE, FailPoint, FailPointGuard, LentServer, Server, eventually, must, stable_options, with_parameter,
};
use tokio::time::{Instant, timeout};

use crate::callers::release_all;
use crate::{LONG_EXPIRY, acquire_soon, assert_free, connect, with_expiry};

/// The error codes of failed waits for replication: timeout, shutdown, interruption by a step-down, primary stepped
/// down.
const CODES: [i32; 4] = [64, 91, 11602, 189];

/// The error code of a command that was executed, and whose limit has passed while it waited for a majority.
const MAX_TIME_EXPIRED: i32 = 50;

/// The time within which a lock must be free after the fail point is cleared: far less than the lease.
const FREED: Duration = Duration::from_secs(10);

/// Makes the server execute the commands of the application `app` and reply with this write concern error.
async fn unconfirmed(server: &Server, point: FailPoint, code: i32) -> FailPointGuard {
    let point = point.write_concern_error(code, "injected").app_name("app");
    point.enable(&server.uri()).await.unwrap()
}

/// A connection string for the application. After a false "not primary" the driver waits for the next heartbeat, by
/// default for up to 10 s.
fn uri(server: &Server) -> String {
    with_parameter(&server.uri(), "heartbeatFrequencyMS=500")
}

/// A provider on the database of the application `app`, as another process would have it.
async fn rival(server: &Server) -> LockProvider {
    let database = connect(&server.uri(), "rival").await;
    LockProvider::new(&database.client().database("app"))
}

/// Asserts that a lock is free long before its lease would end.
async fn assert_freed(rival: &LockProvider, name: &str, code: i32) {
    let lock = rival.lock(name).acquire_timeout(FREED);
    let next = lock.await.unwrap_or_else(|error| panic!("{code}: {error}"));
    next.release().await.unwrap();
}

/// B12: an acquire request that no majority has confirmed acquires nothing, and its claim is released.
#[tokio::test]
async fn an_unconfirmed_acquire_does_not_count() {
    let server = must(LentServer::single().await);
    let rival = rival(&server).await;
    let database = connect(&uri(&server), "app").await;
    let provider = with_expiry(&database, LONG_EXPIRY);
    for code in CODES {
        let point = unconfirmed(&server, FailPoint::on(&["findAndModify"]).always(), code).await;
        let name = format!("unsafe:{code}");
        let lock = provider.lock(&name).acquire_timeout(Duration::from_millis(700));
        let waited = lock.acquire().await;
        assert!(matches!(waited, Err(LockError::Mongo(_))), "{code}: {waited:?}");
        let tried = lock.try_acquire().await;
        assert!(matches!(tried, Err(LockError::Mongo(_))), "{code}: {tried:?}");
        must(point.clear().await);
        assert_freed(&rival, &name, code).await;
    }
}

/// B12: an unconfirmed acquire request is repeated with the same id, and confirmed in the end.
#[tokio::test]
async fn an_unconfirmed_acquire_is_repeated() {
    let server = must(LentServer::single().await);
    let provider = LockProvider::new(&connect(&uri(&server), "app").await);
    for code in CODES {
        let point = FailPoint::on(&["findAndModify"]).times(3);
        let _point = unconfirmed(&server, point, code).await;
        assert_free(&provider, "unsafe").await;
    }
}

/// A commit that is slower than the rest of a wait says nothing of the lock: the error names the holder. The second request
/// of the wait has less than half a second at the server.
#[tokio::test]
async fn a_last_request_that_is_not_confirmed_in_its_time_hides_no_holder() {
    let server = must(LentServer::single().await);
    let rival = rival(&server).await;
    let database = connect(&uri(&server), "app").await;
    let interval = Duration::from_millis(1600);
    let provider = LockProvider::builder(&database).retry_interval(interval..=interval);
    let provider = must(provider.build());
    let holder = must(rival.lock("held").acquire().await);
    let lock = provider.lock("held").acquire_timeout(Duration::from_secs(2));
    let point = FailPoint::on(&["findAndModify"]).after(1);
    let point = unconfirmed(&server, point, MAX_TIME_EXPIRED).await;
    let waited = lock.acquire().await;
    assert!(matches!(waited, Err(LockError::Timeout { .. })), "{waited:?}");
    must(point.clear().await);
    must(holder.release().await);
}

/// B4, B12: a renewal that no majority has confirmed does not count. If none is confirmed, the lock is lost in time.
#[tokio::test]
async fn an_unconfirmed_renewal_does_not_count() {
    let server = must(LentServer::single().await);
    let rival = rival(&server).await;
    let provider = LockProvider::new(&connect(&uri(&server), "app").await);
    let expiry = Duration::from_secs(1);
    for code in CODES {
        let guard = provider.lock("kept").expiry(expiry).acquire().await.unwrap();
        let begun = Instant::now();
        let point = unconfirmed(&server, FailPoint::on(&["findAndModify"]).always(), code).await;
        must(timeout(AMPLE, guard.lost()).await);
        assert!(begun.elapsed() < expiry * 4, "{code}: {:?}", begun.elapsed());
        assert!(guard.remaining().is_zero());
        must(point.clear().await);
        assert_freed(&rival, "kept", code).await;
    }
}

/// B9: the lock is kept if a later renewal is confirmed.
#[tokio::test]
async fn an_unconfirmed_renewal_is_repeated() {
    let server = must(LentServer::single().await);
    let provider = LockProvider::new(&connect(&uri(&server), "app").await);
    let mut guards = Vec::new();
    for code in CODES {
        let lock = provider
            .lock(format!("kept:{code}"))
            .expiry(Duration::from_secs(3));
        let guard = lock.acquire().await.unwrap();
        // The locks of the rounds before have renewals as well, alone or together with this one.
        let point = FailPoint::on(&["update", "findAndModify"]).times(2);
        let _point = unconfirmed(&server, point, code).await;
        tokio::time::sleep(Duration::from_millis(3300)).await;
        assert!(!guard.is_lost(), "{code}");
        guards.push(guard);
    }
    release_all(guards).await;
}

/// A client that counts the confirmed releases: successful writes whose reply has no write concern error.
async fn counting(uri: &str) -> (Database, Arc<AtomicUsize>) {
    let confirmed = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&confirmed);
    let mut options = must(stable_options(uri).await);
    options.app_name = Some("app".to_owned());
    options.command_event_handler = Some(EventHandler::callback(move |event| {
        if let CommandEvent::Succeeded(reply) = event
            && ["update", "findAndModify"].contains(&&*reply.command_name)
            && is_confirmed(&reply.reply)
        {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    }));
    let database = Client::with_options(options).unwrap().database("app");
    (database, confirmed)
}

fn is_confirmed(reply: &Document) -> bool {
    !reply.contains_key("writeConcernError")
}

/// B12: a release that no majority has confirmed is not complete, because a failover could restore the claim. It is
/// repeated until it is confirmed, whether its caller waits for it or not.
#[tokio::test]
async fn an_unconfirmed_release_is_repeated_until_it_is_confirmed() {
    let server = must(LentServer::single().await);
    let rival = rival(&server).await;
    let (database, confirmed) = counting(&uri(&server)).await;
    let provider = with_expiry(&database, LONG_EXPIRY);
    for code in CODES {
        for is_awaited in [true, false] {
            let guard = acquire_soon(&provider, "released").await;
            // The fail point hits more often than the driver and the library repeat a release at once.
            let point = FailPoint::on(&["findAndModify"]).times(4);
            let point = unconfirmed(&server, point, code).await;
            confirmed.store(0, Ordering::SeqCst);
            if is_awaited {
                // The result of the call does not matter here.
                let _ = guard.release().await;
            } else {
                drop(guard);
            }
            let released = async || (confirmed.load(Ordering::SeqCst) > 0).then_some(());
            must(eventually(FREED, "a confirmed release", released).await);
            must(point.clear().await);
            assert_freed(&rival, "released", code).await;
        }
    }
}
