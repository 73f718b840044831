//! The end of a hold, and a wait, while the server refuses requests: what passes is repeated, and what cannot pass ends at once.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::doc;
use mongolock::{LockError, LockProvider, LockState, distributed_lock};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, FailPoint, Purpose, TestDb, locks, must, recorded, test_db};
use tokio::time::{Instant, sleep, timeout};

use crate::callers::hold_all;
use crate::{CLOSED, LONG_EXPIRY, assert_free, connect, fail, patient, warm_up, with_expiry};

/// The code of a refusal that may pass, and that no driver knows.
const PASSING: i32 = 365;

/// The server refuses to change claims.
fn refusal(code: i32) -> FailPoint {
    FailPoint::on(&["findAndModify", "update"])
        .always()
        .error_code(code)
}

/// A provider with leases that outlast a test.
async fn provider() -> (TestDb, LockProvider) {
    let db = test_db().await;
    let provider = with_expiry(db.database(), LONG_EXPIRY);
    warm_up(&provider).await;
    (db, provider)
}

#[distributed_lock(name = "body", provider = provider)]
async fn failing(provider: &LockProvider, body: impl AsyncFnOnce()) -> Result<(), LockError> {
    body().await;
    Err(LockError::NoProvider)
}

/// A mark, a detachment and a release are repeated beyond the 6 s for which a release is awaited. B10: the body's own error comes
/// first. The caller of a release has gone on with an error, and the provider has not.
#[tokio::test]
async fn ends_outlast_a_refusal_of_seconds() {
    let (db, provider) = provider().await;
    let job = provider.lock("job").once().acquire().await.unwrap();
    let kept = provider.lock("kept").acquire().await.unwrap();
    let released = provider.lock("released").acquire().await.unwrap();
    let (inside, entered) = tokio::sync::oneshot::channel();
    let (end, ends) = tokio::sync::oneshot::channel();
    let body = async || {
        inside.send(()).unwrap();
        ends.await.unwrap();
    };
    let trouble = async {
        entered.await.unwrap();
        let refusing = fail(&db, refusal(PASSING)).await;
        end.send(()).unwrap();
        let trouble = async {
            sleep(Duration::from_secs(8)).await;
            must(refusing.clear().await);
        };
        tokio::join!(
            job.done(),
            kept.detach(AMPLE).into_future(),
            released.release(),
            trouble
        )
    };
    let (failed, (done, handle, released, ())) = tokio::join!(failing(&provider, body), trouble);
    assert!(matches!(failed, Err(LockError::NoProvider)), "{failed:?}");
    assert!(matches!(released, Err(LockError::Mongo(_))), "{released:?}");
    done.unwrap();
    assert!(provider.release(&handle.unwrap()).await.unwrap());
    let info = provider.admin().get("job").await.unwrap().unwrap();
    assert_eq!(info.state, LockState::Done);
    let next = patient(&db.connect_again().await.unwrap());
    for name in ["released", "body"] {
        timeout(BEFORE_EXPIRY, assert_free(&next, name)).await.unwrap();
    }
}

/// A wait for a lock that is held goes on although no look at it succeeds for seconds.
#[tokio::test]
async fn a_refusal_that_passes_ends_no_wait() {
    let (db, provider) = provider().await;
    let holder = LockProvider::new(&connect(db.uri(), "other").await.client().database(db.name()));
    let held = holder.lock("job").acquire().await.unwrap();
    let waiting = provider.lock("job").acquire_timeout(AMPLE);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    let commands = FailPoint::on(&["findAndModify", "find"]).always();
    let refusing = fail(&db, commands.error_code(PASSING)).await;
    sleep(Duration::from_secs(3)).await;
    held.release().await.unwrap();
    must(refusing.clear().await);
    let next = timeout(BEFORE_EXPIRY, waiting).await.unwrap();
    next.unwrap().unwrap().release().await.unwrap();
}

