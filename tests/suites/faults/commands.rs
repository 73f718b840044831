//! Commands that fail at the server.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use mongolock::{LockError, LockProvider, distributed_lock};
use mongolock_tests::{
    AMPLE, BEFORE_EXPIRY, FailPoint, FailPointGuard, LentServer, Purpose, TestDb, change_lock, eventually,
    must, recorded, test_db, with_parameter,
};
use tokio::time::{Instant, timeout};

use crate::callers::{hold_all, release_all};
use crate::{
    DEFAULT_EXPIRY, MAX_TIME_EXPIRED, STEPPED_DOWN, Standalone, assert_free, connect, document, fail,
    foreign_transaction, patient, renewing, take_over, until_indexed, until_none_is_held, warm_up,
    with_expiry,
};

/// The time for which a request is repeated that the server refuses for a missing right or a refused log-in.
const REFUSED: Duration = Duration::from_secs(10);

/// B5, S4.4: commands that fail with a transient error are repeated until the deadline.
#[tokio::test]
async fn transient_errors_are_repeated() {
    // Three times: the driver itself repeats a command once.
    let three_times = FailPoint::on(&["findAndModify"]).times(3);
    let codes = [91, 112, 189, 10107, 11602].map(|code| three_times.clone().error_code(code));
    join_all(
        codes
            .into_iter()
            .chain([three_times.close_connection()])
            .map(async |point| {
                let db = test_db().await;
                // After a false "not primary" the driver waits for the next heartbeat.
                let uri = with_parameter(db.uri(), "heartbeatFrequencyMS=500");
                let provider = LockProvider::new(&connect(&uri, db.name()).await);
                warm_up(&provider).await;
                let _point = fail(&db, point).await;
                assert_free(&provider, "passing").await;
            }),
    )
    .await;
}

/// S4.5, B13: permanent errors reach the caller at once.
#[tokio::test]
async fn permanent_errors_are_reported_at_once() {
    let db = test_db().await;
    let provider = patient(db.database());
    for code in [2, 9, 40324] {
        let _point = fail(&db, FailPoint::on(&["findAndModify"]).always().error_code(code)).await;
        let begun = Instant::now();
        let error = provider.lock("lasting").acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Mongo(_)), "{error}");
        assert!(begun.elapsed() < BEFORE_EXPIRY, "{code}");
    }
    assert_free(&provider, "lasting").await;
}

/// At the deadline the caller gets the last error.
#[tokio::test]
async fn an_error_that_stays_until_the_deadline_is_reported() {
    let db = test_db().await;
    let provider = patient(db.database());
    let refusal = FailPoint::on(&["findAndModify"]).always();
    let _point = fail(&db, refusal.error_code(STEPPED_DOWN)).await;
    let lock = provider.lock("down").acquire_timeout(Duration::from_millis(300));
    match lock.acquire().await {
        Err(LockError::Mongo(error)) => assert!(error.to_string().contains("189"), "{error}"),
        other => panic!("{other:?}"),
    }
}

/// A missing right passes, too: a call repeats its request for 10 s. A wrong password of a client that was never accepted does not.
#[tokio::test]
async fn access_control_errors_end_a_wait_after_ten_seconds() {
    let server = must(LentServer::with_users().await);
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
    for (uri, least) in [(wrong, Duration::ZERO), (reader, REFUSED)] {
        let provider = LockProvider::connect(&uri).await.unwrap();
        let begun = Instant::now();
        let lock = provider.lock("closed").acquire_timeout(AMPLE);
        let error = lock.await.unwrap_err();
        assert!(matches!(error, LockError::Mongo(_)), "{error}");
        let waited = begun.elapsed();
        assert!((least..least + BEFORE_EXPIRY / 2).contains(&waited), "{waited:?}");
    }
    let writer = LockProvider::new(&connect(&right, "app").await);
    assert_free(&writer, "open").await;
}

/// Makes every renewal and every release of one claim fail with a transient error, as well as every claim.
async fn refuse(db: &TestDb) -> FailPointGuard {
    let point = FailPoint::on(&["findAndModify"]).always();
    fail(db, point.error_code(STEPPED_DOWN)).await
}

