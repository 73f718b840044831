//! Marks of finished work whose requests or replies are lost: from the success on, every ending writes the mark.

use std::time::Duration;

use mongodb::Database;
use mongodb::bson::doc;
use mongolock::{DistributedLock, LockError, LockProvider, LockState};
use mongolock_tests::{
    AMPLE, BEFORE_EXPIRY, FailPoint, Fault, Proxy, TestDb, change_lock, eventually, must, test_db,
};
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use crate::actor::{Actor, Part, order, say};
use crate::{STEPPED_DOWN, document, fail, through_proxy, warm_up};

/// A lease that ends several times while a reply of 2 s is missing, and is renewed often.
const SHORT: Duration = Duration::from_millis(1500);

fn unfair(database: &Database, owner: &str) -> LockProvider {
    let builder = LockProvider::builder(database).owner(owner).fair(false);
    builder.build().unwrap()
}

/// A provider through a proxy, whose connections exist.
async fn worker(db: &TestDb) -> (Proxy, LockProvider) {
    let (proxy, database) = through_proxy(db).await;
    let provider = unfair(&database, "worker");
    warm_up(&provider).await;
    (proxy, provider)
}

/// The lock of the test with a short lease.
fn tick(provider: &LockProvider) -> DistributedLock {
    provider
        .lock("tick")
        .expiry(SHORT)
        .renew_interval(SHORT / 5)
        .once()
}

async fn state(provider: &LockProvider) -> LockState {
    provider
        .admin()
        .get("tick")
        .await
        .unwrap()
        .expect("it has a document")
        .state
}

async fn assert_done_by_worker(db: &TestDb) {
    let outcome = unfair(db.database(), "other").lock("tick").once().acquire().await;
    assert!(
        matches!(&outcome, Err(LockError::Done { by, .. }) if by == "worker"),
        "{:?}",
        outcome.err()
    );
}

/// The server has written the mark, and its reply is lost. The lease is renewed meanwhile: a renewal that does not find the
/// claim is no loss, and the repetition finds the mark.
#[tokio::test]
async fn a_mark_whose_reply_was_lost_is_recognised() {
    let db = test_db().await;
    let (proxy, provider) = worker(&db).await;
    let guard = tick(&provider).acquire().await.unwrap();
    let context = guard.context();
    let lost = proxy.inject(Fault::swallow_reply().command("findAndModify"));
    let renewals = proxy.seen("update");
    let watching = tokio::spawn(async move { context.lost().await });
    guard.done().await.expect("the repetition finds the mark");
    assert_eq!(lost.hits(), 1);
    assert!(
        proxy.seen("update") > renewals + 1,
        "the lease was renewed meanwhile"
    );
    timeout(AMPLE, watching).await.unwrap().unwrap();
    assert_eq!(state(&provider).await, LockState::Done);
    assert_done_by_worker(&db).await;
}

/// No request for the mark reaches the server for longer than the lease lasts: it is renewed, and a waiting instance does
/// not run the work.
#[tokio::test]
async fn a_hold_is_renewed_until_its_mark_is_confirmed() {
    let db = test_db().await;
    let (proxy, provider) = worker(&db).await;
    let guard = tick(&provider).acquire().await.unwrap();
    let waiting = tick(&unfair(db.database(), "other"));
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    let lost = proxy.inject(Fault::swallow_request().command("findAndModify").times(2));
    guard.done().await.unwrap();
    assert_eq!(lost.hits(), 2);
    let outcome = timeout(BEFORE_EXPIRY, waiting).await.unwrap().unwrap();
    assert!(
        matches!(outcome, Err(LockError::Done { .. })),
        "the other instance runs the work again"
    );
}

/// The provider is shut down, and the caller has gone, while the mark is without a reply.
#[tokio::test]
async fn a_shutdown_waits_for_a_mark_and_releases_nothing() {
    let db = test_db().await;
    let (proxy, provider) = worker(&db).await;
    let guard = tick(&provider).acquire().await.unwrap();
    let lost = proxy.inject(Fault::swallow_request().command("findAndModify"));
    let done = timeout(Duration::from_millis(100), guard.done()).await;
    assert!(done.is_err(), "the caller leaves before the reply");
    timeout(AMPLE, provider.shutdown()).await.unwrap();
    assert_eq!(lost.hits(), 1);
    assert_done_by_worker(&db).await;
}

/// The reply to the body's success is lost in the same way for a body that `run` runs; the call is successful.
#[tokio::test]
async fn a_run_whose_mark_is_repeated_succeeds() {
    let db = test_db().await;
    let (proxy, provider) = worker(&db).await;
    let body = async |_| {
        proxy.inject(Fault::drop_reply().command("findAndModify"));
        Ok::<_, LockError>(7)
    };
    assert_eq!(tick(&provider).run(body).await.unwrap(), 7);
    assert_done_by_worker(&db).await;
}

/// The period ends while the reply to the first request is missing. That request has released the lock, and the repetition
/// finds no claim: this is no loss.
#[tokio::test]
async fn a_release_at_the_end_of_the_period_is_no_loss() {
    let db = test_db().await;
    let (proxy, provider) = worker(&db).await;
    let period = Duration::from_secs(1);
    let guard = provider.lock("tick").once_per(period).acquire().await.unwrap();
    sleep(period + Duration::from_millis(50)).await;
    let lost = proxy.inject(Fault::swallow_reply().command("findAndModify"));
    guard
        .done()
        .await
        .expect("an earlier request has released the lock");
    assert_eq!(lost.hits(), 1);
    assert_eq!(document(db.database(), "tick").await.get_str("lockId"), Ok(""));
}

