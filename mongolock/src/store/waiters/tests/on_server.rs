//! The documents of waiters on the server: damaged and expired ones, the form of the commands, and the indexes.

use mongodb::Collection;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongolock_tests::{TestDb, eventually, must, names, recorded, test_db};

use super::*;

fn documents(db: &TestDb) -> Collection<Document> {
    db.database().collection("locks.waiters")
}

/// The documents of expired waiters are ignored even while the TTL monitor has not removed them.
#[tokio::test]
async fn a_document_whose_time_is_over_is_ignored_and_can_be_prolonged() {
    let db = test_db().await;
    let (store, [expired, alive]) = (mongodb(db.database()), marks());
    enter_all(&store, "n", &[expired.clone(), alive.clone()]).await;
    let documents = documents(&db);
    let of = |provider: &ProviderMark| doc! { "provider": provider.as_str() };
    let past = doc! { "$set": { "until": DateTime::from_millis(0) } };
    documents.update_many(doc! {}, past).await.unwrap();
    assert!(order(&store, "n").await.is_empty());
    store
        .prolong_waits(&alive, &[Arc::from("n")], COMMAND_LIMIT)
        .await
        .unwrap();
    assert_eq!(order(&store, "n").await, texts(&[&alive]));

    let document = documents.find_one(of(&alive)).await.unwrap().unwrap();
    let (at, until) = (
        document.get_datetime("at").unwrap(),
        document.get_datetime("until").unwrap(),
    );
    let kept = until.timestamp_millis() - at.timestamp_millis();
    assert!((90_000..100_000).contains(&kept), "{kept} ms");
    let fields: Vec<&str> = document.keys().map(String::as_str).collect();
    let expected = [
        "_id", "at", "moment", "name", "owner", "provider", "since", "until",
    ];
    let mut sorted = fields.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
}

/// A hint that cannot be read says nothing, and the next move repairs it.
#[tokio::test]
async fn damaged_documents_are_ignored_and_repaired() {
    let db = test_db().await;
    let (store, [sound, damaged]) = (mongodb(db.database()), marks());
    let documents = documents(&db);
    let changes = [
        ("provider", Bson::Null, false),
        ("at", "now".into(), false),
        ("at", Bson::MaxKey, false),
        ("name", 7.into(), false),
        ("until", "never".into(), false),
        ("owner", 7.into(), true),
        ("since", "now".into(), true),
        ("moment", (-1).into(), true),
        ("moment", 1.5.into(), true),
        // What looks like a date, and cannot be read as one.
        ("unknown", doc! { "$date": "never" }.into(), true),
    ];
    enter_all(&store, "n", std::slice::from_ref(&sound)).await;
    for (field, value, is_kept) in changes {
        move_to_end(&store, "n", &damaged, None).await;
        let own = doc! { "provider": damaged.as_str() };
        let damage = doc! { "$set": { field: value.clone() } };
        documents.update_one(own, damage).await.unwrap();
        let line = line(&store, "n").await;
        assert_eq!(line.len(), 1 + usize::from(is_kept), "{field}: {value}");
        if let Some(read) = line.iter().find(|waiter| *waiter.provider == *damaged.as_str()) {
            let expected = if field == "moment" { 5 } else { 7 };
            assert_eq!(
                read.time_slot,
                Duration::from_millis(expected),
                "{field}: {value}"
            );
        }
        move_to_end(&store, "n", &damaged, Some(line[0].at)).await;
        assert_eq!(
            order(&store, "n").await,
            texts(&[&sound, &damaged]),
            "{field}: {value}"
        );
        store
            .leave_lines(&damaged, &[Arc::from("n")], COMMAND_LIMIT)
            .await
            .unwrap();
        assert_eq!(
            documents.count_documents(doc! {}).await.unwrap(),
            1,
            "{field}: {value}"
        );
    }
}