/// A release that fails is repeated. B10: the caller gets the body's own error.
#[tokio::test]
async fn a_failed_release_is_repeated_and_keeps_the_result_of_the_body() {
    #[derive(Debug, thiserror::Error)]
    enum AppError {
        #[error("the body failed")]
        Body,
        #[error(transparent)]
        Lock(#[from] LockError),
    }

    #[distributed_lock(name = "failing")]
    async fn failing(db: &TestDb, refusing: &mut Option<FailPointGuard>) -> Result<(), AppError> {
        *refusing = Some(refuse(db).await);
        Err(AppError::Body)
    }

    #[distributed_lock(name = "failing")]
    async fn working(db: &TestDb, refusing: &mut Option<FailPointGuard>) -> Result<u32, AppError> {
        *refusing = Some(refuse(db).await);
        Ok(7)
    }

    let db = test_db().await;
    let provider = patient(db.database());
    let mut refusing = None;
    let failed = provider.scope(failing(&db, &mut refusing)).await;
    assert!(matches!(failed, Err(AppError::Body)));
    must(refusing.take().unwrap().clear().await);
    assert_free(&LockProvider::new(db.database()), "failing").await;

    // The body ran under the lock.
    assert_eq!(provider.scope(working(&db, &mut refusing)).await.unwrap(), 7);
    must(refusing.take().unwrap().clear().await);
    assert_free(&LockProvider::new(db.database()), "failing").await;
}

/// B4, S1.11: every renewal fails. The holder loses the lock no later than a rival can acquire it.
#[tokio::test]
async fn a_lock_that_cannot_be_renewed_is_lost_in_time() {
    let db = test_db().await;
    let provider = patient(db.database());
    let lock = provider.lock("unrenewable").expiry(Duration::from_secs(1));
    let guard = lock.acquire().await.unwrap();
    let point = refuse(&db).await;
    // The fail point does not hit the rival, which has another application name.
    let rival = connect(db.uri(), "rival").await.client().database(db.name());
    let taking = take_over(&patient(&rival), &guard);
    guard.lost().await;
    assert!(taking.await.unwrap().fencing_token() > guard.fencing_token());
    must(point.clear().await);
}

/// B4, B9: the server ends every renewal of a lock at its time limit, as it does at a blocked document. The renewal is
/// repeated after a pause and not in a loop, and the holder loses the lock no later than a rival can acquire it.
#[tokio::test]
async fn renewals_that_run_out_of_time_are_repeated_with_pauses() {
    let it = Standalone::start().await;
    let guard = with_expiry(&it.proxied, Duration::from_secs(6))
        .lock("slow")
        .await
        .unwrap();
    let point = FailPoint::on(&["findAndModify"])
        .always()
        .error_code(MAX_TIME_EXPIRED);
    // The fail point does not hit the rival, which has another application name.
    let point = must(point.app_name("app").enable(&it.uri()).await);
    let rival = connect(&it.uri(), "rival").await.client().database("app");
    let (begun, before) = (Instant::now(), it.proxy.seen(Purpose::Renew));
    let lost = async {
        guard.lost().await;
        (it.proxy.seen(Purpose::Renew) - before, begun.elapsed().as_secs())
    };
    let taking = take_over(&patient(&rival), &guard);
    let ((renewals, seconds), next) = tokio::join!(lost, taking);
    assert!(
        (1..=10 * (seconds + 1)).contains(&renewals),
        "{renewals} in {seconds} s"
    );
    must(point.clear().await);
    next.unwrap().release().await.unwrap();
}

/// S1.11, B8: another program has changed the claim. The holder notices it with the next renewal, which extends
/// nothing.
#[tokio::test]
async fn a_removed_claim_is_noticed() {
    let db = test_db().await;
    let provider = renewing(&patient(db.database()), Duration::from_millis(200));
    let guard = provider.lock("removed").await.unwrap();
    let bystander = provider.lock("bystander").await.unwrap();
    let theirs = doc! { "$set": { "lockId": "rival#1" } };
    change_lock(db.database(), "removed", theirs).await;
    let before = document(db.database(), "removed").await;
    must(timeout(AMPLE, guard.lost()).await);
    assert_eq!(document(db.database(), "removed").await, before);
    assert!(!bystander.is_lost(), "another lock is not lost");
    bystander.release().await.unwrap();
}

/// B14: nothing is renewed after a release or a drop.
#[tokio::test]
async fn renewal_ends_with_the_hold() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[]).await;
    let provider = renewing(&patient(&database), Duration::from_millis(100));
    let lock = provider.lock("ended");
    lock.acquire().await.unwrap().release().await.unwrap();
    drop(lock.acquire().await.unwrap());
    until_none_is_held(db.database(), AMPLE).await;
    commands.clear();
    tokio::time::sleep(Duration::from_millis(500)).await;
    for purpose in [Purpose::Renew, Purpose::Release] {
        assert_eq!(commands.count(purpose), 0, "{purpose:?}");
    }
}

