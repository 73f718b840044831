//! The cost of the statement that guards a commit, and its effect on the document of the lock.

use std::time::Duration;

use mongodb::bson::doc;
use mongolock::LockError;
use mongolock_tests::{AMPLE, change_lock, eventually, must, names, recorded};
use tokio::time::{Instant, sleep};

use super::{accounts, begin, begin_with, holder_in_transaction, is_committed, prepared, session, take_over};
use crate::fixture::renewing;
use crate::observer::millis;

#[tokio::test]
async fn a_guarded_commit_renews_the_lease() {
    let (fixture, guard, mut session) = holder_in_transaction(|lock| lock).await;
    let acquired = fixture.document("a").await.unwrap();
    // Without a renewal the guard moves the end as well, by a millisecond.
    let pause = Duration::from_millis(100);
    sleep(pause).await;
    guard.context().commit(&mut session).await.unwrap();
    assert!(is_committed(&fixture).await);
    let committed = fixture.document("a").await.unwrap();
    let moved = millis(&committed, "expiresAt") - millis(&acquired, "expiresAt");
    assert!(moved >= 90, "by {moved} ms after {pause:?}");
    for same in ["_id", "lockId", "acquiredAt", "fencingToken"] {
        assert_eq!(committed.get(same), acquired.get(same));
    }
    guard.release().await.unwrap();
}

/// The guard is one statement, the last one before the commit.
#[tokio::test]
async fn the_guard_costs_one_statement() {
    let fixture = prepared().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let mut session = database.client().start_session().await.unwrap();
    begin(&fixture, &mut session).await;
    guard.context().commit(&mut session).await.unwrap();
    let sent = commands.take();
    assert_eq!(names(&sent), ["insert", "update", "commitTransaction"]);
    assert_eq!(sent[1].get_str("update"), Ok("distributed_locks"));
    guard.release().await.unwrap();
}

/// The guard always moves the end of the lease forward: a write that changes nothing would not conflict with others.
#[tokio::test]
async fn the_guard_always_changes_the_document() {
    let (fixture, guard, mut session) = holder_in_transaction(|lock| lock).await;
    session.abort_transaction().await.unwrap();
    let far = doc! { "$set": { "expiresAt": { "$add": ["$$NOW", 3_600_000] } } };
    change_lock(fixture.database(), "a", far).await;
    let before = fixture.millis("a", "expiresAt").await;
    begin(&fixture, &mut session).await;
    guard.context().commit(&mut session).await.unwrap();
    assert_eq!(fixture.millis("a", "expiresAt").await, before + 1);
    guard.release().await.unwrap();
}

/// Each lock of a set has a claim of its own if they came one after the other. All of them guard the commit.
#[tokio::test]
async fn a_set_guards_a_commit_by_each_of_its_locks() {
    let fixture = prepared().await;
    for lost in [None, Some("a"), Some("b")] {
        let held = fixture.rival().lock("b").await.unwrap();
        let set = fixture.provider.lock_all(["a", "b"]).acquire_timeout(AMPLE);
        let waiting = tokio::spawn(set.acquire());
        let has_first = async || (!fixture.is_free("a").await).then_some(());
        must(eventually(AMPLE, "the set has its first lock", has_first).await);
        held.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        let mut session = session(&fixture).await;
        begin(&fixture, &mut session).await;
        if let Some(name) = lost {
            assert!(fixture.rival().admin().force_release(name).await.unwrap());
        }
        let committed = guard.context().commit(&mut session).await;
        match lost {
            None => committed.unwrap(),
            Some(_) => assert!(matches!(committed, Err(LockError::Lost { .. })), "{committed:?}"),
        }
        assert_eq!(is_committed(&fixture).await, lost.is_none(), "{lost:?}");
        accounts(&fixture).delete_many(doc! {}).await.unwrap();
        // A set that has lost a lock says so.
        assert_eq!(guard.release().await.is_ok(), lost.is_none(), "{lost:?}");
    }
}

/// The guard locks the document only during the commit: a long transaction does not block the renewal of other locks.
#[tokio::test]
async fn a_long_transaction_delays_no_renewal() {
    let (fixture, guarded, mut session) = holder_in_transaction(|lock| lock).await;
    let often = renewing(&fixture.provider, Duration::from_millis(100));
    let other = often.lock("other").expiry(Duration::from_secs(3)).acquire();
    let (other, begun) = (other.await.unwrap(), Instant::now());
    let renewed = async || {
        let document = fixture.document("other").await.unwrap();
        let lasts = millis(&document, "expiresAt") - millis(&document, "acquiredAt");
        (lasts > 3000 + 1000).then_some(())
    };
    must(eventually(AMPLE, "renewals for a second", renewed).await);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    guarded.context().commit(&mut session).await.unwrap();
    assert!(is_committed(&fixture).await);
    guarded.release().await.unwrap();
    other.release().await.unwrap();
}

/// After `max_hold` the guard does not renew the lease, but it still changes the document.
#[tokio::test]
async fn the_guard_works_after_max_hold() {
    let (fixture, guard, mut session) = holder_in_transaction(|lock| lock.max_hold(Duration::ZERO)).await;
    let before = fixture.millis("a", "expiresAt").await;
    guard.context().commit(&mut session).await.unwrap();
    assert_eq!(fixture.millis("a", "expiresAt").await, before + 1);
    assert!(guard.remaining() < Duration::from_secs(30));

    begin_with(&fixture, &mut session, 2).await;
    let rival = take_over(&fixture, "a").await;
    let refused = guard.context().commit(&mut session).await;
    assert!(matches!(refused, Err(LockError::Lost { .. })), "{refused:?}");
    rival.release().await.unwrap();
}
