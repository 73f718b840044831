//! The documents that store locks, and documents that another program has changed or damaged.

use std::time::Duration;

use mongodb::IndexModel;
use mongodb::bson::{Bson, DateTime, Document, Timestamp, doc};
use mongodb::options::IndexOptions;
use mongolock::{FencingToken, LockError};
use mongolock_tests::{AMPLE, Purpose, change_lock, eventually, must};
use tokio::time::sleep;

use crate::fixture::{Fixture, acquire_and_release, renewing};
use crate::interop_dotnet::DotnetLock;
use crate::observer::{fields, millis};

/// S1.3, S1.7, S1.8, S1.16, S0.15, S2.2, S2.4, S3.5
#[tokio::test]
async fn a_held_lock_is_one_document_of_five_fields() {
    let fixture = Fixture::mongodb().await;
    let provider = fixture.process("billing#1");
    let lock = provider.lock("report:1").expiry(Duration::from_secs(60));
    let guard = lock.acquire().await.unwrap();
    let document = fixture.document("report:1").await.unwrap();
    assert_eq!(
        fields(&document),
        ["_id", "acquiredAt", "expiresAt", "fencingToken", "lockId"]
    );
    let token = guard.fencing_token().get();
    assert_eq!(document.get_i64("fencingToken"), Ok(token));
    let lasts = millis(&document, "expiresAt") - millis(&document, "acquiredAt");
    assert_eq!(lasts, 60_000);
    let id = document.get_str("lockId").unwrap();
    let uuid = id.strip_prefix("billing#1#");
    let uuid = uuid.expect("the owner can be read from the id");
    assert!(mongodb::bson::Uuid::parse_str(uuid).is_ok(), "{id}");

    guard.release().await.unwrap();
    let again = lock.acquire().await.unwrap();
    let next = fixture.lock_id("report:1").await;
    assert_ne!(next, id, "an id is never used again");
    again.release().await.unwrap();
}

/// S1.18: a released lock is free at once, and its document stays.
#[tokio::test]
async fn a_released_lock_keeps_its_document() {
    let fixture = Fixture::mongodb().await;
    let guard = fixture.provider.lock("kept").await.unwrap();
    let held = fixture.document("kept").await.unwrap();
    guard.release().await.unwrap();
    let released = fixture.document("kept").await.unwrap();
    assert_eq!(released.get_str("lockId").unwrap(), "");
    assert_eq!(released.get("fencingToken"), held.get("fencingToken"));
    assert!(released.get_datetime("expiresAt").unwrap() < held.get_datetime("expiresAt").unwrap());
    assert_eq!(released.len(), 5);
}

/// Until the end of the minimum hold the document says by which claim it is kept. Another program, which reads the end alone,
/// keeps to it as well.
#[tokio::test]
async fn a_minimum_hold_is_kept_in_the_document() {
    let fixture = Fixture::mongodb().await;
    let min_hold = Duration::from_secs(3);
    let guard = fixture.provider.lock("kept").min_hold(min_hold).await.unwrap();
    let held = fixture.document("kept").await.unwrap();
    guard.release().await.unwrap();
    let kept = fixture.document("kept").await.unwrap();
    let id = held.get_str("lockId").unwrap();
    assert_eq!(kept.get_str("lockId"), Ok(&*format!("kept:{id}")));
    assert_eq!(millis(&kept, "expiresAt") - millis(&kept, "acquiredAt"), 3000);
    assert_eq!(kept.get("fencingToken"), held.get("fencingToken"));
    assert_eq!(kept.len(), 5);
    assert!(DotnetLock::acquire(&fixture.locks(), "kept").await.is_none());
    let next = fixture.provider.lock("kept").acquire().await.unwrap();
    assert!(next.fencing_token() > FencingToken::from(held.get_i64("fencingToken").unwrap()));
    // A hold that is released after its minimum hold is not kept.
    let over = fixture
        .provider
        .lock("over")
        .min_hold(Duration::from_millis(1))
        .await
        .unwrap();
    sleep(Duration::from_millis(50)).await;
    over.release().await.unwrap();
    let over = fixture.document("over").await.unwrap();
    assert_eq!(over.get_str("lockId"), Ok(""));
}

