//! The `mongosh` calls of the guide's page on troubleshooting: what they show, and what becomes of a hold that they release.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongolock::{LockGuard, LossReason};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, change_lock};

use crate::fixture::{Fixture, acquire_and_release, assert_lost, millis, renewing, until_lost};
use crate::mongosh::{Call, call, calls, found};

const PAGE: &str = include_str!("../../../mongolock/src/guide/troubleshooting.md");

/// The names that stand for a lock, an owner and an id on the page.
const NAME: &str = "report:42";
const OWNER: &str = "billing-1";
const LOCK_ID: &str = "billing-1#3f0c9b52-9a4e-4d0e-8f57-1c2d3e4f5a6b";

/// A hold by the page's owner, who soon notices its release.
async fn hold(fixture: &Fixture, name: &str) -> LockGuard {
    let holder = renewing(&fixture.process(OWNER), Duration::from_millis(200));
    holder.lock(name).await.unwrap()
}

/// Moves the hold in a document ahead, as if a clock that was ahead had granted it.
async fn put_ahead(fixture: &Fixture, id: &str) {
    let ahead = |field: &str| doc! { "$add": [field, 3_600_000] };
    let set = doc! { "$set": { "acquiredAt": ahead("$acquiredAt"), "expiresAt": ahead("$expiresAt") } };
    change_lock(fixture.database(), id, set).await;
}

/// Asserts that the reply is that to an update of so many documents.
fn assert_updated(reply: &Document, documents: i32) {
    assert_eq!(reply.get_i32("nModified"), Ok(documents), "{reply}");
}

/// Asserts that the holder notices its loss long before its lease of 30 s would end, that the document stays released
/// after that, and that the next hold has a greater token.
async fn assert_lost_for_good(fixture: &Fixture, guard: LockGuard) {
    until_lost(&guard, BEFORE_EXPIRY).await;
    let document = fixture.document(guard.name()).await.unwrap();
    assert_eq!(document.get_str("lockId"), Ok(""));
    assert!(fixture.info(guard.name()).await.remaining.is_zero());
    let token = guard.fencing_token();
    let next = fixture.rival().lock(guard.name()).try_acquire().await.unwrap();
    let next = next.expect("the lock is free");
    assert!(next.fencing_token() > token);
    assert_lost(guard.release().await, LossReason::Gone);
    // The late release of the first holder changes nothing.
    next.release().await.unwrap();
}

/// S2.6: the update of the page that names the hold by its `lockId`, and the one that releases whatever holds the lock.
#[tokio::test]
async fn a_lock_that_is_released_by_hand_is_lost_for_good() {
    let fixture = Fixture::mongodb().await;
    let database = fixture.database();
    let release = async |call: &Call, number| assert_updated(&call.run(database).await, number);
    let any = call(PAGE, "Release one lock");
    release(&any, 0).await;
    let guard = hold(&fixture, NAME).await;
    let shown = call(PAGE, "One lock in detail").run(fixture.database()).await;
    let shown = found(&shown).remove(0);
    assert!(millis(&shown, "expiresAt") > millis(&shown, "now"));
    let this = PAGE.replace(LOCK_ID, shown.get_str("lockId").unwrap());
    let this = call(&this, "Release one hold");
    release(&this, 1).await;
    assert_lost_for_good(&fixture, guard).await;

    let guard = hold(&fixture, NAME).await;
    release(&this, 0).await;
    guard.ensure_held().expect("the update names the earlier hold");
    // Also what a clock that was ahead has left, and a minimum hold.
    put_ahead(&fixture, NAME).await;
    release(&any, 1).await;
    release(&any, 0).await;
    assert_lost_for_good(&fixture, guard).await;
    acquire_and_release(&fixture.provider.lock(NAME).min_hold(AMPLE * 10)).await;
    put_ahead(&fixture, NAME).await;
    release(&any, 1).await;
    assert!(fixture.is_free(NAME).await);
}

/// S2.7
#[tokio::test]
async fn all_locks_of_an_owner_are_released_by_hand() {
    let fixture = Fixture::mongodb().await;
    let lost = [hold(&fixture, "1").await, hold(&fixture, "2").await];
    let kept = fixture.process("billing-12").lock("3").await.unwrap();
    acquire_and_release(&fixture.process(OWNER).lock("4").min_hold(AMPLE * 10)).await;
    for name in ["2", "4"] {
        put_ahead(&fixture, name).await;
    }
    let of_owner = call(PAGE, "The locks that one owner holds");
    let found_locks = found(&of_owner.run(fixture.database()).await);
    let name = |lock: &Document| lock.get_str("_id").unwrap().to_owned();
    let mut names: Vec<String> = found_locks.iter().map(name).collect();
    names.sort_unstable();
    assert_eq!(names, ["1", "2"]);

    let release = call(PAGE, "Release all locks of one owner");
    assert_updated(&release.run(fixture.database()).await, 3);
    assert!(fixture.is_free("4").await);
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

/// The list shows the locks that are held, with the age of each of them, and the oldest first.
#[tokio::test]
async fn the_list_shows_the_locks_that_are_held() {
    let fixture = Fixture::mongodb().await;
    let older = fixture.provider.lock("older").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let newer = fixture.provider.lock("newer").await.unwrap();
    for min_hold in [Duration::ZERO, AMPLE * 10] {
        let lock = fixture.provider.lock(format!("released:{min_hold:?}"));
        acquire_and_release(&lock.min_hold(min_hold)).await;
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
