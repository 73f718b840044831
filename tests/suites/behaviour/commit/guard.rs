//! The statement that guards a commit, its effect on the document of the lock, and its cost. If the lock is lost, or another process
//! has acquired it, nothing is committed.

use std::time::Duration;

use mongodb::bson::doc;
use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, change_lock, must, names, until};
use tokio::time::sleep;

use super::{
    Way, accounts, begin, begin_with, holder_in_transaction, insert, is_committed, prepared, session,
    take_over,
};
use crate::fixture::millis;

/// The guard renews the lease. It always moves the end of the lease forward, also of one that ends later, and after `max_hold`: a
/// write that changes nothing would not conflict with others.
#[tokio::test]
async fn a_guarded_commit_renews_the_lease() {
    let hour = 3_600_000;
    for (ends_later, max_hold) in [(0, AMPLE), (hour, AMPLE), (0, Duration::ZERO)] {
        let (fixture, guard, mut session) = holder_in_transaction(|lock| lock.max_hold(max_hold)).await;
        session.abort_transaction().await.unwrap();
        let later = doc! { "$set": { "expiresAt": { "$add": ["$expiresAt", ends_later] } } };
        change_lock(fixture.database(), "a", later).await;
        let before = fixture.document("a").await.unwrap();
        // Without a renewal the guard moves the end as well, by a millisecond.
        sleep(Duration::from_millis(100)).await;
        begin(&fixture, &mut session).await;
        guard.context().commit(&mut session).await.unwrap();
        assert!(is_committed(&fixture).await);
        let committed = fixture.document("a").await.unwrap();
        let moved = millis(&committed, "expiresAt") - millis(&before, "expiresAt");
        let is_renewed = ends_later == 0 && !max_hold.is_zero();
        assert!(if is_renewed { moved >= 90 } else { moved == 1 }, "{moved} ms");
        for same in ["_id", "lockId", "acquiredAt", "fencingToken"] {
            assert_eq!(committed.get(same), before.get(same));
        }
        begin_with(&fixture, &mut session, 2).await;
        let rival = take_over(&fixture, "a").await;
        let refused = guard.context().commit(&mut session).await;
        assert!(matches!(refused, Err(LockError::Lost { .. })), "{refused:?}");
        rival.release().await.unwrap();
    }
}

/// The guard is one statement, the last one before the commit. If it marks the work, the end of the hold costs no command.
#[tokio::test]
async fn the_guard_costs_one_statement() {
    let fixture = prepared().await;
    for way in Way::ALL {
        let (database, commands) = fixture.recorded_database().await;
        let lock = LockProvider::new(&database).lock(format!("{way:?}")).once();
        let guard = lock.acquire().await.unwrap();
        let mut session = database.client().start_session().await.unwrap();
        begin(&fixture, &mut session).await;
        way.commit(&guard.context(), &mut session).await.unwrap();
        if way == Way::Marks {
            guard.done().await.unwrap();
        }
        let mut sent = commands.take();
        // The index task lists the collections and their indexes.
        sent.retain(|command| !command.keys().any(|key| key.starts_with("list")));
        let expected = ["findAndModify", "insert", "update", "commitTransaction"];
        assert_eq!(names(&sent), expected);
        assert_eq!(sent[2].get_str("update"), Ok("distributed_locks"));
        must(accounts(&fixture).delete_many(doc! {}).await);
    }
}

