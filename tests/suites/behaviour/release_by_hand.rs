//! The `mongosh` calls of the guide's page on troubleshooting: what they show, and what becomes of a hold that they release.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongolock::{LockGuard, LockState, LossReason};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, change_lock};
use tokio::time::timeout;

use crate::fixture::{Fixture, assert_lost, renewing};
use crate::mongosh::{call, calls, found};

const PAGE: &str = include_str!("../../../mongolock/src/guide/troubleshooting.md");

/// The names that stand for a lock, an owner and an id on the page.
const NAME: &str = "report:42";
const OWNER: &str = "billing-1";
const LOCK_ID: &str = "billing-1#3f0c9b52-9a4e-4d0e-8f57-1c2d3e4f5a6b";

/// The renewal interval of a holder that soon notices a release by force.
const SOON: Duration = Duration::from_millis(200);

/// A hold of the page's lock by the page's owner.
async fn hold(fixture: &Fixture) -> LockGuard {
    let holder = renewing(&fixture.process(OWNER), SOON);
    holder.lock(NAME).await.unwrap()
}

/// Asserts that the reply is that to an update of so many documents.
fn assert_updated(reply: &Document, documents: i32) {
    assert_eq!(reply.get_i32("nModified"), Ok(documents), "{reply}");
}

/// Asserts that the holder notices its loss long before its lease of 30 s would end, that the document stays released
/// after that, and that the next hold has a greater token.
async fn assert_lost_for_good(fixture: &Fixture, guard: LockGuard) {
    let lost = timeout(BEFORE_EXPIRY, guard.lost()).await;
    lost.expect("the next renewal finds no claim");
    let document = fixture.document(guard.name()).await.unwrap();
    assert_eq!(document.get_str("lockId"), Ok(""));
    let info = fixture.info(guard.name()).await;
    assert!(
        info.state == LockState::Released && info.remaining.is_zero(),
        "{info:?}"
    );

    let token = guard.fencing_token();
    let next = fixture.rival().lock(guard.name()).try_acquire().await.unwrap();
    let next = next.expect("the lock is free");
    assert!(next.fencing_token() > token);
    assert_lost(guard.release().await, LossReason::Gone);
    // The late release of the first holder changes nothing.
    next.release().await.unwrap();
}

/// S2.6: the update of the page that names the hold by its `lockId`.
#[tokio::test]
async fn a_hold_that_is_released_by_hand_is_lost_for_good() {
    let fixture = Fixture::mongodb().await;
    let guard = hold(&fixture).await;
    let shown = call(PAGE, "One lock in detail").run(fixture.database()).await;
    let shown = found(&shown).remove(0);
    let lock_id = shown.get_str("lockId").unwrap();
    assert!(shown.get_datetime("expiresAt").unwrap() > shown.get_datetime("now").unwrap());

    let release = call(&PAGE.replace(LOCK_ID, lock_id), "Release one hold");
    assert_updated(&release.run(fixture.database()).await, 1);
    assert_lost_for_good(&fixture, guard).await;

    let later = hold(&fixture).await;
    assert_updated(&release.run(fixture.database()).await, 0);
    later.release().await.expect("the update names the earlier hold");
}

/// S2.6: the update of the page that releases whatever holds the lock.
#[tokio::test]
async fn a_lock_that_is_released_by_hand_is_lost_for_good() {
    let fixture = Fixture::mongodb().await;
    let release = call(PAGE, "Release one lock");
    assert_updated(&release.run(fixture.database()).await, 0);
    let guard = hold(&fixture).await;
    assert_updated(&release.run(fixture.database()).await, 1);
    assert_updated(&release.run(fixture.database()).await, 0);
    assert_lost_for_good(&fixture, guard).await;
}

/// What a clock that was ahead has left, and minimum holds.
#[tokio::test]
async fn what_begins_in_the_future_is_released_by_hand() {
    let fixture = Fixture::mongodb().await;
    let owner = fixture.process(OWNER);
    for comment in ["Release one lock", "Release all locks of one owner"] {
        for is_kept in [false, true] {
            let lock = owner.lock(NAME).min_hold(AMPLE * 10);
            let guard = lock.acquire().await.unwrap();
            let ahead = doc! { "$add": ["$acquiredAt", 3_600_000] };
            let ahead =
                doc! { "$set": { "acquiredAt": ahead, "expiresAt": { "$add": ["$expiresAt", 3_600_000] } } };
            change_lock(fixture.database(), NAME, ahead).await;
            if is_kept {
                guard.release().await.unwrap();
            } else {
                // Its process is gone.
                std::mem::forget(guard);
            }
            let release = call(PAGE, comment);
            assert_updated(&release.run(fixture.database()).await, 1);
            assert_updated(&release.run(fixture.database()).await, 0);
            assert!(fixture.is_free(NAME).await, "{comment} {is_kept}");
        }
    }
}

