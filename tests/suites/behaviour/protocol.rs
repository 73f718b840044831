//! The commands and the documents, as another program on the same collection sees them.

use std::time::Duration;

use mongodb::bson::{Bson, Document, Timestamp, doc};
use mongolock::{IndexState, LockError, LockProvider};
use mongolock_tests::{eventually, must};
use tokio::time::sleep;

use crate::fixture::{AMPLE, Fixture, names, recorded};

/// S1.3, S1.7, S1.8, S1.16, S0.15, S2.2, S2.4, S3.5
#[tokio::test]
async fn a_held_lock_is_one_document_of_five_fields() {
    let fixture = Fixture::mongodb().await;
    let provider = fixture.provider.another().owner("billing#1").build().unwrap();
    let guard = provider
        .lock("report:1")
        .expiry(Duration::from_secs(60))
        .acquire()
        .await
        .unwrap();
    let document = fixture.document("report:1").await.unwrap();
    let mut fields: Vec<&str> = document.keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        ["_id", "acquiredAt", "expiresAt", "fencingToken", "lockId"]
    );
    assert_eq!(
        document.get_i64("fencingToken").unwrap(),
        guard.fencing_token().get()
    );
    let acquired = document.get_datetime("acquiredAt").unwrap().timestamp_millis();
    let expires = document.get_datetime("expiresAt").unwrap().timestamp_millis();
    assert_eq!(expires - acquired, 60_000);
    let id = document.get_str("lockId").unwrap();
    let uuid = id
        .strip_prefix("billing#1#")
        .expect("the owner can be read from the id");
    assert!(mongodb::bson::Uuid::parse_str(uuid).is_ok(), "{id}");

    guard.release().await.unwrap();
    let again = provider.lock("report:1").await.unwrap();
    let next = fixture.document("report:1").await.unwrap();
    assert_ne!(next.get_str("lockId").unwrap(), id, "an id is never used again");
    again.release().await.unwrap();
}

/// S1.18: released is free at once, and the document stays.
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

/// S0.7: one command acquires and one releases, whatever the driver does besides.
#[tokio::test]
async fn a_hold_costs_two_commands() {
    let fixture = Fixture::mongodb().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let provider = LockProvider::new(&database);
    provider.lock("warm").await.unwrap().release().await.unwrap();
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
    commands.take();
    for _ in 0..10 {
        provider.lock("hot").await.unwrap().release().await.unwrap();
    }
    let sent = commands.take();
    let own: Vec<&str> = names(&sent)
        .into_iter()
        .filter(|name| *name != "listCollections")
        .collect();
    assert_eq!(own, ["findAndModify", "update"].repeat(10));
}

/// S0.7, S1.17: a failed attempt leaves the document as it is, to the byte, and writes nothing to the oplog.
#[tokio::test]
async fn a_failed_attempt_changes_nothing() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    let _held = fixture.provider.lock("held").await.unwrap();
    let oplog = fixture
        .database()
        .client()
        .database("local")
        .collection::<mongodb::bson::Document>("oplog.rs");
    let entries = async || {
        let namespace = format!("{}.distributed_locks", fixture.database().name());
        oplog
            .count_documents(doc! { "ns": namespace, "op": { "$in": ["i", "u", "d"] } })
            .await
            .unwrap()
    };
    let raw = fixture.locks().clone_with_type::<mongodb::bson::RawDocumentBuf>();
    let before = (
        raw.find_one(doc! { "_id": "held" }).await.unwrap().unwrap(),
        entries().await,
    );
    let rival = fixture.rival().lock("held");
    for _ in 0..20 {
        assert!(rival.try_acquire().await.unwrap().is_none());
    }
    let after = (
        raw.find_one(doc! { "_id": "held" }).await.unwrap().unwrap(),
        entries().await,
    );
    assert_eq!(before.0.as_bytes(), after.0.as_bytes());
    assert_eq!(before.1, after.1);
}

/// S1.23: the new expiry counts from the renewal, not from the old expiry.
#[tokio::test]
async fn a_renewal_counts_from_the_servers_now() {
    let fixture = Fixture::mongodb().await;
    let expiry = Duration::from_secs(2);
    let lock = fixture
        .provider
        .lock("renewed")
        .expiry(expiry)
        .renew_interval(Duration::from_millis(100));
    let guard = lock.acquire().await.unwrap();
    let first = fixture.document("renewed").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let later = fixture.document("renewed").await.unwrap();
    let moved = later.get_datetime("expiresAt").unwrap().timestamp_millis()
        - first.get_datetime("expiresAt").unwrap().timestamp_millis();
    // Ten intervals at least have passed; had each added the expiry, it would be twenty seconds.
    assert!((500..10_000).contains(&moved), "{moved} ms");
    assert_eq!(later.get("acquiredAt"), first.get("acquiredAt"));
    assert_eq!(later.get("fencingToken"), first.get("fencingToken"));
    guard.release().await.unwrap();
}

