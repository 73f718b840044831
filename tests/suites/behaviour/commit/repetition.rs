//! Commits that fail: some are repeated by the driver, some by the library, and some are not repeated.

use mongodb::bson::{DateTime, doc};
use mongodb::error::{TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongolock::LockError;
use mongolock_tests::{FailPoint, change_lock, must};

use super::{Way, accounts, begin, failing_session, insert, is_committed, prepared, session};
use crate::fixture::assert_released;

/// A renewal of the same lock after the transaction began is a transient error, and the driver repeats the transaction.
#[tokio::test]
async fn a_renewal_of_the_same_lock_is_a_transient_conflict() {
    for way in Way::ALL {
        let fixture = prepared().await;
        let guard = way.lock(&fixture, "a").await.unwrap();
        let mut session = session(&fixture).await;
        begin(&fixture, &mut session).await;
        let later = doc! { "$set": { "expiresAt": DateTime::from_millis(i64::MAX / 2000) } };
        change_lock(fixture.database(), "a", later).await;
        let refused = way.commit(&guard.context(), &mut session).await;
        let Err(LockError::Mongo(error)) = refused else {
            panic!("{way:?}: {refused:?}");
        };
        assert!(error.contains_label(TRANSIENT_TRANSACTION_ERROR), "{error}");
        assert!(!guard.is_lost());
        assert!(!is_committed(&fixture).await);

        let (accounts, lock, mut made) = (accounts(&fixture), guard.context(), 0);
        let done: mongodb::error::Result<()> = session
            .start_transaction()
            .and_run2(async |session| {
                made += 1;
                insert(&accounts, session, 1).await?;
                if made == 1 {
                    let sooner = doc! { "$set": { "expiresAt": { "$add": ["$expiresAt", -1] } } };
                    change_lock(fixture.database(), "a", sooner).await;
                }
                Ok(way.commit(&lock, session).await?)
            })
            .await;
        done.unwrap();
        assert_eq!(made, 2);
        assert!(is_committed(&fixture).await);
        guard.release().await.unwrap();
    }
}

/// A commit whose error leaves its outcome unknown is repeated, as the specification of the driver requires.
#[tokio::test]
async fn a_commit_with_an_unknown_outcome_is_repeated() {
    for way in Way::ALL {
        let fixture = prepared().await;
        // The commit is made, but not confirmed by a majority in time, more often than the driver repeats it by itself.
        let commits = FailPoint::on(&["commitTransaction"]).times(3);
        let unconfirmed = commits.write_concern_error(64, "waiting for replication timed out");
        let (mut session, failing) = failing_session(&fixture, unconfirmed).await;
        let guard = way.lock(&fixture, "a").await.unwrap();
        begin(&fixture, &mut session).await;
        way.commit(&guard.context(), &mut session).await.unwrap();
        must(failing.clear().await);
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
