//! Marks of finished work that the server refuses for good, and claims that are late for their period. What passes: `steps` and `ends`.

use std::error::Error;
use std::time::Duration;

use mongodb::bson::doc;
use mongodb::error::ErrorKind;
use mongolock::{LockError, LockProvider, distributed_lock};
use mongolock_tests::{BEFORE_EXPIRY, FailPoint, Fault, Purpose, recorded, test_db};
use tokio::time::{sleep, timeout};

use crate::{DEFAULT_EXPIRY, Proxied, assert_free, fail, warm_up};

/// The error codes of a document that a validator refuses, and of a collection that cannot have its name: they do not pass.
const DOCUMENT_VALIDATION: i32 = 121;
const INVALID_NAMESPACE: i32 = 73;

/// Asserts that the server has refused the mark with this error.
fn assert_refused(outcome: &Result<(), LockError>, code: i32) {
    let error = outcome.as_ref().expect_err("the mark is refused");
    let text = error.to_string();
    assert!(text.contains("so its work will run again"), "{text}");
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    let Some(LockError::Mongo(error)) = cause else {
        panic!("{outcome:?}")
    };
    let has_code = matches!(&*error.kind, ErrorKind::Command(error) if error.code == code);
    assert!(has_code, "{outcome:?}");
}

/// The collection has got a validator that refuses marks. The caller gets the server's error, the request is not repeated,
/// and the lock is released.
#[tokio::test]
async fn a_mark_that_the_server_refuses_for_good_ends_the_hold() {
    let it = Proxied::start(DEFAULT_EXPIRY).await;
    let guard = it.provider.lock("tick").once().acquire().await.unwrap();
    let context = guard.context();
    let validator = doc! { "lockId": { "$not": { "$regex": "^done:" } } };
    it.db.set_validator(validator).await;
    let requests = it.proxy.seen(Purpose::Mark);
    assert_refused(&guard.done().await, DOCUMENT_VALIDATION);
    assert!(context.is_lost());
    assert_free(&it.rival(), "tick").await;
    assert_eq!(it.proxy.seen(Purpose::Mark), requests + 1);
}

/// The work has succeeded, and another instance will do it again: the call does not hide that.
#[tokio::test]
async fn a_run_whose_mark_is_refused_is_no_success() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[]).await;
    let provider = LockProvider::new(&database);
    warm_up(&provider).await;
    let refuse = async || {
        let refusal = FailPoint::on(&["findAndModify"]).error_code(INVALID_NAMESPACE);
        fail(&db, refusal).await
    };
    let mut refusing = None;
    let body = async |_| {
        refusing = Some(refuse().await);
        Ok::<_, LockError>(())
    };
    assert_refused(&provider.lock("tick").once().run(body).await, INVALID_NAMESPACE);
    drop(refusing);

    commands.clear();
    let mut refusing = None;
    let before_end = async || refusing = Some(refuse().await);
    assert_refused(&continued(&provider, before_end, false).await, INVALID_NAMESPACE);
    drop(refusing);
    assert_eq!(commands.count(Purpose::Mark), 1);
    // A body that has failed leaves no mark.
    let failed = continued(&provider, async || {}, true).await;
    assert!(matches!(failed, Err(LockError::NoProvider)), "{failed:?}");
    assert_eq!(commands.count(Purpose::Mark), 1);
}

#[distributed_lock(name = "continued", once = true, on_lost = "continue", provider = provider)]
async fn continued(
    provider: &LockProvider,
    before_end: impl AsyncFnOnce(),
    fails: bool,
) -> Result<(), LockError> {
    before_end().await;
    if fails { Err(LockError::NoProvider) } else { Ok(()) }
}

/// Waits until a period has just begun by the server's clock.
async fn until_next_period(provider: &LockProvider, period: Duration) {
    let clock = provider.lock("clock").await.unwrap();
    let info = provider.admin().get("clock").await.unwrap().unwrap();
    clock.release().await.unwrap();
    let millis = i64::try_from(period.as_millis()).unwrap();
    let left = millis - info.acquired_at.timestamp_millis().rem_euclid(millis);
    sleep(Duration::from_millis(left.unsigned_abs() + 50)).await;
}

/// The last claim of a period is granted in the next one, and would use it up. The reply to the first claim is late, so
/// that this process believes that its period still runs when the server grants the lock.
#[tokio::test]
async fn a_grant_after_the_end_of_the_period_is_released() {
    let it = Proxied::start(DEFAULT_EXPIRY).await;
    let (direct, period) = (it.rival(), Duration::from_secs(6));
    until_next_period(&direct, period).await;
    let holder = direct.lock("tick").acquire().await.unwrap();
    let fault = Fault::delay_reply(Duration::from_millis(1900)).command(Purpose::Acquire);
    let late = it.proxy.inject(fault);
    let lock = it.provider.lock("tick").once_per(period);
    let waiting = tokio::spawn(async move { lock.run(async |_| Ok::<_, LockError>(())).await });
    until_next_period(&direct, period).await;
    assert_eq!(late.hits(), 1);
    holder.release().await.unwrap();
    let outcome = timeout(BEFORE_EXPIRY, waiting).await.unwrap().unwrap();
    assert!(matches!(outcome, Err(LockError::Timeout { .. })), "{outcome:?}");
    // The next period is not used up.
    let next = timeout(BEFORE_EXPIRY, direct.lock("tick").once_per(period).acquire()).await;
    next.unwrap().unwrap().done().await.unwrap();
}