/// Each lock of a set has a claim of its own if they came one after the other. All of them guard the commit.
#[tokio::test]
async fn a_set_guards_a_commit_by_each_of_its_locks() {
    let fixture = prepared().await;
    for lost in [None, Some("a"), Some("b")] {
        let held = fixture.rival().lock("b").await.unwrap();
        let set = fixture.provider.lock_all(["a", "b"]).acquire_timeout(AMPLE);
        let waiting = tokio::spawn(set.acquire());
        until("the set has its first lock", async || !fixture.is_free("a").await).await;
        held.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        let mut session = session(&fixture).await;
        begin(&fixture, &mut session).await;
        if let Some(name) = lost {
            assert!(fixture.rival().admin().force_release(name).await.unwrap());
        }
        let committed = guard.context().commit(&mut session).await;
        let is_lost = matches!(committed, Err(LockError::Lost { .. }));
        assert_eq!(committed.is_ok(), lost.is_none(), "{committed:?}");
        assert_eq!(is_lost, lost.is_some(), "{committed:?}");
        assert_eq!(is_committed(&fixture).await, lost.is_none(), "{lost:?}");
        must(accounts(&fixture).delete_many(doc! {}).await);
        // A set that has lost a lock says so.
        assert_eq!(guard.release().await.is_ok(), lost.is_none(), "{lost:?}");
    }
}

/// A rival acquires the lock while the transaction, which still sees the holder's own claim, is open: the guard is a write conflict.
/// Or the document was deleted, or the lease is over by the holder's own clock, so that the server is not asked.
#[tokio::test]
async fn a_lost_lock_commits_nothing() {
    let losses = ["taken", "deleted", "expired"];
    for (way, loss) in Way::ALL
        .into_iter()
        .flat_map(|way| losses.map(|loss| (way, loss)))
    {
        let fixture = prepared().await;
        let mut lock = way.lock(&fixture, "a");
        if loss == "expired" {
            lock = lock.expiry(Duration::from_millis(200)).max_hold(Duration::ZERO);
        }
        let guard = lock.acquire().await.unwrap();
        let mut session = session(&fixture).await;
        begin(&fixture, &mut session).await;
        let mut rival = None;
        match loss {
            "taken" => rival = Some(take_over(&fixture, "a").await),
            "deleted" => drop(must(fixture.locks().delete_one(doc! { "_id": "a" }).await)),
            _ => guard.lost().await,
        }
        let refused = way.commit(&guard.context(), &mut session).await;
        let is_refused = matches!(refused, Err(LockError::Lost { .. }));
        assert!(is_refused, "{way:?}, {loss}: {refused:?}");
        let changes_nothing = guard.is_lost() && !is_committed(&fixture).await;
        assert!(changes_nothing, "{way:?}, {loss}");
        // The commit has ended the transaction, so that another one can begin.
        session.start_transaction().await.unwrap();
        if let Some(rival) = rival {
            let released = rival.release().await;
            released.expect("the refused commit changed nothing of its lock");
        }
    }
}

/// The read that distinguishes a takeover from a renewal has the read concern `local`: the rival holds the lock,
/// whether a majority has confirmed it yet or not. A loss keeps its type when it passes through the callback of the driver.
#[tokio::test]
async fn the_read_after_a_conflict_does_not_wait_for_a_majority() {
    for way in Way::ALL {
        let fixture = prepared().await;
        let (provider, commands) = fixture.recorded(|builder| builder).await;
        let guard = provider.lock("a").once().acquire().await.unwrap();
        let (accounts, lock, mut made) = (accounts(&fixture), guard.context(), 0);
        let mut session = session(&fixture).await;
        let refused: mongodb::error::Result<()> = session
            .start_transaction()
            .and_run2(async |session| {
                made += 1;
                insert(&accounts, session, 1).await?;
                let _rival = take_over(&fixture, "a").await;
                Ok(way.commit(&lock, session).await?)
            })
            .await;
        let refused = LockError::from(refused.unwrap_err());
        assert!(matches!(refused, LockError::Lost { .. }), "{refused:?}");
        assert_eq!(made, 1, "the transaction is not repeated");
        assert!(!is_committed(&fixture).await);
        let mut sent = commands.take();
        sent.retain(|command| command.contains_key("find"));
        let [read] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(read.get_str("find"), Ok("distributed_locks"));
        let concern = read.get_document("readConcern").unwrap();
        assert_eq!(concern.get_str("level"), Ok("local"), "{read}");
    }
}
