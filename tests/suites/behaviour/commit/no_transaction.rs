//! Sessions without a transaction that a lock could guard.

use mongolock::{LockError, LockProvider};

use super::{Way, begin, is_committed, prepared, session};
use crate::fixture::{Fixture, assert_released};
use crate::servers::standalone;

/// Asserts that the commit under the lock `a` is refused for this reason.
fn assert_refused(way: Way, refused: &Result<(), LockError>, why: &str) {
    assert!(
        matches!(refused, Err(LockError::NoTransaction { name, reason, .. }) if name == "a" && reason.contains(why)),
        "{way:?}: {refused:?}"
    );
}

#[tokio::test]
async fn a_transaction_begun_before_the_lock_is_refused() {
    let fixture = prepared().await;
    let mut session = session(&fixture).await;
    for way in Way::ALL {
        begin(&fixture, &mut session).await;
        let guard = way.lock(&fixture, "a").await.unwrap();
        let refused = way.commit(&guard.context(), &mut session).await;
        assert_refused(way, &refused, "under the lock");
        assert!(!guard.is_lost());
        assert!(!is_committed(&fixture).await);
        guard.release().await.unwrap();
    }
}

/// The statement would take effect at once. It is not sent: the hold goes on, and its end is that of a failed run.
#[tokio::test]
async fn a_commit_without_a_transaction_is_refused() {
    let (fixture, in_memory) = (prepared().await, Fixture::memory());
    let mut session = session(&fixture).await;
    for way in Way::ALL {
        for (fixture, why) in [(&fixture, "standalone"), (&in_memory, "in memory")] {
            let guard = way.lock(fixture, "a").await.unwrap();
            let refused = way.commit(&guard.context(), &mut session).await;
            assert_refused(way, &refused, why);
            guard.ensure_held().unwrap();
            drop(guard);
            assert_released(&fixture.rival().lock("a")).await;
        }
    }
}

/// A standalone server has no transactions, and refuses the first statement of one: the guard, or one before it.
#[tokio::test]
async fn a_commit_on_a_standalone_server_is_refused() {
    let (_server, database) = standalone().await;
    let lock = LockProvider::new(&database).lock("a").once();
    let guard = lock.acquire().await.unwrap();
    let mut session = database.client().start_session().await.unwrap();
    for begins in [true, false] {
        for way in Way::ALL {
            if begins {
                session.start_transaction().await.unwrap();
            }
            let refused = way.commit(&guard.context(), &mut session).await;
            assert_refused(way, &refused, "standalone");
        }
    }
    guard.release().await.unwrap();
}