/// S3.1, B12: whatever the client's own settings are.
#[tokio::test]
async fn majority_and_primary_are_set_on_every_command() {
    let fixture = Fixture::mongodb().await;
    let (database, commands) = recorded(
        fixture.db(),
        &["w=1", "readPreference=secondary", "readConcernLevel=local"],
    )
    .await;
    let provider = LockProvider::new(&database);
    let lock = provider.lock("safe").expiry(Duration::from_millis(600));
    let guard = lock.acquire().await.unwrap();
    commands.until_sent("update").await;
    guard.release().await.unwrap();
    drop(lock.acquire().await.unwrap());
    must(
        eventually(AMPLE, "the dropped guard is released", async || {
            lock.try_acquire().await.unwrap().map(drop)
        })
        .await,
    );
    let sent = commands.take();
    let writes = sent
        .iter()
        .filter(|c| c.contains_key("findAndModify") || c.contains_key("update"));
    let mut seen = 0;
    for command in writes {
        assert_eq!(
            command.get_document("writeConcern").unwrap().get_str("w"),
            Ok("majority"),
            "{command}"
        );
        assert!(
            command
                .get("$readPreference")
                .is_none_or(|p| p.as_document() == Some(&doc! { "mode": "primary" }))
        );
        seen += 1;
    }
    assert!(seen >= 5, "{seen}");
}

/// S3.8, S2.10, S2.6: by hand, with the document's name, the lock is anybody's to free; its holder hears of it.
#[tokio::test]
async fn only_ones_own_claim_is_released() {
    let fixture = Fixture::mongodb().await;
    let guard = fixture.provider.lock("mine").await.unwrap();
    let foreign = doc! { "$set": { "lockId": "somebody#else" } };
    fixture
        .locks()
        .update_one(doc! { "_id": "mine" }, foreign)
        .await
        .unwrap();
    let before = fixture.document("mine").await.unwrap();
    let error = guard.release().await.unwrap_err();
    assert!(
        matches!(&error, LockError::Lost { name, .. } if name == "mine"),
        "{error}"
    );
    assert_eq!(fixture.document("mine").await.unwrap(), before);
}

/// S2.1: the lock is a document of its own; what it protects is never touched.
#[tokio::test]
async fn the_locked_document_is_left_alone() {
    let fixture = Fixture::mongodb().await;
    let orders = fixture.database().collection("orders");
    let order = doc! { "_id": "order:1", "total": 7 };
    orders.insert_one(&order).await.unwrap();
    let guard = fixture.provider.lock("order:1").await.unwrap();
    assert_eq!(orders.find_one(doc! {}).await.unwrap().as_ref(), Some(&order));
    guard.release().await.unwrap();
    assert_eq!(orders.find_one(doc! {}).await.unwrap(), Some(order));
}