/// S2.7
#[tokio::test]
async fn all_locks_of_an_owner_are_released_by_hand() {
    let fixture = Fixture::mongodb().await;
    let (own, other) = (
        renewing(&fixture.process(OWNER), SOON),
        fixture.process("billing-12"),
    );
    let lost = [own.lock("1").await.unwrap(), own.lock("2").await.unwrap()];
    let kept = other.lock("3").await.unwrap();
    let of_owner = call(PAGE, "The locks that one owner holds");
    let mut found_locks = found(&of_owner.run(fixture.database()).await);
    found_locks.sort_by_key(|lock| lock.get_str("_id").unwrap().to_owned());
    let names: Vec<&str> = found_locks
        .iter()
        .map(|lock| lock.get_str("_id").unwrap())
        .collect();
    assert_eq!(names, ["1", "2"]);

    let release = call(PAGE, "Release all locks of one owner");
    assert_updated(&release.run(fixture.database()).await, 2);
    assert!(found(&of_owner.run(fixture.database()).await).is_empty());
    for guard in lost {
        assert_lost_for_good(&fixture, guard).await;
    }
    kept.release().await.expect("its owner has another name");
}

/// After a restore no hold and no mark of the other place counts, and the tokens go on rising.
#[tokio::test]
async fn all_holds_and_marks_are_cleared_by_hand() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    let provider = &fixture.provider;
    let held = provider.lock("held").await.unwrap();
    let marked = provider.lock("marked").once().await.unwrap();
    let token = marked.fencing_token();
    marked.done().await.unwrap();
    let clear = call(PAGE, "Clear all holds and marks");
    assert_updated(&clear.run(fixture.database()).await, 2);
    let rival = fixture.rival();
    assert!(rival.lock("held").try_acquire().await.unwrap().is_some());
    let again = rival.lock("marked").once().try_acquire().await.unwrap();
    assert!(again.expect("the mark is cleared").fencing_token() > token);
    assert_lost(held.release().await, LossReason::Gone);
}

/// A renewal needs a lease that runs: the end that somebody has set is a loss.
#[tokio::test]
async fn an_end_alone_is_a_loss() {
    let fixture = Fixture::mongodb().await;
    let guard = hold(&fixture).await;
    let end = doc! { "$set": { "expiresAt": "$$NOW" } };
    change_lock(fixture.database(), NAME, end).await;
    let lost = timeout(BEFORE_EXPIRY, guard.lost()).await;
    lost.expect("the next renewal finds no lease");
    let token = guard.fencing_token();
    assert_lost(guard.release().await, LossReason::Gone);
    let next = fixture.rival().lock(NAME).try_acquire().await.unwrap();
    let next = next.expect("the lock is free");
    assert!(next.fencing_token() > token);
    next.release()
        .await
        .expect("no late command of the first holder has released it");
}

/// The list shows the locks that are held, with the age of each of them, and the oldest first.
#[tokio::test]
async fn the_list_shows_the_locks_that_are_held() {
    let fixture = Fixture::mongodb().await;
    // While the index is built on a filled collection, the list has the internal lock as well.
    fixture.until_indexed().await;
    let older = fixture.provider.lock("older").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let newer = fixture.provider.lock("newer").await.unwrap();
    for min_hold in [Duration::ZERO, AMPLE * 10] {
        let lock = fixture
            .provider
            .lock(format!("released:{min_hold:?}"))
            .min_hold(min_hold);
        lock.await.unwrap().release().await.unwrap();
    }

    let list = call(PAGE, "The locks that are held now");
    let locks = found(&list.run(fixture.database()).await);
    let names: Vec<&str> = locks.iter().map(|lock| lock.get_str("_id").unwrap()).collect();
    assert_eq!(names, ["older", "newer"]);
    for (lock, guard) in locks.iter().zip([&older, &newer]) {
        assert_eq!(lock.get_i64("fencingToken"), Ok(guard.fencing_token().get()));
        let remaining = lock.get_f64("remainingSeconds").unwrap();
        assert!((0.001..=30.0).contains(&remaining), "{lock}");
    }
    let ages = [&locks[0], &locks[1]].map(|lock| lock.get_f64("heldSeconds").unwrap());
    assert!(ages[0] >= ages[1] + 0.04 && ages[1] >= 0.0, "{ages:?}");
}

/// A call that no test sends could be wrong.
#[test]
fn every_call_of_the_page_is_sent_by_a_test() {
    let comments: Vec<String> = calls(PAGE).into_iter().map(|(comment, _)| comment).collect();
    assert_eq!(comments.len(), 7, "{comments:#?}");
}