/// A foreign transaction has changed the document of one lock. The bulk renewal waits for it, and no other lock is
/// lost.
#[tokio::test]
async fn a_blocked_renewal_loses_no_other_lock() {
    let db = test_db().await;
    let provider = with_expiry(db.database(), Duration::from_secs(3));
    let locks = (0..40).map(|index| provider.lock(format!("blocked:{index:02}")));
    let mut guards = hold_all(locks).await;
    until_indexed(&provider).await;
    let mut session = foreign_transaction(&db, &["blocked:03"]).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    for guard in &guards {
        assert_eq!(guard.is_lost(), guard.name() == "blocked:03", "{}", guard.name());
    }
    session.abort_transaction().await.unwrap();
    guards.retain(|guard| !guard.is_lost());
    release_all(guards).await;
}

/// Releases are sent together as well, and a blocked one does not delay the others.
#[tokio::test]
async fn a_blocked_release_delays_no_other_release() {
    let db = test_db().await;
    let (provider, rival) = (patient(db.database()), patient(db.database()));
    let names = ["released:0", "released:1", "released:2"];
    let guards = hold_all(names.iter().map(|name| provider.lock(name))).await;
    until_indexed(&provider).await;
    let mut session = foreign_transaction(&db, &names[..1]).await;
    drop(guards);
    assert_free(&provider, names[1]).await;
    assert_free(&rival, names[2]).await;
    session.abort_transaction().await.unwrap();
}

/// Only a few blocked releases are repeated at the same time, because the application and the renewals need the
/// connections of the pool as well.
#[tokio::test]
async fn blocked_releases_do_not_use_up_the_connections() {
    let db = test_db().await;
    let names: Vec<String> = (0..8).map(|number| format!("blocked:{number}")).collect();
    let (database, commands) = recorded(&db, &["maxPoolSize=5"]).await;
    let provider = LockProvider::new(&database);
    let bystander = provider.lock("bystander").expiry(DEFAULT_EXPIRY).await.unwrap();
    let guards = hold_all(names.iter().map(|name| provider.lock(name))).await;
    until_indexed(&provider).await;
    let mut session = foreign_transaction(&db, &names).await;
    commands.clear();
    drop(guards);
    // A repeated release is for one claim only, and has this limit at the server.
    let limit = 2000;
    let is_repeat = |sent: &Document| {
        let is_single = sent.contains_key("findAndModify") && sent.get_i64("maxTimeMS") == Ok(limit);
        is_single && Purpose::of(sent) == Some(Purpose::Release)
    };
    let repeats = || commands.all().into_iter().filter(is_repeat).count();
    let all_tried = async || (repeats() >= 2 * names.len()).then_some(());
    must(eventually(AMPLE, "each release is repeated several times", all_tried).await);
    let users = database.collection::<Document>("users");
    let plain = async { users.find_one(doc! {}).await };
    timeout(AMPLE / 2, plain)
        .await
        .expect("a connection is free")
        .unwrap();
    assert!(!bystander.is_lost());
    session.abort_transaction().await.unwrap();
    for name in &names {
        assert_free(&provider, name).await;
    }
    bystander.release().await.unwrap();
}