/// S3.2, S0.12: names are unique by `_id`; a name that looks like an expression is only a name.
#[tokio::test]
async fn strings_of_the_caller_are_only_strings() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    let provider = fixture.provider.another().owner("$$NOW").build().unwrap();
    for name in ["$expiresAt", "$$NOW", "{ $gt: 0 }", "a.b"] {
        let guard = provider.lock(name).await.unwrap();
        let document = fixture.document(name).await.unwrap();
        assert!(document.get_str("lockId").unwrap().starts_with("$$NOW#"));
        assert!(fixture.rival().lock(name).try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
    assert_eq!(fixture.locks().count_documents(doc! {}).await.unwrap(), 4);
}

/// What acquiring finds wrong with a document that somebody else has written.
async fn problem_of(fixture: &Fixture, document: Document) -> String {
    fixture.locks().insert_one(document).await.unwrap();
    match fixture.provider.lock("bad").acquire().await {
        Err(LockError::CorruptDocument { name, problem }) if name == "bad" => problem,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_damaged_document_is_reported_and_not_held() {
    let fixture = Fixture::mongodb().await;
    let problem = problem_of(&fixture, doc! { "_id": "bad", "fencingToken": 1e300 }).await;
    assert_eq!(
        problem,
        "`fencingToken` is not a 64-bit integer, its type is Double"
    );
    must(
        eventually(AMPLE, "the claim is withdrawn", async || {
            (fixture.document("bad").await?.get("lockId") == Some(&Bson::from(""))).then_some(())
        })
        .await,
    );
}

/// The server itself cannot make anything of these.
#[tokio::test]
async fn a_field_of_another_type_is_a_damaged_document() {
    let fixture = Fixture::mongodb().await;
    for (field, value) in [
        ("fencingToken", Bson::from("1")),
        ("expiresAt", Bson::MaxKey),
        (
            "expiresAt",
            Bson::Timestamp(Timestamp {
                time: u32::MAX,
                increment: 0,
            }),
        ),
    ] {
        let problem = problem_of(&fixture, doc! { "_id": "bad", field: value.clone() }).await;
        assert!(
            problem.contains("a type that the server cannot compute with"),
            "{problem}"
        );
        let found = fixture.document("bad").await.unwrap();
        assert_eq!(found.get(field), Some(&value), "it is left as it was");
        fixture.locks().delete_one(doc! { "_id": "bad" }).await.unwrap();
    }
}

/// S0.12: a duplicate key, whatever it comes from, is "not acquired" and no error of the caller.
#[tokio::test]
async fn a_duplicate_key_is_a_busy_lock() {
    let fixture = Fixture::mongodb().await;
    let _first = fixture.provider.lock("first").await.unwrap();
    let unique = mongodb::options::IndexOptions::builder().unique(true).build();
    let index = mongodb::IndexModel::builder()
        .keys(doc! { "missing": 1 })
        .options(unique)
        .build();
    fixture.locks().create_index(index).await.unwrap();
    let second = fixture
        .provider
        .lock("second")
        .acquire_timeout(Duration::from_millis(100));
    assert!(second.try_acquire().await.unwrap().is_none());
    assert!(matches!(second.acquire().await, Err(LockError::Timeout { .. })));
}

/// S1.7, S1.8
#[tokio::test]
async fn a_collection_of_ones_own_is_created_by_use() {
    let fixture = Fixture::mongodb().await;
    let provider = fixture.provider.another().collection("my.locks").build().unwrap();
    assert!(
        fixture
            .database()
            .list_collection_names()
            .await
            .unwrap()
            .is_empty()
    );
    provider.lock("here").await.unwrap().release().await.unwrap();
    let mine = fixture
        .database()
        .collection::<mongodb::bson::Document>("my.locks");
    assert_eq!(mine.count_documents(doc! { "_id": "here" }).await.unwrap(), 1);
    assert!(
        !fixture
            .database()
            .list_collection_names()
            .await
            .unwrap()
            .contains(&"distributed_locks".to_owned())
    );
}

/// S3.9: the holder's lease has run out, and it renews in the moment between the rival's look and its attempt.
#[tokio::test]
async fn a_renewal_between_a_look_and_an_attempt_wins() {
    let fixture = Fixture::mongodb().await;
    let _guard = fixture.provider.lock("renewing").await.unwrap();
    let past = doc! { "$set": { "expiresAt": mongodb::bson::DateTime::from_millis(0) } };
    fixture
        .locks()
        .update_one(doc! { "_id": "renewing" }, past)
        .await
        .unwrap();
    let seen = fixture.document("renewing").await.unwrap();
    assert_eq!(
        seen.get_datetime("expiresAt").unwrap().timestamp_millis(),
        0,
        "a rival sees it expired"
    );
    let renewal = vec![doc! { "$set": { "expiresAt": { "$add": ["$$NOW", 30_000_i64] } } }];
    let own = doc! { "_id": "renewing", "lockId": seen.get_str("lockId").unwrap() };
    assert_eq!(
        fixture
            .locks()
            .update_one(own, renewal)
            .await
            .unwrap()
            .matched_count,
        1
    );
    assert!(
        fixture
            .rival()
            .lock("renewing")
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
}

/// B18: fifty wait, one of them asks.
#[tokio::test]
async fn waiters_of_one_process_ask_one_at_a_time() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let pause = Duration::from_millis(100);
    let provider = LockProvider::builder(&database)
        .retry_interval(pause..=pause)
        .build()
        .unwrap();
    let held = fixture.rival().lock("crowded").await.unwrap();
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let lock = provider.lock("crowded").acquire_timeout(AMPLE);
        waiters.spawn(async move { lock.acquire().await.unwrap().release().await });
    }
    sleep(pause * 10).await;
    let asked = names(&commands.take())
        .into_iter()
        .filter(|name| *name == "findAndModify")
        .count();
    assert!((2..=11).contains(&asked), "{asked} attempts in ten pauses");
    held.release().await.unwrap();
    while let Some(done) = waiters.join_next().await {
        done.unwrap().unwrap();
    }
}

/// B19: a hundred locks, a handful of commands.
#[tokio::test]
async fn many_locks_are_renewed_together() {
    let fixture = Fixture::mongodb().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let provider = LockProvider::builder(&database)
        .expiry(Duration::from_secs(3))
        .build()
        .unwrap();
    let mut guards = Vec::new();
    for index in 0..100 {
        guards.push(provider.lock(index).await.unwrap());
    }
    commands.take();
    sleep(Duration::from_secs(5)).await;
    let renewals = names(&commands.take())
        .into_iter()
        .filter(|name| *name == "update")
        .count();
    assert!(
        (4..=20).contains(&renewals),
        "{renewals} renewals in five intervals"
    );
    for guard in guards {
        assert!(!guard.is_lost());
        guard.release().await.unwrap();
    }
}
