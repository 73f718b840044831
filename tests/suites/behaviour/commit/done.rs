//! Commits that mark the work of the lock as done in the same transaction.

use std::time::Duration;

use mongolock::{LockContext, LockError, LockProvider, LockState};
use mongolock_tests::{AMPLE, names, recorded};
use tokio::time::{sleep, timeout};

use super::{begin, is_committed, prepared, session, take_over};
use crate::fixture::{Fixture, assert_released};

async fn state(fixture: &Fixture) -> LockState {
    let info = fixture.provider.admin().get("a").await.unwrap();
    info.expect("the lock has a document").state
}

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
    assert_eq!(state(&fixture).await, LockState::Done);
    assert!(matches!(lock.acquire().await, Err(LockError::Done { .. })));
}

/// The mark is the last statement of the transaction, and the end of the hold costs no command.
#[tokio::test]
async fn the_mark_costs_one_statement() {
    let fixture = prepared().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let provider = LockProvider::new(&database);
    fixture.until_indexed().await;
    let guard = provider.lock("a").once().acquire().await.unwrap();
    let mut session = database.client().start_session().await.unwrap();
    begin(&fixture, &mut session).await;
    guard.context().commit_done(&mut session).await.unwrap();
    guard.done().await.unwrap();
    let mut sent = commands.take();
    // The index task lists the collections and their indexes.
    sent.retain(|command| !command.keys().any(|key| key.starts_with("list")));
    assert_eq!(
        names(&sent),
        ["findAndModify", "insert", "update", "commitTransaction"]
    );
}

/// The period has ended: what the transaction has written stays, and the lock is free.
#[tokio::test]
async fn after_the_period_the_lock_is_released() {
    let fixture = prepared().await;
    let period = Duration::from_secs(1);
    let guard = fixture
        .provider
        .lock("a")
        .once_per(period)
        .acquire()
        .await
        .unwrap();
    sleep(period + Duration::from_millis(50)).await;
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    guard.context().commit_done(&mut session).await.unwrap();
    assert!(is_committed(&fixture).await);
    assert_eq!(state(&fixture).await, LockState::Released);
    guard.release().await.expect("the hold has ended well");
}

/// Another holder has taken the lock over: neither the work nor the mark is written.
#[tokio::test]
async fn a_takeover_refuses_work_and_mark() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").once().acquire().await.unwrap();
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    let rival = take_over(&fixture, "a").await;
    let refused = guard.context().commit_done(&mut session).await;
    assert!(matches!(refused, Err(LockError::Lost { .. })), "{refused:?}");
    assert!(guard.is_lost());
    assert!(!is_committed(&fixture).await);
    rival
        .release()
        .await
        .expect("the refused commit changed nothing of its lock");
}

/// Without a transaction the statement would take effect at once. It is not sent: the hold goes on, and its end is that of
/// a failed run.
#[tokio::test]
async fn without_a_transaction_there_is_no_mark() {
    let fixture = prepared().await;
    let lock = fixture.provider.lock("a").once();
    let guard = lock.acquire().await.unwrap();
    let mut session = session(&fixture).await;
    let refused = guard.context().commit_done(&mut session).await;
    assert!(
        matches!(refused, Err(LockError::NoTransaction { .. })),
        "{refused:?}"
    );
    guard.ensure_held().unwrap();
    drop(guard);
    let again = timeout(AMPLE, lock.acquire()).await.unwrap().unwrap();
    begin(&fixture, &mut session).await;
    again.context().commit_done(&mut session).await.unwrap();
    assert_eq!(state(&fixture).await, LockState::Done);
}

#[tokio::test]
async fn a_lock_without_once_commits_nothing() {
    let fixture = prepared().await;
    let lock = fixture.provider.lock("a");
    let guard = lock.acquire().await.unwrap();
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    let refused = guard.context().commit_done(&mut session).await;
    assert!(
        matches!(refused, Err(LockError::InvalidOption { option: "once", .. })),
        "{refused:?}"
    );
    assert!(!is_committed(&fixture).await);
    session
        .start_transaction()
        .await
        .expect("the transaction has ended");
    session.abort_transaction().await.unwrap();
    guard.release().await.unwrap();
    assert_released(&lock).await;
}