/// The clock that has granted a hold was an hour ahead: the minimum hold counts from its release at the latest.
#[tokio::test]
async fn a_minimum_hold_that_begins_in_the_future_is_not_longer() {
    let fixture = Fixture::mongodb().await;
    let lock = fixture.provider.lock("kept").min_hold(AMPLE);
    let guard = lock.acquire().await.unwrap();
    let ahead = doc! { "$set": { "acquiredAt": { "$add": ["$acquiredAt", 3_600_000] } } };
    change_lock(fixture.database(), "kept", ahead).await;
    guard.release().await.unwrap();
    let remaining = fixture.info("kept").await.remaining;
    assert!(!remaining.is_zero() && remaining <= AMPLE, "{remaining:?}");
}

/// S1.23: the new expiry counts from the renewal, not from the old expiry.
#[tokio::test]
async fn a_renewal_counts_from_the_servers_now() {
    let fixture = Fixture::mongodb().await;
    let often = renewing(&fixture.provider, Duration::from_millis(100));
    let lock = often.lock("renewed").expiry(Duration::from_secs(2));
    let guard = lock.acquire().await.unwrap();
    let first = fixture.document("renewed").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let later = fixture.document("renewed").await.unwrap();
    let moved = millis(&later, "expiresAt") - millis(&first, "expiresAt");
    // Ten intervals at least have passed; had each added the expiry, it would be twenty seconds.
    assert!((500..10_000).contains(&moved), "{moved} ms");
    assert_eq!(later.get("acquiredAt"), first.get("acquiredAt"));
    assert_eq!(later.get("fencingToken"), first.get("fencingToken"));
    guard.release().await.unwrap();
}

/// S3.8, S2.10, S2.6: after another program has changed the id in the document, a release changes nothing and reports
/// the loss.
#[tokio::test]
async fn a_release_ends_only_its_own_claim() {
    let fixture = Fixture::mongodb().await;
    let guard = fixture.provider.lock("mine").await.unwrap();
    let foreign = doc! { "$set": { "lockId": "another#process" } };
    change_lock(fixture.database(), "mine", foreign).await;
    let before = fixture.document("mine").await.unwrap();
    let error = guard.release().await.unwrap_err();
    assert!(matches!(&error, LockError::Lost { name, .. } if name == "mine"));
    assert_eq!(fixture.document("mine").await.unwrap(), before);
}

/// S2.1: the lock is a separate document, and the protected document is never changed.
#[tokio::test]
async fn the_protected_document_is_never_changed() {
    let fixture = Fixture::mongodb().await;
    let orders = fixture.database().collection("orders");
    let order = doc! { "_id": "order:1", "total": 7 };
    orders.insert_one(&order).await.unwrap();
    let guard = fixture.provider.lock("order:1").await.unwrap();
    assert_eq!(orders.find_one(doc! {}).await.unwrap().as_ref(), Some(&order));
    guard.release().await.unwrap();
    assert_eq!(orders.find_one(doc! {}).await.unwrap(), Some(order));
}

/// S3.2, S0.12: names are unique by `_id`. A name or an owner that looks like an expression is stored as it is.
#[tokio::test]
async fn names_and_owners_are_stored_literally() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    let provider = fixture.process("$$NOW");
    for name in ["$expiresAt", "$$NOW", "{ $gt: 0 }", "a.b"] {
        let guard = provider.lock(name).await.unwrap();
        assert!(fixture.lock_id(name).await.starts_with("$$NOW#"));
        assert!(!fixture.is_free(name).await);
        guard.release().await.unwrap();
    }
    assert_eq!(fixture.locks().count_documents(doc! {}).await.unwrap(), 4);
}