#[tokio::test]
async fn a_dropped_collection_costs_places_and_no_errors() {
    let db = test_db().await;
    let (store, [a, b]) = (mongodb(db.database()), marks());
    let names = [Arc::from("n")];
    assert!(store.lines(&names, COMMAND_LIMIT).await.unwrap().is_empty());
    store.prolong_waits(&a, &names, COMMAND_LIMIT).await.unwrap();
    store.leave_lines(&a, &names, COMMAND_LIMIT).await.unwrap();
    enter_all(&store, "n", &[a.clone(), b.clone()]).await;
    documents(&db).drop().await.unwrap();
    store.prolong_waits(&a, &names, COMMAND_LIMIT).await.unwrap();
    assert!(order(&store, "n").await.is_empty());
    move_to_end(&store, "n", &b, None).await;
    assert_eq!(order(&store, "n").await, texts(&[&b]));
}

/// Hints wait for no majority, have a limit at the server, and go to the primary; one query reads many lines.
#[tokio::test]
async fn the_commands_are_those_of_hints() {
    let db = test_db().await;
    let parameters = [
        "w=majority",
        "readPreference=secondary",
        "readConcernLevel=majority",
    ];
    let (database, commands) = recorded(&db, &parameters).await;
    let (store, [a]) = (mongodb(&database), marks());
    let limit = Duration::from_millis(1234);
    let of: Vec<Arc<str>> = (0..50).map(|name| Arc::from(name.to_string())).collect();
    let entries: Vec<WaiterEntry> = of.iter().map(|name| entry(name, &a)).collect();
    store.move_to_end(&entries, limit).await.unwrap();
    store.prolong_waits(&a, &of, limit).await.unwrap();
    assert_eq!(store.lines(&of, limit).await.unwrap().len(), of.len());
    store.leave_lines(&a, &of, limit).await.unwrap();
    let sent = commands.take();
    assert_eq!(names(&sent), ["update", "update", "find", "delete"]);
    for command in sent {
        let text = command.to_string();
        assert!(text.contains("\"maxTimeMS\": 1234"), "{text}");
        assert!(!text.contains("secondary"), "{text}");
        if command.contains_key("find") {
            let concern = command.get_document("readConcern").unwrap();
            assert_eq!(concern.get_str("level").ok(), Some("local"), "{text}");
        } else {
            let concern = command.get_document("writeConcern").unwrap();
            assert_eq!(concern.get("w"), Some(&Bson::Int32(1)), "{text}");
        }
    }
}

#[tokio::test]
async fn the_indexes_are_created_once_and_remove_expired_waiters() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[]).await;
    let store = MongoStore::new(&database, "locks", None, Arc::default());
    assert_eq!(store.ensure_waiters_indexes().await, IndexState::Ready);
    assert_eq!(commands.count("createIndexes"), 1);
    let build = commands
        .take()
        .into_iter()
        .find(|command| command.contains_key("createIndexes"));
    assert!(build.unwrap().to_string().contains("\"maxTimeMS\": 1000"));
    assert_eq!(store.ensure_waiters_indexes().await, IndexState::Ready);
    assert_eq!(names(&commands.take()), ["listIndexes"]);

    // The order of a line comes from the index: nothing is sorted in memory.
    let explain = doc! { "explain": {
        "find": "locks.waiters",
        "filter": { "name": { "$in": ["a", "b"] }, "$expr": { "$gt": ["$until", "$$NOW"] } },
        "sort": { "name": 1, "at": 1, "_id": 1 },
    } };
    let plan = db.database().run_command(explain).await.unwrap();
    let plan = plan
        .get_document("queryPlanner")
        .unwrap()
        .get("winningPlan")
        .unwrap()
        .to_string();
    assert!(plan.contains("\"line\"") && !plan.contains("\"SORT\""), "{plan}");

    let (store, [expired, alive]) = (Store::Mongo(Opaque::new(store)), marks());
    enter_all(&store, "n", &[expired.clone(), alive.clone()]).await;
    let past = doc! { "$set": { "until": DateTime::from_millis(0) } };
    let documents = documents(&db);
    documents
        .update_one(doc! { "provider": expired.as_str() }, past)
        .await
        .unwrap();
    let swept = async || (documents.count_documents(doc! {}).await.ok()? == 1).then_some(());
    must(eventually(AMPLE, "the TTL monitor removes the document", swept).await);
    assert_eq!(order(&store, "n").await, texts(&[&alive]));
}
