//! Commits that mark the work of the lock as done in the same transaction.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::ClientSession;
use mongodb::bson::doc;
use mongodb::error::TRANSIENT_TRANSACTION_ERROR;
use mongodb::options::{Acknowledgment, WriteConcern};
use mongolock::{DistributedLock, LockContext, LockError, LockGuard, LockState};
use mongolock_tests::{AMPLE, FailPoint, eventually, must};
use tokio::time::sleep;

use super::{
    accounts, begin, begin_with, failing_session, holder_in_transaction, insert, is_committed, prepared,
    session, slow_session,
};
use crate::fixture::{Fixture, in_time, refused_option, renewing};

/// Inserts account 1 and marks the work as done with one transaction, which is repeated after a renewal.
async fn done(fixture: &Fixture, guard: &LockGuard, session: &mut ClientSession) -> Result<(), LockError> {
    loop {
        begin(fixture, session).await;
        match guard.context().commit_done(session).await {
            Err(LockError::Mongo(error)) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) => {}
            ended => return ended,
        }
    }
}

async fn is_done(lock: DistributedLock) -> bool {
    matches!(lock.once().acquire().await, Err(LockError::Done { .. }))
}

/// After the commit the hold has ended well: the body goes on for longer than a lease, and no second mark is written.
#[tokio::test]
async fn a_commit_marks_the_work_as_done() {
    let fixture = prepared().await;
    let expiry = Duration::from_secs(2);
    let lock = fixture.provider.lock("a").expiry(expiry).once();
    let body = async |context: LockContext| {
        let mut session = session(&fixture).await;
        begin(&fixture, &mut session).await;
        context.commit_done(&mut session).await?;
        let marked = fixture.document("a").await.unwrap();
        assert!(context.is_lost(), "the hold has ended");
        sleep(expiry * 5 / 4).await;
        assert_eq!(fixture.document("a").await.unwrap(), marked);
        Ok::<_, LockError>(7)
    };
    assert_eq!(in_time(lock.run(body)).await.unwrap(), 7);
    assert!(is_committed(&fixture).await);
    assert_eq!(fixture.info("a").await.state, LockState::Done);
    assert!(is_done(lock).await);
}

/// The period has ended: what the transaction has written stays, and the lock is free.
#[tokio::test]
async fn after_the_period_the_lock_is_released() {
    let period = Duration::from_secs(1);
    let fixture = prepared().await;
    let lock = fixture.provider.lock("a").once_per(period);
    // A call that begins at the end of a period gets no lock.
    let within_period = async || lock.acquire().await.ok();
    let guard = must(eventually(AMPLE, "a call within its period", within_period).await);
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    sleep(period + Duration::from_millis(50)).await;
    guard.context().commit_done(&mut session).await.unwrap();
    assert!(is_committed(&fixture).await);
    assert_eq!(fixture.info("a").await.state, LockState::Released);
    guard.release().await.expect("the hold has ended well");
}

#[tokio::test]
async fn a_lock_without_once_commits_nothing() {
    let (fixture, guard, mut session) = holder_in_transaction(|lock| lock).await;
    let refused = guard.context().commit_done(&mut session).await;
    assert_eq!(refused_option(refused), "once");
    assert!(!is_committed(&fixture).await);
    let next = session.start_transaction().await;
    next.expect("the transaction has ended");
    guard.release().await.unwrap();
}

/// A replica set with one member can never confirm a transaction for two: the server has committed it all the same. The work is
/// marked, and the holder knows it.
#[tokio::test]
async fn a_commit_whose_write_concern_cannot_be_met_has_ended_the_hold() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").once().acquire().await.unwrap();
    let mut session = session(&fixture).await;
    let two = WriteConcern::builder().w(Acknowledgment::Nodes(2)).build();
    session.start_transaction().write_concern(two).await.unwrap();
    insert(&accounts(&fixture), &mut session, 1).await.unwrap();
    let ended = guard.context().commit_done(&mut session).await;
    let is_plain = matches!(&ended, Err(LockError::Mongo(error)) if error.labels().is_empty());
    assert!(is_plain, "{ended:?}");
    assert!(is_committed(&fixture).await);
    assert!(guard.is_lost());
    assert!(!fixture.is_free("a").await);
    guard.release().await.expect("the hold has ended well");
}

