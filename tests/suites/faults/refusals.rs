//! What calls say while each of their requests fails, when they say it, and what is left of them.

use std::collections::HashSet;
use std::error::Error as _;
use std::time::Duration;

use futures_util::future::join_all;
use mongodb::error::{Error, ErrorKind};
use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, FailPoint, must, test_db, with_parameter};
use tokio::time::Instant;

use crate::{LONG_EXPIRY, STEPPED_DOWN, acquire_soon, connect, fail, warm_up, with_expiry};

/// How long a call waits that repeats its request.
const LIMIT: Duration = Duration::from_millis(1500);

/// The runs of three words that stand in more than one element of the chain of sources.
fn repeated(error: &LockError) -> Vec<String> {
    let report = anyhow::Error::from(error.clone());
    let mut seen = HashSet::new();
    let mut repeated = Vec::new();
    for element in report.chain() {
        let text = element.to_string();
        let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let runs: HashSet<String> = words.windows(3).map(|run| run.join(" ")).collect();
        repeated.extend(runs.iter().filter(|run| seen.contains(*run)).cloned());
        seen.extend(runs);
    }
    repeated
}

/// Asserts that the text is one short line, and that the driver's error behind it repeats nothing of it.
pub(crate) fn is_told_once(error: &LockError) {
    let text = error.to_string();
    assert!(text.len() < 160 && !text.contains('\n'), "{text}");
    let whole = anyhow::Error::from(error.clone());
    assert_eq!(repeated(error), [""; 0], "{whole:#}");
}

/// Asserts that the driver's error is behind the one of the library.
pub(crate) fn has_its_source(error: &LockError) {
    let source = error.source().and_then(|source| source.downcast_ref::<Error>());
    assert!(source.is_some(), "{error:?}");
}

/// A failure of each request.
struct Failure {
    point: FailPoint,
    /// Whether it cannot pass, so that no call waits.
    is_final: bool,
    /// How the text of the error begins.
    text: String,
    /// A part of its help.
    help: &'static str,
    is_kind: fn(&ErrorKind) -> bool,
}

fn failures() -> Vec<Failure> {
    let of = |point: FailPoint, text: &str, help, is_kind| Failure {
        point: point.always(),
        is_final: false,
        text: text.to_owned(),
        help,
        is_kind,
    };
    let on = || FailPoint::on(&["findAndModify"]);
    let refused: fn(&ErrorKind) -> bool = |kind| matches!(kind, ErrorKind::Command(_));
    let unconfirmed: fn(&ErrorKind) -> bool = |kind| matches!(kind, ErrorKind::Write(_));
    // The release of an earlier call, which is repeated, may have been cut off.
    let cut: fn(&ErrorKind) -> bool =
        |kind| matches!(kind, ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. });
    let (overload, ends) = (FailPoint::rejecting(&["findAndModify"]), on().close_connection());
    let mut failures = vec![
        of(overload, "MongoDB is overloaded", "Retry later", refused),
        of(ends, "the connection to MongoDB failed", "", cut),
    ];
    for (code, name, help, is_final) in [
        (STEPPED_DOWN, "PrimarySteppedDown", "", false),
        (13, "Unauthorized", "", false),
        (14031, "OutOfDiskSpace", "disk", false),
        (2, "", "", true),
        (9, "", "", true),
        (40324, "", "", true),
    ] {
        let text = format!("MongoDB refused an operation (error {code}, {name}");
        let failure = of(on().error_code(code), &text, help, refused);
        failures.push(Failure { is_final, ..failure });
    }
    // A time that is over, a shutdown, an interruption by a step-down, a step-down.
    for code in [64, 91, 11602, STEPPED_DOWN] {
        let point = on().write_concern_error(code, "waiting timed out");
        let text = format!("MongoDB did not confirm a write (error {code}");
        failures.push(of(point, &text, "", unconfirmed));
    }
    failures
}

/// S4.5, B12, B13: a wait and a try end with the error, at once if it cannot pass. What a request has acquired all the same is
/// released.
#[tokio::test]
async fn calls_say_why_they_fail_and_leave_nothing() {
    join_all(failures().into_iter().map(async |failure| {
        let db = test_db().await;
        // After a false "not primary" the driver waits for the next heartbeat.
        let uri = with_parameter(db.uri(), "heartbeatFrequencyMS=500");
        let provider = with_expiry(&connect(&uri, db.name()).await, LONG_EXPIRY);
        warm_up(&provider).await;
        let point = fail(&db, failure.point).await;
        let limit = if failure.is_final { AMPLE } else { LIMIT };
        let lock = provider.lock("failing").acquire_timeout(limit);
        let begun = Instant::now();
        let (waited, tried) = (lock.acquire().await, lock.try_acquire().await.map(drop));
        let took = begun.elapsed();
        let waits = took >= if failure.is_final { BEFORE_EXPIRY } else { limit };
        assert_eq!(waits, !failure.is_final, "{took:?}");
        for error in [waited.map(drop), tried].map(Result::unwrap_err) {
            assert!(error.to_string().starts_with(&failure.text), "{error}");
            assert!(error.help().contains(failure.help), "{}", error.help());
            let LockError::Mongo(of_driver) = &error else {
                panic!("{error:?}")
            };
            assert!((failure.is_kind)(&of_driver.kind), "{error:?}");
            has_its_source(&error);
            is_told_once(&error);
        }
        must(point.clear().await);
        let rival = LockProvider::new(&connect(db.uri(), "rival").await.client().database(db.name()));
        acquire_soon(&rival, "failing").await.release().await.unwrap();
    }))
    .await;
}

/// A commit that is slower than the rest of a wait says nothing of the lock: the error names the holder. The second request
/// of the wait has less than half a second at the server.
#[tokio::test]
async fn a_last_request_that_is_not_confirmed_in_its_time_hides_no_holder() {
    const MAX_TIME_EXPIRED: i32 = 50;
    let db = test_db().await;
    let rival = LockProvider::new(&connect(db.uri(), "rival").await.client().database(db.name()));
    let interval = Duration::from_millis(1600);
    let provider = LockProvider::builder(db.database()).retry_interval(interval..=interval);
    let provider = provider.build().unwrap();
    warm_up(&provider).await;
    let holder = must(rival.lock("held").acquire().await);
    let lock = provider.lock("held").acquire_timeout(Duration::from_secs(2));
    let point = FailPoint::on(&["findAndModify"]).after(1);
    let point = fail(&db, point.write_concern_error(MAX_TIME_EXPIRED, "injected")).await;
    let waited = lock.acquire().await;
    assert!(matches!(waited, Err(LockError::Timeout { .. })), "{waited:?}");
    must(point.clear().await);
    must(holder.release().await);
}
