//! The end of a hold, and a wait, while the server refuses requests: what passes is repeated, and what cannot pass ends at once.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::doc;
use mongolock::{LockError, LockProvider, LockState};
use mongolock_tests::{
    AMPLE, BEFORE_EXPIRY, FailPoint, LentServer, Purpose, TestDb, locks, must, recorded, test_db,
};
use tokio::time::{Instant, sleep, timeout};

use crate::{LONG_EXPIRY, assert_free, connect, fail, patient, warm_up, with_expiry};

/// Codes of refusals that pass: not the ones of a server that fails over, which every driver knows.
const PASSING: [i32; 7] = [365, 215, 314, 117, 12586, 12587, 371];

/// The code of a missing right.
const UNAUTHORIZED: i32 = 13;

/// A time for which the server refuses requests: longer than a release is awaited.
const TROUBLE: Duration = Duration::from_secs(7);

/// What has come of a call while the server refuses this command of the test for that time.
async fn refused<T>(
    db: &TestDb,
    command: &str,
    code: i32,
    time: Duration,
    call: impl IntoFuture<Output = T>,
) -> T {
    let refusing = fail(db, FailPoint::on(&[command]).always().error_code(code)).await;
    let trouble = async {
        sleep(time).await;
        must(refusing.clear().await);
    };
    tokio::join!(call.into_future(), trouble).0
}

/// A provider with leases that outlast a test.
async fn provider() -> (TestDb, LockProvider) {
    let db = test_db().await;
    let provider = with_expiry(db.database(), LONG_EXPIRY);
    warm_up(&provider).await;
    (db, provider)
}

#[tokio::test]
async fn a_refusal_that_passes_drops_no_mark() {
    join_all(PASSING.map(async |code| {
        let (db, provider) = provider().await;
        let guard = provider.lock("job").once().acquire().await.unwrap();
        let done = refused(&db, "findAndModify", code, Duration::from_secs(1), guard.done()).await;
        done.unwrap_or_else(|error| panic!("{code}: {error}"));
        let next = provider.lock("job").once().acquire().await;
        assert!(
            matches!(next, Err(LockError::Done { .. })),
            "{code}: {:?}",
            next.err()
        );
    }))
    .await;
}

#[tokio::test]
async fn a_mark_and_a_detachment_outlast_a_refusal_of_seconds() {
    let (db, provider) = provider().await;
    let (job, kept) = (provider.lock("job").once(), provider.lock("kept"));
    let (job, kept) = (job.acquire().await.unwrap(), kept.acquire().await.unwrap());
    let ends = async { tokio::join!(job.done(), kept.detach(AMPLE).into_future()) };
    let (done, handle) = refused(&db, "findAndModify", PASSING[0], TROUBLE, ends).await;
    done.unwrap();
    assert!(provider.release(&handle.unwrap()).await.unwrap());
    let info = provider.admin().get("job").await.unwrap().unwrap();
    assert_eq!(info.state, LockState::Done);
}

/// The caller of the release has gone on after 6 s, and the provider has not.
#[tokio::test]
async fn a_release_goes_on_after_its_caller() {
    let (db, provider) = provider().await;
    let guard = provider.lock("job").acquire().await.unwrap();
    let released = refused(
        &db,
        "findAndModify",
        PASSING[0],
        Duration::from_secs(8),
        guard.release(),
    )
    .await;
    assert!(matches!(released, Err(LockError::Mongo(_))), "{released:?}");
    let next = patient(&db.connect_again().await.unwrap());
    timeout(BEFORE_EXPIRY, assert_free(&next, "job")).await.unwrap();
}

#[tokio::test]
async fn a_refusal_that_passes_ends_no_wait() {
    join_all(PASSING.map(async |code| {
        let (db, provider) = provider().await;
        let held = LockProvider::new(&db.connect_again().await.unwrap());
        let held = held.lock("job").acquire().await.unwrap();
        let waiting = patient(db.database());
        let waiting = tokio::spawn(async move { waiting.lock("job").acquire().await });
        let (pause, commands) = (Duration::from_secs(3), FailPoint::on(&["findAndModify", "find"]));
        let refusing = fail(&db, commands.always().error_code(code)).await;
        sleep(pause).await;
        must(refusing.clear().await);
        held.release().await.unwrap();
        let got = timeout(BEFORE_EXPIRY, waiting).await.unwrap().unwrap();
        assert!(got.is_ok(), "{code}: {:?}", got.err());
        drop(provider);
    }))
    .await;
}