/// The problem that acquiring reports for this document of the lock `bad`.
async fn problem_of(fixture: &Fixture, document: Document) -> String {
    fixture.locks().insert_one(document).await.unwrap();
    match fixture.provider.lock("bad").acquire().await {
        Err(LockError::CorruptDocument { name, problem, .. }) if name == "bad" => problem,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_damaged_document_is_reported_and_not_held() {
    let fixture = Fixture::mongodb().await;
    let problem = problem_of(&fixture, doc! { "_id": "bad", "fencingToken": 1e300 }).await;
    let expected = "`fencingToken` is not a 64-bit integer: its type is Double";
    assert_eq!(problem, expected);
    let released = async || (fixture.lock_id("bad").await.is_empty()).then_some(());
    must(eventually(AMPLE, "the claim is released", released).await);
}

/// The fields have values of types that the server cannot compare or add.
#[tokio::test]
async fn a_field_of_another_type_is_a_damaged_document() {
    let fixture = Fixture::mongodb().await;
    let (time, increment) = (u32::MAX, 0);
    let timestamp = Bson::Timestamp(Timestamp { time, increment });
    for (field, value, expected) in [
        (
            "fencingToken",
            Bson::from("1"),
            "a type that the server cannot calculate with",
        ),
        ("expiresAt", Bson::MaxKey, "`expiresAt` is not a date"),
        ("expiresAt", timestamp, "`expiresAt` is not a date"),
    ] {
        let problem = problem_of(&fixture, doc! { "_id": "bad", field: value.clone() }).await;
        assert!(problem.contains(expected), "{problem}");
        let found = fixture.document("bad").await.unwrap();
        assert_eq!(found.get(field), Some(&value), "the field is unchanged");
        fixture.locks().delete_one(doc! { "_id": "bad" }).await.unwrap();
    }
}

/// S0.12: a duplicate key means "not acquired", whichever index reports it, and is not an error of the caller.
#[tokio::test]
async fn a_duplicate_key_is_a_busy_lock() {
    let fixture = Fixture::mongodb().await;
    // Built on the empty collection, the TTL index needs no document of the internal lock.
    fixture.until_indexed().await;
    let _taken = fixture.provider.lock("taken").await.unwrap();
    let unique = IndexOptions::builder().unique(true).build();
    let index = IndexModel::builder().keys(doc! { "missing": 1 });
    let index = index.options(unique).build();
    fixture.locks().create_index(index).await.unwrap();
    let wanted = fixture.provider.lock("wanted");
    assert!(wanted.try_acquire().await.unwrap().is_none());
    let wanted = wanted.acquire_timeout(Duration::from_secs(2));
    assert!(matches!(wanted.acquire().await, Err(LockError::Timeout { .. })));
}

/// S1.7, S1.8
#[tokio::test]
async fn a_chosen_collection_is_created_by_use() {
    let fixture = Fixture::mongodb().await;
    let provider = fixture.with(|builder| builder.collection("my.locks"));
    let collections = async || fixture.database().list_collection_names().await.unwrap();
    assert!(collections().await.is_empty());
    acquire_and_release(&provider.lock("here")).await;
    let mine = fixture.database().collection::<Document>("my.locks");
    assert_eq!(mine.count_documents(doc! { "_id": "here" }).await.unwrap(), 1);
    let default = "distributed_locks".to_owned();
    assert!(!collections().await.contains(&default));
}

/// S3.9: the lease has expired, and the holder renews it after the rival has read the document and before its attempt.
#[tokio::test]
async fn a_renewal_between_a_read_and_an_attempt_wins() {
    let fixture = Fixture::mongodb().await;
    let _guard = fixture.provider.lock("renewing").await.unwrap();
    // The TTL index removes no document before a day has passed.
    let past = DateTime::from_millis(DateTime::now().timestamp_millis() - 60_000);
    let expired = doc! { "$set": { "expiresAt": past } };
    change_lock(fixture.database(), "renewing", expired).await;
    let seen = fixture.document("renewing").await.unwrap();
    assert_eq!(
        seen.get_datetime("expiresAt").unwrap(),
        &past,
        "a rival reads an expired lease"
    );
    let renewal = vec![doc! { "$set": { "expiresAt": { "$add": ["$$NOW", 30_000_i64] } } }];
    let own = doc! { "_id": "renewing", "lockId": seen.get_str("lockId").unwrap() };
    let renewed = fixture.locks().update_one(own, renewal).await.unwrap();
    assert_eq!(renewed.matched_count, 1);
    assert!(!fixture.is_free("renewing").await);
}

/// A renewal that waited in the server takes effect after later ones. It keeps the end that they have granted, but not one
/// that no renewal can have granted, as a clock that was ahead leaves it.
#[tokio::test]
async fn a_renewal_keeps_the_end_of_a_later_one() {
    let fixture = Fixture::mongodb().await;
    let interval = Duration::from_millis(300);
    let (provider, commands) = fixture.recorded(|b| b.renew_interval(interval)).await;
    let guard = provider.lock("renewed").await.unwrap();
    let acquired = fixture.millis("renewed", "acquiredAt").await;
    for (set, is_kept) in [(acquired + 60_000, true), (acquired + 600_000, false)] {
        let end = doc! { "$set": { "expiresAt": DateTime::from_millis(set) } };
        change_lock(fixture.database(), "renewed", end).await;
        commands.clear();
        let renewals = async || (commands.count(Purpose::Renew) >= 3).then_some(());
        must(eventually(AMPLE, "two renewals have ended", renewals).await);
        let end = fixture.millis("renewed", "expiresAt").await;
        assert_eq!(end == set, is_kept, "{end} instead of {set}");
    }
    guard.release().await.unwrap();
}
