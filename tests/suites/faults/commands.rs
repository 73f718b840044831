//! Commands that the server fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;
use mongolock::{IndexState, LockError, LockProvider, distributed_lock};
use mongolock_tests::{FailPoint, Server, ServerOptions, TestDb, eventually, must, shared, test_db};
use tokio::time::{Instant, timeout};

use crate::{AMPLE, acquire_soon, connect, document, transaction_on, warm_up, with_parameter};

fn provider(db: &TestDb) -> LockProvider {
    LockProvider::builder(db.database())
        .acquire_timeout(AMPLE)
        .build()
        .unwrap()
}

async fn fail(db: &TestDb, point: FailPoint) -> mongolock_tests::FailPointGuard {
    point
        .app_name(db.name())
        .enable(shared().await.unwrap().uri())
        .await
        .unwrap()
}

/// B5, S4.4: errors that pass are repeated within the deadline.
#[tokio::test]
async fn passing_errors_are_repeated() {
    let db = test_db().await;
    // After a "not primary" that is not true the driver waits for the next heartbeat.
    let uri = with_parameter(db.uri(), "heartbeatFrequencyMS=500");
    let provider = LockProvider::new(&connect(&uri, db.name()).await);
    warm_up(&provider).await;
    for code in [91, 112, 189, 10107, 11602] {
        // Three times: the driver itself repeats a command once.
        let _point = fail(&db, FailPoint::on(&["findAndModify"]).times(3).error_code(code)).await;
        let guard = acquire_soon(&provider, "passing").await;
        guard
            .release()
            .await
            .unwrap_or_else(|error| panic!("{code}: {error}"));
    }
    let _point = fail(&db, FailPoint::on(&["findAndModify"]).times(3).close_connection()).await;
    acquire_soon(&provider, "passing").await.release().await.unwrap();
}

/// S4.5, B13: errors that stay reach the caller at once.
#[tokio::test]
async fn lasting_errors_are_reported_at_once() {
    let db = test_db().await;
    let provider = provider(&db);
    for code in [13, 2, 9, 40324] {
        let _point = fail(&db, FailPoint::on(&["findAndModify"]).always().error_code(code)).await;
        let begun = Instant::now();
        let error = provider.lock("lasting").acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Mongo(_)), "{error}");
        assert!(begun.elapsed() < AMPLE / 4, "{code}");
    }
    acquire_soon(&provider, "lasting").await.release().await.unwrap();
}

/// At the deadline the last error is what the caller gets.
#[tokio::test]
async fn an_error_that_stays_until_the_deadline_is_reported() {
    let db = test_db().await;
    let provider = provider(&db);
    let _point = fail(&db, FailPoint::on(&["findAndModify"]).always().error_code(189)).await;
    let lock = provider.lock("down").acquire_timeout(Duration::from_millis(300));
    match lock.acquire().await {
        Err(LockError::Mongo(error)) => assert!(error.to_string().contains("189"), "{error}"),
        other => panic!("{other:?}"),
    }
}

/// A write that is not yet safe is not a lock, and is cleaned up.
#[tokio::test]
async fn a_write_concern_error_is_not_a_win() {
    let db = test_db().await;
    let provider = provider(&db);
    let point = fail(
        &db,
        FailPoint::on(&["findAndModify"])
            .always()
            .write_concern_error(64, "as asked"),
    )
    .await;
    let lock = provider
        .lock("unsafe")
        .acquire_timeout(Duration::from_millis(300));
    assert!(matches!(lock.acquire().await, Err(LockError::Mongo(_))));
    must(point.clear().await);
    acquire_soon(&LockProvider::new(db.database()), "unsafe")
        .await
        .release()
        .await
        .unwrap();
}