/// A wait without a limit goes on through everything that passes, but not for ever.
#[tokio::test]
#[ignore = "the wait ends after a minute"]
async fn a_wait_without_a_limit_ends_after_a_minute_of_refusals() {
    let (db, provider) = provider().await;
    let commands = FailPoint::on(&["findAndModify", "find"]);
    let _refusing = fail(&db, commands.always().error_code(PASSING[0])).await;
    let begun = Instant::now();
    let waiting = provider.lock("job").acquire_timeout(None).acquire();
    let error = timeout(AMPLE * 2, waiting).await.unwrap().unwrap_err();
    assert!(matches!(&error, LockError::Mongo(_)), "{error}");
    assert!(begun.elapsed() >= AMPLE, "{:?}", begun.elapsed());
}

/// The server answers requests with "the database is being dropped" (215) meanwhile.
#[tokio::test]
async fn a_dropped_database_ends_no_wait() {
    // A drop delays the commands of all databases.
    let server = must(LentServer::single().await);
    let database = connect(&server.uri(), "app").await;
    let provider = with_expiry(&database, LONG_EXPIRY);
    let names: Vec<String> = (0..8).map(|number| format!("job:{number}")).collect();
    let waits = join_all(names.iter().map(async |name| {
        for _ in 0..50 {
            let guard = provider
                .lock(name)
                .acquire()
                .await
                .unwrap_or_else(|error| panic!("{error:?}"));
            // A lock that was dropped with its database is lost.
            let released = guard.release().await;
            assert!(
                matches!(released, Ok(()) | Err(LockError::Lost { .. })),
                "{released:?}"
            );
        }
    }));
    let drops = async {
        for _ in 0..20 {
            must(database.drop().await);
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(AMPLE, async { tokio::join!(waits, drops) })
        .await
        .unwrap();
}

/// A right is taken away and given back: within 10 s nobody learns of it.
#[tokio::test]
async fn a_right_that_is_given_back_in_time_ends_nothing() {
    let (db, provider) = provider().await;
    let guard = provider.lock("job").once().acquire().await.unwrap();
    let (other, third) = (patient(db.database()).lock("other"), provider.lock("third"));
    let calls = async { tokio::join!(guard.done(), other.acquire(), third.try_acquire()) };
    let time = Duration::from_secs(4);
    let (done, other, tried) = refused(&db, "findAndModify", UNAUTHORIZED, time, calls).await;
    done.unwrap();
    assert!(other.is_ok() && tried.unwrap().is_some());
}

/// A lost right ends the mark after 10 s, and the lock is released at once.
#[tokio::test]
async fn a_right_that_is_lost_ends_a_mark_after_ten_seconds() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[]).await;
    let provider = with_expiry(&database, LONG_EXPIRY);
    warm_up(&provider).await;
    let guard = provider.lock("job").once().acquire().await.unwrap();
    let refusing = fail(
        &db,
        FailPoint::on(&["findAndModify"])
            .always()
            .error_code(UNAUTHORIZED),
    )
    .await;
    commands.clear();
    let begun = Instant::now();
    let error = guard.done().await.unwrap_err();
    let waited = begun.elapsed();
    assert!(
        waited >= Duration::from_secs(10) && waited < BEFORE_EXPIRY,
        "{waited:?}"
    );
    assert!(error.to_string().contains("its work will run again"), "{error}");
    let released = timeout(BEFORE_EXPIRY, commands.until_sent(Purpose::Release));
    released.await.expect("the release is sent at once");
    must(refusing.clear().await);
    timeout(BEFORE_EXPIRY, assert_free(&provider, "job"))
        .await
        .unwrap();
}

/// Neither a call nor a program waits for ever for a mark that the server never writes.
#[tokio::test]
#[ignore = "the mark is repeated for a minute"]
async fn a_mark_that_is_always_refused_ends() {
    let db = test_db().await;
    let provider = with_expiry(db.database(), Duration::from_secs(5));
    warm_up(&provider).await;
    let guard = provider.lock("job").once().acquire().await.unwrap();
    // Renewals of two leases are an `update`, which is not refused.
    let _other = provider.lock("other").acquire().await.unwrap();
    let _refusing = fail(
        &db,
        FailPoint::on(&["findAndModify"]).always().error_code(PASSING[0]),
    )
    .await;
    let begun = Instant::now();
    let error = guard.done().await.unwrap_err();
    let waited = begun.elapsed();
    assert!((60..80).contains(&waited.as_secs()), "{waited:?}");
    assert!(error.to_string().contains("its work will run again"), "{error}");
    let info = provider.admin().get("job").await.unwrap().unwrap();
    assert!(
        matches!(info.state, LockState::Expired | LockState::Released),
        "{info:?}"
    );
}

