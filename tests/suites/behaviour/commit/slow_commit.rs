//! Locks that are lost while a slow commit is running: the body goes on until the commit has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mongodb::ClientSession;
use mongolock::{DistributedLock, LockContext, LockError, distributed_lock};
use mongolock_tests::{AMPLE, must};
use tokio::time::timeout;

use super::{accounts_of, begin, insert, is_committed, prepared, slow_session};
use crate::fixture::Fixture;

#[distributed_lock(name = "transfer", provider = fixture.provider, expiry = "1s")]
async fn transfer(fixture: &Fixture, mut session: ClientSession) -> Result<(), LockError> {
    let (lock, accounts) = (LockContext::current().unwrap(), accounts_of(fixture, &session));
    let transaction = session.start_transaction();
    transaction
        .and_run2(async move |session| {
            insert(&accounts, session, 1).await?;
            Ok(lock.commit(session).await?)
        })
        .await?;
    Ok(())
}

/// The typical use: a transaction under the attribute, in a task, which the driver repeats after transient errors. The lease ends
/// during the commit: the body is not cancelled, and the committed transaction is a success.
#[tokio::test]
async fn a_commit_slower_than_the_lease_succeeds() {
    let fixture = Arc::new(prepared().await);
    let (session, blocking) = slow_session(&fixture).await;
    let own = Arc::clone(&fixture);
    let task = tokio::spawn(async move { transfer(&own, session).await });
    task.await.unwrap().unwrap();
    must(blocking.clear().await);
    assert!(is_committed(&fixture).await);
}

/// The loss of an outer lock does not cancel a commit under an inner lock.
#[tokio::test]
async fn the_loss_of_an_outer_lock_does_not_cancel_a_commit() {
    let fixture = prepared().await;
    let (mut session, blocking) = slow_session(&fixture).await;
    let (outer, inner) = (brief(&fixture, "outer"), fixture.provider.lock("inner"));
    let committed = AtomicBool::new(false);
    let nested = async |_| {
        let commit = inner.run(async |lock| {
            begin(&fixture, &mut session).await;
            lock.commit(&mut session).await?;
            committed.store(true, Ordering::Relaxed);
            Ok::<_, LockError>(())
        });
        commit.await
    };
    let ended = outer.run(nested).await;
    let is_lost = matches!(&ended, Err(LockError::Lost { name, .. }) if name == "outer");
    assert!(is_lost, "{ended:?}");
    assert!(committed.into_inner(), "the body ran to its end");
    must(blocking.clear().await);
    assert!(is_committed(&fixture).await);
}

/// A body that waits for something else is cancelled when the commit in another task has ended.
#[tokio::test]
async fn a_commit_in_another_task_delays_cancellation_only_until_it_ends() {
    let fixture = prepared().await;
    let (mut session, blocking) = slow_session(&fixture).await;
    let (begins, begun) = tokio::sync::oneshot::channel();
    let call = brief(&fixture, "a").run(async |lock| {
        begin(&fixture, &mut session).await;
        tokio::spawn(async move {
            let done = lock.commit(&mut session).await;
            begins.send(done).unwrap();
        });
        std::future::pending::<Result<(), LockError>>().await
    });
    let ended = timeout(AMPLE, call).await.expect("the loss ends the body");
    assert!(matches!(ended, Err(LockError::Lost { .. })), "{ended:?}");
    begun.await.unwrap().expect("the commit had ended by then");
    must(blocking.clear().await);
    assert!(is_committed(&fixture).await);
}

/// A lock that is not renewed, and whose lease of 1 s ends during a slow commit.
fn brief(fixture: &Fixture, name: &str) -> DistributedLock {
    let lock = fixture.provider.lock(name).expiry(Duration::from_secs(1));
    lock.max_hold(Duration::ZERO)
}