/// A wait without a limit goes on through everything that passes, but not for ever. Neither a call nor a program waits for ever
/// for a mark that the server never writes.
#[tokio::test]
#[ignore = "they end after a minute"]
async fn a_wait_without_a_limit_ends_after_a_minute_of_refusals() {
    let (db, provider) = provider().await;
    let marked = provider.lock("marked").once().expiry(Duration::from_secs(5));
    let marked = marked.acquire().await.unwrap();
    // Renewals of two leases are an `update`, which is not refused here.
    let other = provider.lock("other").expiry(Duration::from_secs(5));
    let _other = other.acquire().await.unwrap();
    let commands = FailPoint::on(&["findAndModify", "find"]);
    let refusing = fail(&db, commands.always().error_code(PASSING)).await;
    let begun = Instant::now();
    let waiting = async {
        let waited = provider.lock("job").acquire_timeout(None).acquire().await;
        (waited.unwrap_err(), begun.elapsed())
    };
    let marking = async { (marked.done().await.unwrap_err(), begun.elapsed()) };
    let both = async { tokio::join!(waiting, marking) };
    let (waited, marked) = timeout(AMPLE * 2, both).await.unwrap();
    assert!(matches!(&waited.0, LockError::Mongo(_)), "{}", waited.0);
    let text = marked.0.to_string();
    assert!(text.contains("its work will run again"), "{text}");
    for (_, took) in [waited, marked] {
        assert!((60..80).contains(&took.as_secs()), "{took:?}");
    }
    must(refusing.clear().await);
    let info = provider.admin().get("marked").await.unwrap().unwrap();
    let ended = [LockState::Expired, LockState::Released];
    assert!(ended.contains(&info.state), "{info:?}");
}

/// Waits of several names, and several of one name.
#[tokio::test]
#[ignore = "they end after a minute"]
async fn all_waits_without_a_limit_end_soon_after_a_minute_without_a_server() {
    let uri = format!("mongodb://{CLOSED}/?directConnection=true");
    let provider = LockProvider::new(&connect(&uri, "app").await);
    let waits = (0..20).map(async |number| {
        let begun = Instant::now();
        let lock = provider.lock(number % 10).acquire_timeout(None);
        (lock.acquire().await.unwrap_err(), begun.elapsed())
    });
    for (error, took) in timeout(AMPLE * 2, join_all(waits)).await.unwrap() {
        assert!(matches!(error, LockError::Mongo(_)), "{error}");
        assert!((60..=70).contains(&took.as_secs()), "{took:?}");
    }
}

/// A right that is lost ends a wait and a mark after 10 s, and the lock is released at once.
#[tokio::test]
async fn a_right_that_is_lost_ends_calls_after_ten_seconds() {
    const UNAUTHORIZED: i32 = 13;
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[]).await;
    let provider = with_expiry(&database, LONG_EXPIRY);
    warm_up(&provider).await;
    let guard = provider.lock("job").once().acquire().await.unwrap();
    let refusing = fail(&db, refusal(UNAUTHORIZED)).await;
    commands.clear();
    let begun = Instant::now();
    let marking = async {
        let error = guard.done().await.unwrap_err();
        let released = timeout(BEFORE_EXPIRY, commands.until_sent(Purpose::Release));
        released.await.expect("the release is sent at once");
        (error, begun.elapsed())
    };
    let waiting = async {
        let waiting = provider.lock("other").acquire_timeout(AMPLE);
        (waiting.acquire().await.unwrap_err(), begun.elapsed())
    };
    let (marked, waited) = tokio::join!(marking, waiting);
    let text = marked.0.to_string();
    assert!(text.contains("its work will run again"), "{text}");
    assert!(matches!(&waited.0, LockError::Mongo(_)), "{}", waited.0);
    for (_, took) in [marked, waited] {
        let in_bounds = Duration::from_secs(10)..BEFORE_EXPIRY;
        assert!(in_bounds.contains(&took), "{took:?}");
    }
    must(refusing.clear().await);
    let free = timeout(BEFORE_EXPIRY, assert_free(&provider, "job"));
    free.await.unwrap();
}

