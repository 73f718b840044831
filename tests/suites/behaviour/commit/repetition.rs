//! Commits that fail: some are repeated by the driver, some by the library, and some are not repeated. Sessions without a transaction
//! that a lock could guard are refused.

use mongodb::bson::doc;
use mongodb::error::UNKNOWN_TRANSACTION_COMMIT_RESULT;
use mongolock::{LockError, LockProvider};
use mongolock_tests::{FailPoint, change_lock, must};

use super::{Way, accounts, begin, failing_session, insert, is_committed, prepared, session};
use crate::fixture::{Fixture, assert_released};
use crate::servers::standalone;

/// A renewal of the same lock after the transaction began is a transient error, and the driver repeats the transaction.
#[tokio::test]
async fn a_renewal_of_the_same_lock_is_a_transient_conflict() {
    for way in Way::ALL {
        let fixture = prepared().await;
        let guard = way.lock(&fixture, "a").await.unwrap();
        let (accounts, lock, mut made) = (accounts(&fixture), guard.context(), 0);
        let done: mongodb::error::Result<()> = session(&fixture)
            .await
            .start_transaction()
            .and_run2(async |session| {
                made += 1;
                insert(&accounts, session, 1).await?;
                if made == 1 {
                    let later = doc! { "$set": { "expiresAt": { "$add": ["$expiresAt", 1] } } };
                    change_lock(fixture.database(), "a", later).await;
                }
                Ok(way.commit(&lock, session).await?)
            })
            .await;
        done.unwrap();
        assert_eq!(made, 2, "the first one was a transient conflict");
        assert!(is_committed(&fixture).await);
        guard.release().await.unwrap();
    }
}

/// The caller's own time limit of the commit has passed: the caller gets that error, whatever the outcome is, and the
/// library does not repeat the commit.
#[tokio::test]
async fn a_commit_that_is_out_of_time_is_not_repeated() {
    const MAX_TIME_EXPIRED: i32 = 50;
    let commit = || FailPoint::on(&["commitTransaction"]);
    let not_made = commit().error_code(MAX_TIME_EXPIRED);
    let unconfirmed = commit().write_concern_error(MAX_TIME_EXPIRED, "operation exceeded time limit");
    for (point, is_made) in [(not_made, false), (unconfirmed, true)] {
        let fixture = prepared().await;
        // The fail point hits once: a second commit would succeed.
        let (mut session, failing) = failing_session(&fixture, point).await;
        let guard = fixture.provider.lock("a").await.unwrap();
        begin(&fixture, &mut session).await;
        let ended = guard.context().commit(&mut session).await;
        must(failing.clear().await);
        let Err(LockError::Mongo(error)) = ended else {
            panic!("{ended:?}");
        };
        assert!(error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT), "{error}");
        assert_eq!(is_committed(&fixture).await, is_made);
        assert!(!guard.is_lost());
        // The caller can repeat the commit to learn its outcome.
        let committed = session.commit_transaction().await;
        committed.unwrap_or_else(|error| panic!("{is_made}: {error}"));
        assert!(is_committed(&fixture).await);
        // The hold goes on, because the library does not know the outcome.
        guard.release().await.unwrap();
        assert_released(&fixture.rival().lock("a")).await;
    }
}

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
