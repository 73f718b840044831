//! The lock is lost, or another process has acquired it, before the commit: nothing is committed.

use std::time::Duration;

use mongodb::bson::doc;
use mongolock::{LockError, LockProvider};
use mongolock_tests::recorded;
use tokio::time::sleep;

use super::{
    accounts, begin, holder_in_transaction, insert, is_committed, prepared, refused_as_lost, session,
    take_over,
};

/// Somebody has taken the lock after the transaction began: it sees the holder's own claim still.
#[tokio::test]
async fn a_takeover_after_the_beginning_is_a_conflict() {
    let (fixture, guard, mut session) = holder_in_transaction().await;
    let rival = take_over(&fixture, "a").await;
    refused_as_lost(&fixture, &guard, &mut session).await;
    assert!(!rival.is_lost());
    rival.release().await.expect("nothing of it was touched");
}

/// The look that tells a takeover from a renewal reads what the primary has now: the new holder has the lock whether a
/// majority has confirmed it by then or not.
#[tokio::test]
async fn the_look_after_a_conflict_does_not_wait_for_a_majority() {
    let fixture = prepared().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let guard = LockProvider::new(&database).lock("a").await.unwrap();
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    let rival = take_over(&fixture, "a").await;
    refused_as_lost(&fixture, &guard, &mut session).await;
    let mut sent = commands.take();
    sent.retain(|command| command.contains_key("find"));
    let [look] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(look.get_str("find"), Ok("distributed_locks"));
    let concern = look.get_document("readConcern").unwrap();
    assert_eq!(concern.get_str("level"), Ok("local"), "{look}");
    rival.release().await.unwrap();
}

/// Somebody has taken the lock before the transaction began: it sees his claim.
#[tokio::test]
async fn a_takeover_before_the_beginning_is_seen() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let rival = take_over(&fixture, "a").await;
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    refused_as_lost(&fixture, &guard, &mut session).await;
    rival.release().await.unwrap();
}

/// The lock was taken and is free again, or its document is gone.
#[tokio::test]
async fn a_claim_that_is_gone_is_lost() {
    let fixture = prepared().await;
    let mut session = session(&fixture).await;
    let guard = fixture.provider.lock("a").await.unwrap();
    begin(&fixture, &mut session).await;
    take_over(&fixture, "a").await.release().await.unwrap();
    refused_as_lost(&fixture, &guard, &mut session).await;
    session.abort_transaction().await.unwrap();

    let guard = fixture.provider.lock("b").await.unwrap();
    begin(&fixture, &mut session).await;
    fixture.locks().delete_one(doc! { "_id": "b" }).await.unwrap();
    refused_as_lost(&fixture, &guard, &mut session).await;
}

/// A lease that is over by the holder's own clock: nothing is asked.
#[tokio::test]
async fn a_lost_lock_commits_nothing() {
    let fixture = prepared().await;
    let lock = fixture
        .provider
        .lock("a")
        .expiry(Duration::from_millis(200))
        .max_hold(Duration::ZERO);
    let guard = lock.acquire().await.unwrap();
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    guard.lost().await;
    refused_as_lost(&fixture, &guard, &mut session).await;
}

/// Between the guard and the commit nobody takes the lock, not even when its lease had ended before.
#[tokio::test]
async fn nobody_takes_the_lock_before_the_commit() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let held = || doc! { "_id": "a" };
    let set_end = |end: i64| vec![doc! { "$set": { "expiresAt": { "$add": ["$$NOW", end] } } }];
    fixture.locks().update_one(held(), set_end(-1000)).await.unwrap();
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    // What the guard does, without the commit.
    let touched = fixture
        .locks()
        .update_one(held(), set_end(30_000))
        .session(&mut session)
        .await;
    assert_eq!(touched.unwrap().modified_count, 1);
    let rival = fixture.rival().lock("a");
    let taking = tokio::spawn(async move { rival.try_acquire().await });
    sleep(Duration::from_millis(300)).await;
    assert!(!taking.is_finished(), "it waits for the end of the transaction");
    session.commit_transaction().await.unwrap();
    assert!(taking.await.unwrap().unwrap().is_none(), "the lease was renewed");
    guard.release().await.unwrap();
}

/// An error that passes through the driver's callback is the same at the other end.
#[tokio::test]
async fn a_loss_passes_through_the_driver() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let rival = take_over(&fixture, "a").await;
    let (accounts, lock, mut made) = (accounts(&fixture), guard.context(), 0);
    let refused: mongodb::error::Result<()> = session(&fixture)
        .await
        .start_transaction()
        .and_run2(async |session| {
            made += 1;
            insert(&accounts, session, 1).await?;
            Ok(lock.commit(session).await?)
        })
        .await;
    let refused = LockError::from(refused.unwrap_err());
    assert!(matches!(refused, LockError::Lost { .. }), "{refused:?}");
    assert_eq!(made, 1, "it is not repeated");
    assert!(!is_committed(&fixture).await);
    rival.release().await.unwrap();
}
