//! The lock is lost, or another process has acquired it, before the commit: nothing is committed.

use std::time::Duration;

use mongodb::bson::doc;
use mongolock::LockError;
use tokio::time::sleep;

use super::{Way, accounts, begin, insert, is_committed, prepared, refused_as_lost, session, take_over};
/// A rival acquires the lock before the transaction began, which then sees the rival's claim, or after that: the transaction
/// still sees the holder's own claim, and the guard is a write conflict.
#[tokio::test]
async fn a_takeover_is_a_loss() {
    for (way, before) in Way::ALL.into_iter().flat_map(|way| [(way, true), (way, false)]) {
        let fixture = prepared().await;
        let guard = way.lock(&fixture, "a").await.unwrap();
        let mut session = session(&fixture).await;
        if !before {
            begin(&fixture, &mut session).await;
        }
        let rival = take_over(&fixture, "a").await;
        if before {
            begin(&fixture, &mut session).await;
        }
        refused_as_lost(way, &fixture, &guard, &mut session).await;
        let released = rival.release().await;
        released.expect("the refused commit changed nothing of its lock");
    }
}

/// The read that distinguishes a takeover from a renewal has the read concern `local`: the rival holds the lock,
/// whether a majority has confirmed it yet or not.
#[tokio::test]
async fn the_read_after_a_conflict_does_not_wait_for_a_majority() {
    for way in Way::ALL {
        let fixture = prepared().await;
        let (provider, commands) = fixture.recorded(|builder| builder).await;
        let guard = provider.lock("a").once().acquire().await.unwrap();
        let mut session = session(&fixture).await;
        begin(&fixture, &mut session).await;
        let rival = take_over(&fixture, "a").await;
        refused_as_lost(way, &fixture, &guard, &mut session).await;
        let mut sent = commands.take();
        sent.retain(|command| command.contains_key("find"));
        let [look] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(look.get_str("find"), Ok("distributed_locks"));
        let concern = look.get_document("readConcern").unwrap();
        assert_eq!(concern.get_str("level"), Ok("local"), "{look}");
        rival.release().await.unwrap();
    }
}

/// A rival has acquired and released the lock, or its document was deleted.
#[tokio::test]
async fn a_commit_whose_claim_is_gone_is_a_loss() {
    for way in Way::ALL {
        let fixture = prepared().await;
        let mut session = session(&fixture).await;
        let guard = way.lock(&fixture, "a").await.unwrap();
        begin(&fixture, &mut session).await;
        take_over(&fixture, "a").await.release().await.unwrap();
        refused_as_lost(way, &fixture, &guard, &mut session).await;
        session.abort_transaction().await.unwrap();

        let guard = way.lock(&fixture, "b").await.unwrap();
        begin(&fixture, &mut session).await;
        fixture.locks().delete_one(doc! { "_id": "b" }).await.unwrap();
        refused_as_lost(way, &fixture, &guard, &mut session).await;
    }
}

/// The lease is over by the holder's own clock: the server is not asked.
#[tokio::test]
async fn a_lost_lock_commits_nothing() {
    for way in Way::ALL {
        let fixture = prepared().await;
        let lock = way.lock(&fixture, "a").expiry(Duration::from_millis(200));
        let guard = lock.max_hold(Duration::ZERO).acquire().await.unwrap();
        let mut session = session(&fixture).await;
        begin(&fixture, &mut session).await;
        guard.lost().await;
        refused_as_lost(way, &fixture, &guard, &mut session).await;
    }
}

/// Between the guard and the commit no rival can acquire the lock, even if its lease had ended before.
#[tokio::test]
async fn no_rival_acquires_between_guard_and_commit() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let held = || doc! { "_id": "a" };
    let set_end = |end: i64| vec![doc! { "$set": { "expiresAt": { "$add": ["$$NOW", end] } } }];
    fixture.locks().update_one(held(), set_end(-1000)).await.unwrap();
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    // The write of the guard, without the commit.
    let locks = fixture.locks();
    let touching = locks.update_one(held(), set_end(30_000));
    let touched = touching.session(&mut session).await.unwrap();
    assert_eq!(touched.modified_count, 1);
    let rival = fixture.rival().lock("a");
    let taking = tokio::spawn(async move { rival.try_acquire().await });
    sleep(Duration::from_millis(300)).await;
    assert!(!taking.is_finished(), "it waits for the end of the transaction");
    session.commit_transaction().await.unwrap();
    assert!(taking.await.unwrap().unwrap().is_none(), "the lease was renewed");
    guard.release().await.unwrap();
}

/// A loss keeps its type when it passes through the callback of the driver.
#[tokio::test]
async fn a_loss_keeps_its_type_in_the_callback_of_the_driver() {
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
    assert_eq!(made, 1, "the transaction is not repeated");
    assert!(!is_committed(&fixture).await);
    rival.release().await.unwrap();
}
