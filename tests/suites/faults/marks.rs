//! Marks of finished work whose requests or replies are lost: from the success on, every ending writes the mark.

use std::error::Error;
use std::time::Duration;

use mongodb::Database;
use mongodb::bson::doc;
use mongodb::error::ErrorKind;
use mongolock::{DistributedLock, LockError, LockGuard, LockProvider, LockState, distributed_lock};
use mongolock_tests::{
    AMPLE, BEFORE_EXPIRY, FailPoint, Fault, Proxy, Purpose, TestDb, change_lock, eventually, must, order,
    recorded, say, test_db,
};
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use crate::actor::{Part, start};
use crate::{STEPPED_DOWN, assert_free, document, fail, through_proxy, warm_up};

/// A lease that is renewed several times within the 2 s after which a request is repeated, and ends before a second
/// repetition.
const SHORT: Duration = Duration::from_secs(3);

/// A period that a test waits for, and that is long enough for what happens in it.
const PERIOD: Duration = Duration::from_secs(6);

/// The error codes of a document that a validator refuses, and of a collection that cannot have its name: they do not pass.
const DOCUMENT_VALIDATION: i32 = 121;
const INVALID_NAMESPACE: i32 = 73;

fn owned(database: &Database, owner: &str) -> LockProvider {
    LockProvider::builder(database).owner(owner).build().unwrap()
}

/// A database, and a provider that reaches it through a proxy, whose connections exist.
async fn worker() -> (TestDb, Proxy, LockProvider) {
    let db = test_db().await;
    let (proxy, database) = through_proxy(&db).await;
    let provider = owned(&database, "worker");
    warm_up(&provider).await;
    (db, proxy, provider)
}

/// The lock of the test with a short lease.
fn tick(provider: &LockProvider) -> DistributedLock {
    provider.lock("tick").expiry(SHORT).once()
}

/// Whether the server has refused the mark with this error.
fn is_refused(outcome: &Result<(), LockError>, code: i32) -> bool {
    let Err(error) = outcome else { return false };
    assert!(
        error.to_string().contains("so its work will run again"),
        "{error}"
    );
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    let Some(LockError::Mongo(error)) = cause else {
        return false;
    };
    matches!(&*error.kind, ErrorKind::Command(error) if error.code == code)
}

