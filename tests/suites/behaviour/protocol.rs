//! The commands that locks send, with their concerns and numbers, and the documents that store locks, also those that another program
//! has damaged.

use std::time::Duration;

use mongodb::bson::{Bson, Document, RawDocumentBuf, Timestamp, doc};
use mongolock::{FencingToken, LockError, LockFilter, LockGuard, LockProvider};
use mongolock_tests::{AMPLE, Purpose, eventually, must, recorded, until};
use tokio::time::Instant;

use crate::fixture::{FIELDS, Fixture, acquire_and_release, fields, hold_all, millis, renewing};

/// S0.7, S1.17: a failed attempt leaves the document as it is, to the byte, and writes nothing to the oplog.
#[tokio::test]
async fn a_failed_attempt_changes_nothing() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    let _held = fixture.provider.lock("held").await.unwrap();
    let local = fixture.database().client().database("local");
    let (locks, oplog) = (fixture.locks(), local.collection::<Document>("oplog.rs"));
    let writes = doc! { "ns": locks.namespace().to_string(), "op": { "$in": ["i", "u", "d"] } };
    let raw = locks.clone_with_type::<RawDocumentBuf>();
    let stored = async || {
        let held = raw.find_one(doc! { "_id": "held" }).await.unwrap().unwrap();
        let entries = oplog.count_documents(writes.clone()).await.unwrap();
        (held.into_bytes(), entries)
    };
    let before = stored().await;
    let rival = fixture.rival().lock("held");
    for _ in 0..20 {
        assert!(rival.try_acquire().await.unwrap().is_none());
    }
    assert_eq!(stored().await, before);
}

/// Sends each kind of command of a holder and of an operator.
async fn hold_and_operate(provider: &LockProvider) {
    let lock = provider.lock("safe");
    drop(lock.acquire().await.unwrap());
    let released = async || lock.try_acquire().await.unwrap().map(drop);
    must(eventually(AMPLE, "the dropped guard is released", released).await);
    let both = provider.lock_all(["first", "second"]).await.unwrap();
    both.release().await.unwrap();
    let (admin, _held) = (provider.admin(), provider.lock("held").await.unwrap());
    admin.list(LockFilter::new()).await.unwrap();
    admin.get("held").await.unwrap().unwrap();
    assert_eq!(admin.release_owner("unknown").await.unwrap(), 0);
    let earlier = FencingToken::from(1);
    assert!(!admin.force_release("held").only_if(earlier).await.unwrap());
    assert!(admin.force_release("held").await.unwrap());
}

/// S3.1, S3.3, B12: the settings of the client have no effect, and no command carries its time. Every command has a limit at the
/// server, where a foreign transaction may block it.
#[tokio::test]
async fn majority_and_primary_are_set_on_every_command() {
    let fixture = Fixture::mongodb().await;
    let settings = ["w=1", "readPreference=secondary", "readConcernLevel=local"];
    let (database, commands) = recorded(fixture.db(), &settings).await;
    let provider = renewing(&LockProvider::new(&database), Duration::from_millis(200));
    let guard = provider.lock("renewed").acquire().await.unwrap();
    commands.until_sent(Purpose::Renew).await;
    guard.release().await.unwrap();
    hold_and_operate(&provider).await;
    let (mut reads, mut writes) = (0, 0);
    for command in commands.take() {
        // The query of a set finds out which of its locks were acquired: a failover must not take that back.
        let (concern, value) = match &**command.keys().next().unwrap() {
            "find" => ("readConcern", "level"),
            "findAndModify" | "update" => ("writeConcern", "w"),
            _ => continue,
        };
        *if concern == "readConcern" {
            &mut reads
        } else {
            &mut writes
        } += 1;
        let set = command.get_document(concern).unwrap().get_str(value);
        assert_eq!(set, Ok("majority"), "{command}");
        let preference = command.get_document("$readPreference");
        assert!(preference.is_err() || preference == Ok(&doc! { "mode": "primary" }));
        assert!(command.contains_key("maxTimeMS"), "{command}");
        let text = command.to_string();
        assert!(!text.contains("$date") && !text.contains("DateTime("), "{text}");
    }
    assert!(reads >= 6 && writes >= 9, "{reads} reads, {writes} writes");
}