/// `shutdown` waits for a mark as long as its lease lasts, and `shutdown_after` no longer than for anything else.
#[tokio::test]
async fn a_shutdown_waits_for_a_mark_while_its_lease_lasts() {
    const REFUSED: Duration = Duration::from_secs(19);
    let refused_mark = async || {
        let (db, provider) = provider().await;
        let guard = provider.lock("job").once().acquire().await.unwrap();
        let refusing = fail(
            &db,
            FailPoint::on(&["findAndModify"]).always().error_code(PASSING[0]),
        )
        .await;
        assert!(timeout(Duration::from_millis(500), guard.done()).await.is_err());
        (db, provider, refusing)
    };
    let patient = async {
        let (db, provider, refusing) = refused_mark().await;
        let trouble = async {
            sleep(REFUSED).await;
            // A request may succeed before the reply to this command.
            let passed = Instant::now();
            must(refusing.clear().await);
            passed
        };
        let ending = async {
            provider.shutdown().await;
            Instant::now()
        };
        let (passed, ended) = tokio::join!(trouble, ending);
        assert!(ended >= passed, "it waits for the mark");
        let next = LockProvider::new(&db.connect_again().await.unwrap());
        let next = next.lock("job").once().acquire().await;
        assert!(matches!(next, Err(LockError::Done { .. })), "{:?}", next.err());
    };
    let bounded = async {
        let (_db, provider, _refusing) = refused_mark().await;
        let begun = Instant::now();
        provider.shutdown_after(Duration::from_secs(1)).await;
        assert!(begun.elapsed() < REFUSED, "{:?}", begun.elapsed());
    };
    tokio::join!(patient, bounded);
}

/// A validator or a unique index that refuses a release is the user's to find: the provider says so, and the next caller of this
/// process learns the reason instead of waiting for a holder.
#[tokio::test]
async fn a_release_that_is_refused_for_good_is_reported() {
    for is_index in [false, true] {
        let (db, provider) = provider().await;
        let guard = provider.lock("job").acquire().await.unwrap();
        let other = provider.lock("other").acquire().await.unwrap();
        let admin = must(db.without_stable_api().await);
        let wanted = if is_index {
            // Another lock is released, so that its `lockId` is taken.
            other.release().await.unwrap();
            let index = doc! { "key": { "lockId": 1 }, "name": "one_owner", "unique": true };
            let name = locks(db.database()).name().to_owned();
            // The two documents of the test's own locks are the only ones.
            must(
                locks(db.database())
                    .delete_many(doc! { "lockId": "", "_id": { "$ne": "other" } })
                    .await,
            );
            must(
                admin
                    .run_command(doc! { "createIndexes": name, "indexes": [index] })
                    .await,
            );
            "one_owner"
        } else {
            let validator = doc! { "lockId": { "$ne": "" } };
            db.set_validator(validator).await;
            "validation"
        };
        let error = guard.release().await.unwrap_err();
        assert!(
            error.help().contains("index") || error.help().contains("validator"),
            "{}",
            error.help()
        );
        let health = provider.health().await;
        let said = serde_json::to_value(&health).unwrap()["error"].to_string();
        assert!(said.contains(wanted), "{said}");
        let next = provider.lock("job").acquire().await.unwrap_err();
        assert!(
            matches!(next, LockError::Mongo(_)) && next.help() == error.help(),
            "{next}"
        );
    }
}

/// The server stops at the document that it refuses: the other locks of the command are released alone.
#[tokio::test]
async fn a_release_that_is_refused_keeps_no_other_lock_taken() {
    let (db, provider) = provider().await;
    let set = provider.lock_all(["a", "b", "c"]).acquire().await.unwrap();
    let mut alone = Vec::new();
    for name in ["d", "e", "f"] {
        alone.push(provider.lock(name).acquire().await.unwrap());
    }
    let refused = doc! { "_id": { "$in": ["b", "e"] }, "lockId": "" };
    db.set_validator(doc! { "$nor": [refused] }).await;
    drop(alone);
    set.release().await.unwrap_err();
    let other = patient(&db.connect_again().await.unwrap());
    for name in ["a", "c", "d", "f"] {
        timeout(BEFORE_EXPIRY, assert_free(&other, name)).await.unwrap();
    }
}