async fn state(provider: &LockProvider) -> LockState {
    let info = provider.admin().get("tick").await.unwrap();
    info.expect("it has a document").state
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

async fn assert_done_by_worker(db: &TestDb) {
    let outcome = owned(db.database(), "other").lock("tick").once().acquire().await;
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
    let (db, proxy, provider) = worker().await;
    let guard = tick(&provider).acquire().await.unwrap();
    let context = guard.context();
    let lost = proxy.inject(Fault::swallow_reply().command(Purpose::Mark));
    let renewals = proxy.seen(Purpose::Renew);
    let watching = tokio::spawn(async move { context.lost().await });
    guard.done().await.expect("the repetition finds the mark");
    assert_eq!(lost.hits(), 1);
    assert!(
        proxy.seen(Purpose::Renew) > renewals + 1,
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
    let (db, proxy, provider) = worker().await;
    let guard = tick(&provider).acquire().await.unwrap();
    let waiting = tick(&owned(db.database(), "other"));
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    let lost = proxy.inject(Fault::swallow_request().command(Purpose::Mark).times(2));
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
    let (db, proxy, provider) = worker().await;
    let guard = tick(&provider).acquire().await.unwrap();
    let lost = proxy.inject(Fault::swallow_request().command(Purpose::Mark));
    let done = timeout(Duration::from_millis(100), guard.done()).await;
    assert!(done.is_err(), "the caller leaves before the reply");
    timeout(AMPLE, provider.shutdown()).await.unwrap();
    assert_eq!(lost.hits(), 1);
    assert_done_by_worker(&db).await;
}

/// The reply to the body's success is lost in the same way for a body that `run` runs; the call is successful.
#[tokio::test]
async fn a_run_whose_mark_is_repeated_succeeds() {
    let (db, proxy, provider) = worker().await;
    let body = async |_| {
        proxy.inject(Fault::drop_reply().command(Purpose::Mark));
        Ok::<_, LockError>(7)
    };
    assert_eq!(tick(&provider).run(body).await.unwrap(), 7);
    assert_done_by_worker(&db).await;
}

/// The period ends while the reply to the first request is missing. That request has released the lock, and the repetition
/// finds no claim: this is no loss.
#[tokio::test]
async fn a_release_at_the_end_of_the_period_is_no_loss() {
    let (db, proxy, provider) = worker().await;
    let period = Duration::from_secs(1);
    let guard = provider.lock("tick").once_per(period).acquire().await.unwrap();
    sleep(period + Duration::from_millis(50)).await;
    let lost = proxy.inject(Fault::swallow_reply().command(Purpose::Mark));
    guard
        .done()
        .await
        .expect("an earlier request has released the lock");
    assert_eq!(lost.hits(), 1);
    assert_eq!(document(db.database(), "tick").await.get_str("lockId"), Ok(""));
}

/// A hold of this provider at the beginning of a period, which an operator has ended through the other one.
async fn taken_away(provider: &LockProvider, other: &LockProvider) -> LockGuard {
    until_next_period(other, PERIOD).await;
    let guard = provider.lock("tick").once_per(PERIOD).acquire().await.unwrap();
    assert!(other.admin().force_release("tick").await.unwrap());
    guard
}

/// The first request for the mark is lost, and the reply to its repetition is that the lock was lost.
async fn assert_repeated_mark_is_lost(proxy: &Proxy, guard: LockGuard) {
    let lost = proxy.inject(Fault::drop_request().command(Purpose::Mark));
    let outcome = guard.done().await;
    assert_eq!(lost.hits(), 1);
    assert!(matches!(outcome, Err(LockError::Lost { .. })), "{outcome:?}");
}

/// An operator takes the lock away, another instance does the work, and its mark ends with the period. The repetition of a
/// lost request finds neither claim nor mark, and must not take that for a release by the first request.
#[tokio::test]
async fn one_instance_at_most_is_told_that_it_has_done_the_work_of_a_period() {
    let (db, proxy, provider) = worker().await;
    let other = owned(db.database(), "other");
    let first = taken_away(&provider, &other).await;
    let second = other.lock("tick").once_per(PERIOD).acquire().await.unwrap();
    second.done().await.unwrap();
    let marked = document(db.database(), "tick").await;
    until_next_period(&other, PERIOD).await;
    assert_repeated_mark_is_lost(&proxy, first).await;
    assert_eq!(document(db.database(), "tick").await, marked);
}

/// The lock is taken away before the end of the period, in which another instance may have done the work.
#[tokio::test]
async fn a_lock_that_was_taken_away_during_its_period_is_lost() {
    let (db, proxy, provider) = worker().await;
    let other = owned(db.database(), "other");
    let guard = taken_away(&provider, &other).await;
    until_next_period(&other, PERIOD).await;
    assert_repeated_mark_is_lost(&proxy, guard).await;
}

/// Another instance has acquired the lock, and releases it after the period: the document looks as after a release by the
/// first request but for its token.
#[tokio::test]
async fn the_release_of_another_instance_is_not_taken_for_ones_own() {
    let (db, proxy, provider) = worker().await;
    let other = owned(db.database(), "other");
    let first = taken_away(&provider, &other).await;
    let second = other.lock("tick").once_per(PERIOD).acquire().await.unwrap();
    until_next_period(&other, PERIOD).await;
    second.release().await.unwrap();
    assert_repeated_mark_is_lost(&proxy, first).await;
}

/// The collection has got a validator that refuses marks. The caller gets the server's error, the request is not repeated,
/// and the lock is released.
#[tokio::test]
async fn a_mark_that_the_server_refuses_for_good_ends_the_hold() {
    let (db, proxy, provider) = worker().await;
    let guard = provider.lock("tick").once().acquire().await.unwrap();
    let context = guard.context();
    let validator = doc! { "lockId": { "$not": { "$regex": "^done:" } } };
    db.set_validator(validator).await;
    let requests = proxy.seen(Purpose::Mark);
    let outcome = guard.done().await;
    assert!(is_refused(&outcome, DOCUMENT_VALIDATION), "{outcome:?}");
    assert!(context.is_lost());
    assert_free(&owned(db.database(), "other"), "tick").await;
    assert_eq!(proxy.seen(Purpose::Mark), requests + 1);
}

/// The work has succeeded, and another instance will do it again: the call does not hide that.
#[tokio::test]
async fn a_run_whose_mark_is_refused_is_no_success() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[]).await;
    let provider = owned(&database, "worker");
    warm_up(&provider).await;
    let refusal = || FailPoint::on(&["findAndModify"]).times(1);
    let refuse = async || fail(&db, refusal().error_code(INVALID_NAMESPACE)).await;

    let mut refusing = None;
    let body = async |_| {
        refusing = Some(refuse().await);
        Ok::<_, LockError>(())
    };
    let outcome = tick(&provider).run(body).await;
    drop(refusing);
    assert!(is_refused(&outcome, INVALID_NAMESPACE), "{outcome:?}");

    for fails in [false, true] {
        commands.clear();
        let mut refusing = None;
        let before_end = async || {
            // The next command of a body that has failed is its release.
            if !fails {
                refusing = Some(refuse().await);
            }
        };
        let outcome = continued(&provider, before_end, fails).await;
        drop(refusing);
        let requests = commands.count(Purpose::Mark);
        if fails {
            assert!(matches!(outcome, Err(LockError::NoProvider)), "{outcome:?}");
            assert_eq!(requests, 0);
        } else {
            assert!(is_refused(&outcome, INVALID_NAMESPACE), "{outcome:?}");
            assert_eq!(requests, 1);
        }
    }
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

/// No reply to any request for the mark arrives while the call waits for one.
#[tokio::test]
async fn a_run_waits_for_a_mark_that_is_late() {
    let (_db, proxy, provider) = worker().await;
    let body = async |_| {
        proxy.inject(Fault::swallow_request().command(Purpose::Mark).times(100));
        Ok::<_, LockError>(())
    };
    let lock = provider.lock("tick").once();
    let trouble = async {
        sleep(Duration::from_secs(8)).await;
        proxy.clear_faults();
    };
    let (outcome, ()) = tokio::join!(lock.run(body), trouble);
    outcome.unwrap();
    assert_eq!(state(&provider).await, LockState::Done);
}

/// An election interrupts the mark. The driver looks for the primary for half a second after each error, so that a short
/// lease could end meanwhile.
#[tokio::test]
async fn a_mark_is_repeated_after_a_failover() {
    let db = test_db().await;
    let provider = owned(db.database(), "worker");
    warm_up(&provider).await;
    let guard = provider.lock("tick").once().acquire().await.unwrap();
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
    let provider = owned(db.database(), "worker");
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

/// A late acquire request of a run that is done takes effect after the period: it is released, or ends by its expiry, and keeps
/// nobody out for long. The mark was written by a command of its own, or by a commit.
#[tokio::test]
async fn a_late_claim_after_the_mark_is_released() {
    tokio::join!(a_late_claim_is_released(false), a_late_claim_is_released(true));
}

async fn a_late_claim_is_released(commits: bool) {
    let (db, proxy, provider) = worker().await;
    let period = Duration::from_secs(5);
    // The request is repeated after two seconds, and no lock is granted after the period.
    until_next_period(&owned(db.database(), "other"), period).await;
    let late = proxy.inject(Fault::late_request(Duration::from_secs(8)).command(Purpose::Acquire));
    let expiry = Duration::from_secs(8);
    let lock = provider.lock("tick").once_per(period).expiry(expiry);
    let guard = timeout(AMPLE, lock.acquire()).await.unwrap().unwrap();
    assert_eq!(late.hits(), 1);
    if commits {
        let mut session = db.database().client().start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        guard.context().commit_done(&mut session).await.unwrap();
        guard.release().await.expect("the hold has ended well");
    } else {
        guard.done().await.unwrap();
    }
    let ghost = async || {
        let document = document(db.database(), "tick").await;
        document
            .get_str("lockId")
            .is_ok_and(|id| id.starts_with("worker#"))
            .then_some(())
    };
    must(eventually(AMPLE, "the late request takes effect", ghost).await);
    assert_free(&owned(db.database(), "other"), "tick").await;
}

/// The last claim of a period is granted in the next one, and would use it up. The reply to the first claim is late, so
/// that this process believes that its period still runs when the server grants the lock.
#[tokio::test]
async fn a_grant_after_the_end_of_the_period_is_released() {
    let (db, proxy, provider) = worker().await;
    let (direct, period) = (owned(db.database(), "other"), Duration::from_secs(6));
    until_next_period(&direct, period).await;

    let holder = direct.lock("tick").acquire().await.unwrap();
    let late = proxy.inject(Fault::delay_reply(Duration::from_millis(1900)).command(Purpose::Acquire));
    let lock = provider.lock("tick").once_per(period);
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

/// The process is stopped after the end of its work and before the request for the mark, for longer than its lease lasts:
/// another instance does the work, and the late mark neither replaces its mark nor counts as one.
#[tokio::test]
async fn a_mark_after_a_long_pause_is_a_loss() {
    let db = test_db().await;
    let expiry = Duration::from_secs(2);
    let mut stopped = start("marks::finish_when_told", &db, expiry, &[]);
    stopped.until("finished").await;
    stopped.signal(Signal::STOP);
    let worker = owned(db.database(), "worker");
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
    let Some(part) = Part::given().await else {
        return;
    };
    let lock = owned(&part.database, "stopped").lock("tick");
    let guard = lock.expiry(part.expiry).once().acquire().await.unwrap();
    say("finished");
    order().await;
    match guard.done().await {
        Err(LockError::Lost { .. }) => say("lost"),
        other => say(format_args!("ended {other:?}")),
    }
}