/// B19: the renewal of a hundred locks and a set takes a few commands. None of them asks, because each has matched all documents.
#[tokio::test]
async fn many_locks_are_renewed_together() {
    let fixture = Fixture::mongodb().await;
    let interval = Duration::from_millis(200);
    let (provider, commands) = fixture.recorded(|b| b.renew_interval(interval)).await;
    let guards = hold_all(&provider, 0..100).await;
    let set = provider.lock_all((100..120).map(|number: i32| number.to_string()));
    let set = set.await.unwrap();
    commands.clear();
    let begun = Instant::now();
    let renewed = || async {
        let mut found = fixture.locks().find(doc! {}).await.unwrap();
        while found.advance().await.unwrap() {
            let lock = found.deserialize_current().unwrap();
            // The last renewal was five intervals after the beginning.
            if millis(&lock, "expiresAt") - millis(&lock, "acquiredAt") < 31_000 {
                return None;
            }
        }
        Some(())
    };
    must(eventually(AMPLE, "five renewals of each lock", renewed).await);
    let (renewals, queries) = (commands.count(Purpose::Renew), commands.count("find"));
    let intervals = begun.elapsed().as_millis() / interval.as_millis() + 1;
    let few = renewals as u128 <= intervals * 4;
    assert!(few, "{renewals} in {intervals} intervals");
    assert_eq!(queries, 0, "each renewal has matched all documents");
    assert!(!set.is_lost() && !guards.iter().any(LockGuard::is_lost));
}

/// S1.3, S1.7, S1.8, S1.16, S0.15, S2.2, S2.4, S3.5
#[tokio::test]
async fn a_held_lock_is_one_document_of_five_fields() {
    let fixture = Fixture::mongodb().await;
    let provider = fixture.process("billing#1");
    let lock = provider.lock("report:1").expiry(Duration::from_secs(60));
    let guard = lock.acquire().await.unwrap();
    let document = fixture.document("report:1").await.unwrap();
    assert_eq!(fields(&document), FIELDS);
    let token = guard.fencing_token().get();
    assert_eq!(document.get_i64("fencingToken"), Ok(token));
    let lasts = millis(&document, "expiresAt") - millis(&document, "acquiredAt");
    assert_eq!(lasts, 60_000);
    let id = document.get_str("lockId").unwrap();
    let uuid = id.strip_prefix("billing#1#");
    let uuid = uuid.expect("the owner can be read from the id");
    assert!(mongodb::bson::Uuid::parse_str(uuid).is_ok(), "{id}");

    // S1.18: the document of a released lock stays.
    guard.release().await.unwrap();
    let released = fixture.document("report:1").await.unwrap();
    assert_eq!(fields(&released), FIELDS);
    assert_eq!(released.get_str("lockId"), Ok(""));
    assert_eq!(released.get("fencingToken"), document.get("fencingToken"));
    assert!(millis(&released, "expiresAt") < millis(&document, "expiresAt"));
    let _again = lock.acquire().await.unwrap();
    let next = fixture.lock_id("report:1").await;
    assert_ne!(next, id, "an id is never used again");
}

/// The types are none of a lock, and all but the first are such that the server cannot compare or calculate with them.
#[tokio::test]
async fn a_damaged_document_is_reported_and_not_held() {
    let fixture = Fixture::mongodb().await;
    let (time, increment) = (u32::MAX, 0);
    let timestamp = Bson::Timestamp(Timestamp { time, increment });
    let double = "`fencingToken` is not a 64-bit integer: its type is Double";
    let no_number = "a type that the server cannot calculate with";
    for (field, value, expected) in [
        ("fencingToken", Bson::from(1e300), double),
        ("fencingToken", "1".into(), no_number),
        ("expiresAt", Bson::MaxKey, "`expiresAt` is not a date"),
        ("expiresAt", timestamp, "`expiresAt` is not a date"),
    ] {
        let damaged = doc! { "_id": "bad", field: value.clone() };
        fixture.locks().insert_one(damaged).await.unwrap();
        match fixture.provider.lock("bad").acquire().await {
            Err(LockError::CorruptDocument { name, problem, .. }) => {
                assert!(name == "bad" && problem.contains(expected), "{problem}");
            }
            other => panic!("{other:?}"),
        }
        if expected == double {
            until("the claim is released", async || {
                fixture.lock_id("bad").await.is_empty()
            })
            .await;
        } else {
            let found = fixture.document("bad").await.unwrap();
            assert_eq!(found.get(field), Some(&value), "the field is unchanged");
        }
        fixture.locks().delete_one(doc! { "_id": "bad" }).await.unwrap();
    }
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

async fn next_token(provider: &LockProvider, name: &str) -> FencingToken {
    let guard = provider.lock(name).await.unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    token
}

/// S1.19, S1.9, B1, B17: the server removes the document. Its TTL monitor runs once a second in the tests.
#[tokio::test]
async fn tokens_rise_after_the_ttl_index_removed_the_document() {
    let fixture = Fixture::mongodb().await;
    let provider = fixture.with(|options| options.retention(Duration::from_secs(1)));
    let before = next_token(&provider, "swept").await;
    let held = provider.lock("held").await.unwrap();
    until("the server removes it", async || {
        fixture.document("swept").await.is_none()
    })
    .await;
    let kept = fixture.document("held").await;
    assert!(kept.is_some(), "the document of a held lock is never removed");
    assert!(next_token(&provider, "swept").await > before);
    held.release().await.unwrap();
}
