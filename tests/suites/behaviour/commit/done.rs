//! Commits that mark the work of the lock as done in the same transaction.

use std::time::Duration;

use mongolock::{LockContext, LockError, LockProvider, LockState};
use mongolock_tests::{AMPLE, names};
use tokio::time::{sleep, timeout};

use super::{begin, holder_in_transaction, is_committed, prepared, session};
use crate::fixture::assert_released;
/// After the commit the hold has ended well: the body goes on for longer than a lease, and no second mark is written.
#[tokio::test]
async fn a_commit_marks_the_work_as_done() {
    let fixture = prepared().await;
    let expiry = Duration::from_secs(3);
    let lock = fixture.provider.lock("a").expiry(expiry).once();
    let body = async |context: LockContext| {
        let mut session = session(&fixture).await;
        begin(&fixture, &mut session).await;
        context.commit_done(&mut session).await?;
        let marked = fixture.document("a").await.unwrap();
        assert!(context.is_lost(), "the hold has ended");
        sleep(expiry * 3 / 2).await;
        assert_eq!(fixture.document("a").await.unwrap(), marked);
        Ok::<_, LockError>(7)
    };
    assert_eq!(timeout(AMPLE, lock.run(body)).await.unwrap().unwrap(), 7);
    assert!(is_committed(&fixture).await);
    assert_eq!(fixture.info("a").await.state, LockState::Done);
    assert!(matches!(lock.acquire().await, Err(LockError::Done { .. })));
}

/// The mark is the last statement of the transaction, and the end of the hold costs no command.
#[tokio::test]
async fn the_mark_costs_one_statement() {
    let fixture = prepared().await;
    let (database, commands) = fixture.recorded_database().await;
    let provider = LockProvider::new(&database);
    let guard = provider.lock("a").once().acquire().await.unwrap();
    let mut session = database.client().start_session().await.unwrap();
    begin(&fixture, &mut session).await;
    guard.context().commit_done(&mut session).await.unwrap();
    guard.done().await.unwrap();
    let mut sent = commands.take();
    // The index task lists the collections and their indexes.
    sent.retain(|command| !command.keys().any(|key| key.starts_with("list")));
    let expected = ["findAndModify", "insert", "update", "commitTransaction"];
    assert_eq!(names(&sent), expected);
}

/// The period has ended: what the transaction has written stays, and the lock is free.
#[tokio::test]
async fn after_the_period_the_lock_is_released() {
    let period = Duration::from_secs(1);
    let (fixture, guard, mut session) = holder_in_transaction(|lock| lock.once_per(period)).await;
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
    assert!(
        matches!(refused, Err(LockError::InvalidOption { option: "once", .. })),
        "{refused:?}"
    );
    assert!(!is_committed(&fixture).await);
    let next = session.start_transaction().await;
    next.expect("the transaction has ended");
    session.abort_transaction().await.unwrap();
    guard.release().await.unwrap();
    assert_released(&fixture.provider.lock("a")).await;
}