/// Data and mark are one: after a commit that the server has aborted the hold goes on, and the transaction is repeated under it.
#[tokio::test]
async fn an_aborted_commit_leaves_the_hold_to_a_repetition() {
    const NO_SUCH_TRANSACTION: i32 = 251;
    let fixture = prepared().await;
    let aborted = FailPoint::on(&["commitTransaction"]).error_code(NO_SUCH_TRANSACTION);
    let aborted = aborted.error_labels(&[TRANSIENT_TRANSACTION_ERROR]).times(2);
    // A fail point is enabled when no other test uses one, so nothing is held while this test waits for that.
    let (mut session, failing) = failing_session(&fixture, aborted).await;
    let client = session.client().clone();
    let guard = fixture.provider.lock("a").once().acquire().await.unwrap();
    let held = fixture.document("a").await.unwrap();
    begin(&fixture, &mut session).await;
    let refused = guard.context().commit_done(&mut session).await;
    let is_transient =
        matches!(&refused, Err(LockError::Mongo(error)) if error.contains_label(TRANSIENT_TRANSACTION_ERROR));
    assert!(is_transient, "{refused:?}");
    // What the fail point has left open ends with the session.
    drop(session);
    guard.ensure_held().unwrap();
    assert_eq!(fixture.document("a").await.unwrap(), held);
    assert!(!is_committed(&fixture).await);

    let mut session = client.start_session().await.unwrap();
    // It is aborted once more.
    let repeated = done(&fixture, &guard, &mut session).await;
    must(failing.clear().await);
    repeated.unwrap();
    assert!(is_committed(&fixture).await);
    assert!(is_done(fixture.rival().lock("a")).await);
    guard.release().await.unwrap();
}

/// The outcome of the commit is not known, and the server has made it: the renewal that finds the mark says so, and the hold has
/// ended well.
#[tokio::test]
async fn a_commit_without_a_known_outcome_is_decided_while_the_hold_lasts() {
    const MAX_TIME_EXPIRED: i32 = 50;
    let fixture = prepared().await;
    let unconfirmed = FailPoint::on(&["commitTransaction"])
        .write_concern_error(MAX_TIME_EXPIRED, "operation exceeded time limit");
    let (mut session, failing) = failing_session(&fixture, unconfirmed).await;
    let often = renewing(&fixture.provider, Duration::from_millis(200));
    let lock = often.lock("a").expiry(Duration::from_secs(2)).once();
    let guard = lock.acquire().await.unwrap();
    let ended = done(&fixture, &guard, &mut session).await;
    must(failing.clear().await);
    ended.expect("the work is marked as done");
    assert!(is_committed(&fixture).await);
    assert!(is_done(fixture.rival().lock("a")).await);
    assert!(guard.is_lost(), "the hold has ended");
    guard.release().await.expect("the hold has ended well");
}

/// Two transactions under one hold, committed at the same time: one of them takes effect, and its success stays.
#[tokio::test]
async fn of_two_commits_at_a_time_one_is_made() {
    let fixture = prepared().await;
    for number in 0..10 {
        let lock = fixture.provider.lock(format!("work:{number}")).once();
        let guard = lock.acquire().await.unwrap();
        let (mut first, mut second) = (session(&fixture).await, session(&fixture).await);
        begin_with(&fixture, &mut first, 2 * number).await;
        begin_with(&fixture, &mut second, 2 * number + 1).await;
        let context = guard.context();
        let both = tokio::join!(context.commit_done(&mut first), context.commit_done(&mut second));
        let made = [&both.0, &both.1].map(|ended| u64::from(ended.is_ok()));
        assert_eq!(made.iter().sum::<u64>(), 1, "{both:?}");
        guard.release().await.expect("the hold has ended well");
        let committed = accounts(&fixture).count_documents(doc! {}).await.unwrap();
        assert_eq!(committed, u64::try_from(number).unwrap() + 1);
        // Later commits are refused.
        let late = context.commit_done(&mut first).await;
        assert!(matches!(late, Err(LockError::NoTransaction { .. })), "{late:?}");
        begin_with(&fixture, &mut second, 1000).await;
        let late = context.commit_done(&mut second).await;
        assert!(matches!(late, Err(LockError::Lost { .. })), "{late:?}");
    }
}

/// The lease ends during a slow commit, or the provider is shut down: the commit decides, and the work is done.
#[tokio::test]
async fn a_slow_commit_outlives_the_lease_and_a_shutdown() {
    join_all([false, true].map(async |shuts_down| {
        let fixture = prepared().await;
        let (mut session, blocking) = slow_session(&fixture).await;
        let lock = fixture.provider.lock("a").expiry(Duration::from_secs(2)).once();
        let guard = lock.acquire().await.unwrap();
        let shutdown = async {
            if shuts_down {
                sleep(Duration::from_millis(500)).await;
                fixture.provider.shutdown().await;
            }
        };
        let committing = async { tokio::join!(done(&fixture, &guard, &mut session), shutdown) };
        in_time(committing).await.0.unwrap();
        must(blocking.clear().await);
        guard.release().await.expect("the hold has ended well");
        assert!(is_committed(&fixture).await);
        assert!(is_done(fixture.rival().lock("a")).await);
    }))
    .await;
}