/// An election interrupts the mark.
#[tokio::test]
async fn a_mark_is_repeated_after_a_failover() {
    let db = test_db().await;
    let provider = unfair(db.database(), "worker");
    warm_up(&provider).await;
    let guard = tick(&provider).acquire().await.unwrap();
    let point = FailPoint::on(&["findAndModify"])
        .times(3)
        .error_code(STEPPED_DOWN);
    let point = fail(&db, point).await;
    guard.done().await.unwrap();
    drop(point);
    assert_eq!(state(&provider).await, LockState::Done);
}

/// The claim is gone when the mark is requested: the work may be done again, and the caller learns of it.
#[tokio::test]
async fn a_mark_without_a_claim_is_a_loss() {
    let db = test_db().await;
    let provider = unfair(db.database(), "worker");
    warm_up(&provider).await;
    let guard = provider.lock("tick").once().acquire().await.unwrap();
    change_lock(db.database(), "tick", doc! { "$set": { "lockId": "other#1" } }).await;
    let outcome = guard.done().await;
    assert!(matches!(outcome, Err(LockError::Lost { .. })), "{outcome:?}");
    assert_eq!(
        document(db.database(), "tick").await.get_str("lockId"),
        Ok("other#1")
    );
}

/// A late acquire request of a run that is done takes effect after the period: it is released, and keeps nobody out.
#[tokio::test]
async fn a_late_claim_after_the_mark_is_released() {
    let db = test_db().await;
    let (proxy, provider) = worker(&db).await;
    let period = Duration::from_secs(5);
    let late = proxy.inject(Fault::late_request(Duration::from_secs(8)).command("findAndModify"));
    let lock = provider
        .lock("tick")
        .once_per(period)
        .expiry(Duration::from_secs(60));
    let guard = timeout(AMPLE, lock.acquire()).await.unwrap().unwrap();
    assert_eq!(late.hits(), 1);
    guard.done().await.unwrap();
    let ghost = async || {
        let document = document(db.database(), "tick").await;
        document
            .get_str("lockId")
            .is_ok_and(|id| id.starts_with("worker#"))
            .then_some(())
    };
    must(eventually(AMPLE, "the late request takes effect", ghost).await);
    let free = async || {
        let other = unfair(db.database(), "other").lock("tick").try_acquire().await;
        other.unwrap()
    };
    let next = must(eventually(BEFORE_EXPIRY, "the release of the late claim", free).await);
    next.release().await.unwrap();
}

/// The last claim of a period is granted in the next one, and would use it up. The reply to the first claim is late, so
/// that this process believes that its period still runs when the server grants the lock.
#[tokio::test]
async fn a_grant_after_the_end_of_the_period_is_released() {
    let db = test_db().await;
    let (proxy, provider) = worker(&db).await;
    let (direct, period) = (unfair(db.database(), "other"), Duration::from_secs(6));
    let millis = i64::try_from(period.as_millis()).unwrap();
    let server_time = async || {
        let clock = direct.lock("clock").await.unwrap();
        let info = direct.admin().get("clock").await.unwrap().unwrap();
        clock.release().await.unwrap();
        info.acquired_at.timestamp_millis()
    };
    let left = async || millis - server_time().await.rem_euclid(millis);
    sleep(Duration::from_millis(left().await.unsigned_abs() + 100)).await;

    let holder = direct.lock("tick").acquire().await.unwrap();
    let late = proxy.inject(Fault::delay_reply(Duration::from_millis(1900)).command("findAndModify"));
    let lock = provider.lock("tick").once_per(period);
    let waiting = tokio::spawn(async move { lock.run(async |_| Ok::<_, LockError>(())).await });
    sleep(Duration::from_millis(left().await.unsigned_abs() + 50)).await;
    assert_eq!(late.hits(), 1);
    holder.release().await.unwrap();
    let outcome = timeout(BEFORE_EXPIRY, waiting).await.unwrap().unwrap();
    assert!(matches!(outcome, Err(LockError::Timeout { .. })), "{outcome:?}");
    // The next period is not used up.
    let next = timeout(BEFORE_EXPIRY, direct.lock("tick").once_per(period).acquire()).await;
    next.unwrap().unwrap().done().await.unwrap();
}

/// The process is stopped after the end of its work and before the request for the mark, for longer than its lease lasts:
/// another instance does the work, and the late mark neither replaces its mark nor counts as one.
#[tokio::test]
async fn a_mark_after_a_long_pause_is_a_loss() {
    let db = test_db().await;
    let expiry = Duration::from_secs(2);
    let mut stopped = Actor::start("marks::finish_when_told", &db, expiry, &[]);
    stopped.until("finished").await;
    stopped.signal(Signal::STOP);
    let worker = unfair(db.database(), "worker");
    let guard = timeout(AMPLE, worker.lock("tick").once().acquire())
        .await
        .unwrap();
    guard.unwrap().done().await.unwrap();
    let marked = document(db.database(), "tick").await;
    stopped.send("done").await;
    stopped.signal(Signal::CONT);
    stopped.until("lost").await;
    assert_eq!(document(db.database(), "tick").await, marked);
    assert_done_by_worker(&db).await;
}

/// A part: a process that has done its work, and marks it as done when it is told to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finish_when_told() {
    let Some(Part { database, expiry }) = Part::given().await else {
        return;
    };
    let provider = unfair(&database, "stopped");
    let guard = provider
        .lock("tick")
        .expiry(expiry)
        .once()
        .acquire()
        .await
        .unwrap();
    say("finished");
    order().await;
    match guard.done().await {
        Err(LockError::Lost { .. }) => say("lost"),
        other => say(format_args!("ended {other:?}")),
    }
}