/// Wrong credentials are said at once, and a user without rights on the collection hears of that.
#[tokio::test]
async fn access_control_errors_are_plain() {
    let server = Server::start(ServerOptions::single().auth()).await.unwrap();
    let admin = server.client().await.unwrap();
    let create = doc! {
        "createUser": "reader", "pwd": "reader", "roles": [{ "role": "read", "db": "app" }],
    };
    admin.database("app").run_command(create).await.unwrap();
    let right = server.uri();
    let wrong = right.replace("root:secret@", "root:wrong@");
    let reader = right
        .replace("root:secret@", "reader:reader@")
        .replace("authSource=admin", "authSource=app");
    assert!(wrong != right && reader != right);
    for uri in [wrong, reader] {
        let provider = LockProvider::new(&connect(&uri, "app").await);
        let begun = Instant::now();
        let error = provider
            .lock("closed")
            .acquire_timeout(AMPLE)
            .acquire()
            .await
            .unwrap_err();
        assert!(matches!(error, LockError::Mongo(_)), "{error}");
        assert!(begun.elapsed() < AMPLE / 4);
    }
    let writer = LockProvider::new(&connect(&right, "app").await);
    acquire_soon(&writer, "open").await.release().await.unwrap();
}

/// A release that fails once arrives all the same; B10: the body's own error is what the caller gets.
#[tokio::test]
async fn a_release_that_fails_is_repeated_and_hides_nothing() {
    #[derive(Debug, thiserror::Error)]
    enum AppError {
        #[error("the body failed")]
        Body,
        #[error(transparent)]
        Lock(#[from] LockError),
    }

    #[distributed_lock(name = "failing")]
    async fn failing() -> Result<(), AppError> {
        Err(AppError::Body)
    }

    #[distributed_lock(name = "failing")]
    async fn working() -> Result<u32, AppError> {
        Ok(7)
    }

    let db = test_db().await;
    let provider = provider(&db);
    let point = fail(&db, FailPoint::on(&["update"]).always().error_code(189)).await;
    assert!(matches!(provider.scope(failing()).await, Err(AppError::Body)));
    must(point.clear().await);
    acquire_soon(&LockProvider::new(db.database()), "failing")
        .await
        .release()
        .await
        .unwrap();

    let point = fail(&db, FailPoint::on(&["update"]).always().error_code(189)).await;
    assert_eq!(
        provider.scope(working()).await.unwrap(),
        7,
        "the work was done under the lock"
    );
    must(point.clear().await);
    acquire_soon(&LockProvider::new(db.database()), "failing")
        .await
        .release()
        .await
        .unwrap();
}

/// B4, S1.11: every renewal fails; the holder hears of it no later than another can take the lock.
#[tokio::test]
async fn a_lock_that_cannot_be_renewed_is_lost_in_time() {
    let db = test_db().await;
    let provider = provider(&db);
    let lock = provider.lock("unrenewable").expiry(Duration::from_secs(1));
    let guard = lock.acquire().await.unwrap();
    let point = fail(&db, FailPoint::on(&["update"]).always().error_code(189)).await;
    let rival = LockProvider::builder(&db.connect_again().await.unwrap())
        .acquire_timeout(AMPLE)
        .build()
        .unwrap();
    let context = guard.context();
    let taking = tokio::spawn(async move {
        let next = rival.lock("unrenewable").acquire().await.unwrap();
        assert!(
            context.is_lost(),
            "the holder knows it no later than the next one has it"
        );
        next.fencing_token()
    });
    guard.lost().await;
    assert!(taking.await.unwrap() > guard.fencing_token());
    must(point.clear().await);
}

/// S1.11, B8: somebody removed the claim; the holder hears of it with the next renewal and extends nothing.
#[tokio::test]
async fn a_removed_claim_is_noticed() {
    let db = test_db().await;
    let provider = provider(&db);
    let lock = provider
        .lock("removed")
        .expiry(Duration::from_secs(20))
        .renew_interval(Duration::from_millis(200));
    let guard = lock.acquire().await.unwrap();
    let bystander = provider
        .lock("bystander")
        .renew_interval(Duration::from_millis(200))
        .acquire()
        .await
        .unwrap();
    let locks = db.database().collection::<Document>("distributed_locks");
    let theirs = doc! { "$set": { "lockId": "rival#1" } };
    locks.update_one(doc! { "_id": "removed" }, theirs).await.unwrap();
    let before = document(db.database(), "removed").await;
    must(
        eventually(AMPLE, "the loss is noticed", async || {
            guard.is_lost().then_some(())
        })
        .await,
    );
    assert_eq!(document(db.database(), "removed").await, before);
    assert!(!bystander.is_lost(), "one lost lock is no other's loss");
    bystander.release().await.unwrap();
}

/// B14: nothing is renewed after a release or a drop.
#[tokio::test]
async fn renewal_ends_with_the_hold() {
    let db = test_db().await;
    let provider = provider(&db);
    let lock = provider.lock("ended").renew_interval(Duration::from_millis(100));
    lock.acquire().await.unwrap().release().await.unwrap();
    drop(lock.acquire().await.unwrap());
    must(
        eventually(AMPLE, "the dropped guard is released", async || {
            (document(db.database(), "ended").await.get_str("lockId") == Ok("")).then_some(())
        })
        .await,
    );
    let point = FailPoint::on(&["update"])
        .always()
        .error_code(189)
        .app_name(db.name());
    let before = document(db.database(), "ended").await;
    let point = point.enable(shared().await.unwrap().uri()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    must(point.clear().await);
    assert_eq!(document(db.database(), "ended").await, before);
}

/// A foreign transaction has changed one lock's document: the bulk renewal waits at it, and no other lock is lost.
#[tokio::test]
async fn a_blocked_renewal_endangers_no_other() {
    let db = test_db().await;
    let provider = LockProvider::builder(db.database())
        .expiry(Duration::from_secs(3))
        .build()
        .unwrap();
    let mut guards = Vec::new();
    for index in 0..40 {
        guards.push(provider.lock(format!("blocked:{index:02}")).await.unwrap());
    }
    let mut session = transaction_on(&db.connect_again().await.unwrap(), &["blocked:03"]).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    for guard in &guards {
        assert_eq!(guard.is_lost(), guard.name() == "blocked:03", "{}", guard.name());
    }
    session.abort_transaction().await.unwrap();
    for guard in guards.into_iter().filter(|guard| !guard.is_lost()) {
        guard.release().await.unwrap();
    }
}

/// The same with releases: they go out together, and one that has to wait keeps no other lock taken.
#[tokio::test]
async fn a_blocked_release_keeps_no_other_lock_taken() {
    let db = test_db().await;
    let (provider, rival) = (provider(&db), provider(&db));
    let names = ["released:0", "released:1", "released:2"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(provider.lock(name).await.unwrap());
    }
    // An index that is being made would wait for the transaction, and everything else for the index.
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
    let mut session = transaction_on(&db.connect_again().await.unwrap(), &names[..1]).await;
    drop(guards);
    acquire_soon(&provider, names[1]).await.release().await.unwrap();
    acquire_soon(&rival, names[2]).await.release().await.unwrap();
    session.abort_transaction().await.unwrap();
}

/// Releases that wait for a foreign transaction take turns, and few of them: the connections are the user's, and the
/// renewals need them as well.
#[tokio::test]
async fn blocked_releases_leave_the_connections_to_others() {
    let db = test_db().await;
    let names: Vec<String> = (0..8).map(|number| format!("blocked:{number}")).collect();
    let repeats = Arc::new(AtomicUsize::new(0));
    let mut options = ClientOptions::parse(db.uri()).await.unwrap();
    options.max_pool_size = Some(5);
    let counted = Arc::clone(&repeats);
    options.command_event_handler = Some(EventHandler::callback(move |event| {
        // A release that is repeated for one claim alone has a limit of its own at the server.
        if let CommandEvent::Started(started) = event
            && started.command_name == "update"
            && started.command.get_i64("maxTimeMS") == Ok(1000)
        {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    }));
    let database = Client::with_options(options).unwrap().database(db.name());
    let provider = LockProvider::new(&database);
    let bystander = provider.lock("bystander").expiry(AMPLE / 2).await.unwrap();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(provider.lock(name).await.unwrap());
    }
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
    let mut session = transaction_on(&db.connect_again().await.unwrap(), &names).await;
    repeats.store(0, Ordering::SeqCst);
    drop(guards);
    let all_tried = async || (repeats.load(Ordering::SeqCst) >= 2 * names.len()).then_some(());
    must(eventually(AMPLE, "each is repeated, and again", all_tried).await);
    let users = database.collection::<Document>("users");
    let plain = async { users.find_one(doc! {}).await };
    timeout(AMPLE / 2, plain)
        .await
        .expect("a connection is free")
        .unwrap();
    assert!(!bystander.is_lost());
    session.abort_transaction().await.unwrap();
    for name in &names {
        acquire_soon(&provider, name).await.release().await.unwrap();
    }
    bystander.release().await.unwrap();
}