/// `shutdown` waits for a mark as long as its lease lasts, and `shutdown_after` no longer than for anything else.
#[tokio::test]
async fn a_shutdown_waits_for_a_mark_while_its_lease_lasts() {
    let (db, patient) = provider().await;
    let bounded = with_expiry(db.database(), LONG_EXPIRY);
    let (job, other) = (patient.lock("job").once(), bounded.lock("other").once());
    let (job, other) = (job.acquire().await.unwrap(), other.acquire().await.unwrap());
    let refusing = fail(&db, refusal(PASSING)).await;
    let soon = Duration::from_millis(500);
    let (job, other) = tokio::join!(timeout(soon, job.done()), timeout(soon, other.done()));
    assert!(job.is_err() && other.is_err());
    let begun = Instant::now();
    let trouble = async {
        // Longer than a shutdown waits for anything else.
        sleep(Duration::from_secs(18)).await;
        // A request may succeed before the reply to this command.
        let passed = begun.elapsed();
        must(refusing.clear().await);
        passed
    };
    let ending = async {
        patient.shutdown().await;
        begun.elapsed()
    };
    let ending_soon = async {
        bounded.shutdown_after(Duration::from_secs(1)).await;
        begun.elapsed()
    };
    let (passed, ended, at_once) = tokio::join!(trouble, ending, ending_soon);
    assert!(ended >= passed, "it waits for the mark");
    assert!(at_once < passed, "{at_once:?}");
    let next = LockProvider::new(&db.connect_again().await.unwrap());
    let next = next.lock("job").once().acquire().await;
    assert!(matches!(next, Err(LockError::Done { .. })), "{:?}", next.err());
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
            let released = doc! { "lockId": "", "_id": { "$ne": "other" } };
            must(locks(db.database()).delete_many(released).await);
            let create = doc! { "createIndexes": name, "indexes": [index] };
            must(admin.run_command(create).await);
            "one_owner"
        } else {
            let validator = doc! { "lockId": { "$ne": "" } };
            db.set_validator(validator).await;
            "validation"
        };
        let error = guard.release().await.unwrap_err();
        let help = error.help();
        assert!(help.contains("index") || help.contains("validator"), "{help}");
        let health = provider.health().await;
        let said = serde_json::to_value(&health).unwrap()["error"].to_string();
        assert!(said.contains(wanted), "{said}");
        let next = provider.lock("job").acquire().await.unwrap_err();
        assert!(matches!(next, LockError::Mongo(_)), "{next}");
        assert_eq!(next.help(), help);
    }
}

/// The server stops at the document that it refuses: the other locks of the command are released alone.
#[tokio::test]
async fn a_release_that_is_refused_keeps_no_other_lock_taken() {
    let (db, provider) = provider().await;
    let set = provider.lock_all(["a", "b", "c"]).acquire().await.unwrap();
    let alone = hold_all(["d", "e", "f"].into_iter().map(|name| provider.lock(name))).await;
    let refused = doc! { "_id": { "$in": ["b", "e"] }, "lockId": "" };
    db.set_validator(doc! { "$nor": [refused] }).await;
    drop(alone);
    set.release().await.unwrap_err();
    let other = patient(&db.connect_again().await.unwrap());
    for name in ["a", "c", "d", "f"] {
        timeout(BEFORE_EXPIRY, assert_free(&other, name)).await.unwrap();
    }
}

/// The server refuses one lock of a set, and has acquired the lock before it. No call gets that lock, so it is released.
#[tokio::test]
async fn an_acquire_that_is_refused_in_part_keeps_no_lock_taken() {
    let (db, provider) = provider().await;
    db.set_validator(doc! { "$nor": [{ "_id": "b", "lockId": { "$gt": "" } }] })
        .await;
    let error = provider.lock_all(["a", "b", "c"]).acquire().await.unwrap_err();
    assert!(error.help().contains("validator"), "{error}");
    let other = patient(&db.connect_again().await.unwrap());
    for name in ["a", "c"] {
        timeout(BEFORE_EXPIRY, assert_free(&other, name)).await.unwrap();
    }
}
