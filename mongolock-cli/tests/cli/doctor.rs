//! `doctor`: what it finds, and that it changes nothing.

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongolock::IndexState;
use mongolock_tests::{LentServer, ServerOptions, TestDb, locks, must, one_clock_ahead, test_db};
use serde_json::Value;

use crate::fixture::{assert_fields, mongolock, output, provider, restricted};

/// The fields of `--json`, as the help lists them.
pub(crate) const FIELDS: &str = "check state finding mend";

/// The findings of a check, each as its state and the whole.
fn findings(db: &TestDb, uri: &str) -> (Option<i32>, Vec<Value>) {
    let mut command = mongolock(db, &["doctor", "--json"]);
    command.env("MONGODB_URI", uri);
    let (code, out, said) = output(command);
    assert_eq!(said, "");
    assert!(!out.contains("S3cr3t"), "{out}");
    let all: Vec<Value> = out.lines().map(|line| must(serde_json::from_str(line))).collect();
    assert_fields(&all, FIELDS);
    (code, all)
}

fn of<'a>(all: &'a [Value], check: &str) -> Vec<(&'a str, &'a Value)> {
    let found = all.iter().filter(|finding| finding["check"] == check);
    found
        .map(|finding| (finding["state"].as_str().unwrap_or("-"), finding))
        .collect()
}

/// The state of the first finding of a check.
fn state<'a>(all: &'a [Value], check: &str) -> &'a str {
    of(all, check)[0].0
}

/// A text of the first finding of a check.
fn text<'a>(all: &'a [Value], check: &str, field: &str) -> &'a str {
    of(all, check)[0].1[field].as_str().unwrap_or_default()
}

/// Creates an index of the locks.
async fn create_index(db: &TestDb, index: Document) {
    let create = doc! { "createIndexes": "distributed_locks", "indexes": [index] };
    must(db.database().run_command(create).await);
}

#[tokio::test]
async fn a_sound_deployment_is_ok() {
    let db = test_db().await;
    let provider = provider(&db).await;
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
    must(must(provider.lock("a").acquire().await).release().await);
    let (code, all) = findings(&db, db.uri());
    assert!(all.iter().all(|finding| finding["state"] == "ok"), "{all:#?}");
    assert_eq!(code, Some(0));
    let checks = "connection, deployment, privileges, TTL index, TTL monitor, write concern, majority write, write of locks, \
                  change streams, documents, clocks";
    let found = all.iter().filter_map(|finding| finding["check"].as_str());
    assert_eq!(found.collect::<Vec<_>>().join(", "), checks);
    for (check, words) in [
        ("deployment", "with 1 member that is primary"),
        ("write concern", "majority (1 member); 1 of 1 is there"),
        ("documents", "1 lock, none damaged"),
    ] {
        let said = text(&all, check, "finding");
        assert!(said.ends_with(words), "{said}");
    }
}

#[tokio::test]
async fn damage_is_found_and_nothing_is_changed() {
    let db = test_db().await;
    let collection = locks(db.database());
    let now = DateTime::now();
    let documents = [
        doc! { "_id": "broken\x1b", "lockId": 7 },
        doc! { "_id": 17 },
        doc! { "_id": "s", "lockId": "bert#1", "acquiredAt": now, "expiresAt": now, "fencingToken": 1_i64 },
        doc! { "_id": "s\u{1f}2", "lockId": "anna#1", "expiresAt": "soon" },
        doc! { "_id": "s\u{1f}3", "lockId": "anna#2", "expiresAt": "soon" },
    ];
    must(collection.insert_many(documents).await);
    let (code, all) = findings(&db, db.uri());
    assert_eq!(code, Some(1));
    let documents = of(&all, "documents");
    assert_eq!(documents.len(), 4, "{all:#?}");
    for (state, finding) in documents.into_iter().chain(of(&all, "TTL index")) {
        assert_eq!(state, "wrong", "{finding}");
        assert!(finding["mend"].is_string(), "{finding}");
    }
    for (said, mend) in [
        ("; lockId 7, expiresAt none", "mongolock release 'broken\u{1b}'"),
        (r#"; lockId "anna#1", expiresAt "soon""#, "release s --permit 2"),
        (r#"; lockId "anna#2", expiresAt "soon""#, "release s --permit 3"),
    ] {
        let ends = |finding: &Value, field: &str, with: &str| {
            finding[field].as_str().is_some_and(|text| text.ends_with(with))
        };
        let is_named = |finding: &&Value| ends(finding, "finding", said) && ends(finding, "mend", mend);
        assert_eq!(all.iter().filter(is_named).count(), 1, "{mend}: {all:#?}");
    }
    let indexes = must(collection.list_index_names().await);
    assert_eq!(indexes, ["_id_"], "the index is not built");
    assert_eq!(must(collection.count_documents(doc! {}).await), 5);
    // The commands that are printed mend it, but for an id that no lock can have.
    for release in ["broken\x1b", "s --permit 2", "s --permit 3"] {
        let arguments = ["release", "--yes"].into_iter().chain(release.split(' '));
        let arguments: Vec<&str> = arguments.collect();
        assert_eq!(output(mongolock(&db, &arguments)).0, Some(0), "{release:?}");
    }
    assert_eq!(of(&findings(&db, db.uri()).1, "documents").len(), 1);

    // The command that is printed mends it.
    let mend = text(&all, "TTL index", "mend");
    assert!(mend.contains("createIndex({ expiresAt: 1 }"), "{mend}");
    let index = doc! { "key": { "expiresAt": 1 }, "name": "expiresAt_ttl", "expireAfterSeconds": 86400 };
    create_index(&db, index).await;
    must(collection.delete_many(doc! {}).await);
    assert_eq!(findings(&db, db.uri()).0, Some(0));
    let (_, text, _) = output(mongolock(&db, &["doctor"]));
    assert!(text.starts_with("ok       connection"), "{text}");
}

/// Times that only a wrong clock can have set, each with the command that releases the lock; not those of a lock that is free.
#[tokio::test]
async fn times_that_no_lease_can_have_are_found() {
    const DAY: i64 = 86_400_000;
    let db = test_db().await;
    let provider = provider(&db).await;
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
    let now = DateTime::now().timestamp_millis();
    let lock = |id: &str, lock_id: &str, begin: i64, end: i64| {
        let [begin, end] = [begin, end].map(|time| DateTime::from_millis(now + time));
        doc! { "_id": id, "lockId": lock_id, "acquiredAt": begin, "expiresAt": end, "fencingToken": 1_i64 }
    };
    let documents = [
        lock("early", "anna#1", 3_600_000, 3_630_000),
        lock("s\u{1f}2", "anna#1", 0, 8 * DAY),
        lock("kept", "kept:anna#1", 3_600_000, 3_630_000),
        lock("mark", "done:anna#1", 0, 400 * DAY),
        lock("sound", "anna#1", -1000, 7 * DAY),
        lock("sound mark", "done:anna#1", -1000, 300 * DAY),
        lock("free", "", 3_600_000, 3_600_000),
        lock("over", "anna#1", -2000, -1000),
    ];
    must(locks(db.database()).insert_many(documents).await);
    let (code, all) = findings(&db, db.uri());
    assert_eq!(code, Some(1));
    let documents = of(&all, "documents").into_iter();
    let found = documents.map(|(_, finding)| {
        let text = |field: &str| finding[field].as_str().unwrap_or_default();
        let said = text("finding").split(", at").next().unwrap_or_default();
        (said, text("mend").rsplit(": ").next().unwrap_or_default())
    });
    let found: Vec<(&str, &str)> = found.collect();
    let too_late = "ends later than any lease or mark can";
    let wanted = [
        ("early begins in the future", "mongolock release early"),
        ("kept begins in the future", "mongolock release kept"),
        (&format!("mark {too_late}"), "mongolock release mark --done"),
        (&format!("s #2 {too_late}"), "mongolock release s --permit 2"),
    ];
    assert_eq!(found, wanted, "{all:#?}");

    // The commands that are printed mend it.
    for (_, command) in found {
        let arguments: Vec<&str> = command.split(' ').skip(1).chain(["--yes"]).collect();
        assert_eq!(output(mongolock(&db, &arguments)).0, Some(0), "{command}");
    }
    assert_eq!(findings(&db, db.uri()).0, Some(0));
}

#[tokio::test]
async fn missing_rights_are_found_one_by_one() {
    let db = test_db().await;
    let (server, uri) = restricted(&db, &["find", "update"]).await;
    let (code, all) = findings(&db, &uri);
    assert_eq!(code, Some(1));
    let rights = of(&all, "privileges");
    assert_eq!(rights.len(), 6);
    let found: Vec<bool> = rights.iter().map(|(state, _)| *state == "ok").collect();
    let wanted = [true, false, true, false, false, false];
    assert_eq!(found, wanted, "{all:#?}");
    assert_eq!(state(&all, "TTL index"), "unknown");
    assert_eq!(state(&all, "write concern"), "unknown");
    assert_eq!(state(&all, "change streams"), "wrong");

    // The command that is printed grants the right.
    let mend = rights[1].1["mend"].as_str().unwrap_or_default();
    assert!(mend.contains("grantPrivilegesToRole"), "{mend}");
    assert!(mend.contains(r#"actions: ["insert"]"#), "{mend}");
    let resource = doc! { "db": db.name(), "collection": "distributed_locks" };
    let grant: Document = doc! { "grantPrivilegesToRole": "reader",
    "privileges": [{ "resource": resource, "actions": ["insert"] }] };
    let app = must(server.client().await).database(db.name());
    must(app.run_command(grant).await);
    assert_eq!(of(&findings(&db, &uri).1, "privileges")[1].0, "ok");
}

/// What the library says about the index and its collection is what is found, and the command that is printed mends it.
#[tokio::test]
async fn the_library_judges_the_index() {
    let index = |name: &str, seconds: i32| doc! { "key": { "expiresAt": 1 }, "name": name, "expireAfterSeconds": seconds };
    for (index, retention) in [
        (index("expiresAt_ttl", 60), "1d"),
        (index("mine", 86_400), "1d"),
        (index("expiresAt_ttl", 86_400), "7d"),
    ] {
        let db = test_db().await;
        let named = index.get_str("name").unwrap_or_default().to_owned();
        create_index(&db, index).await;
        let found = || {
            let (_, out, _) = output(mongolock(&db, &["doctor", "--json", "--retention", retention]));
            let mut all = out.lines().map(|line| must(serde_json::from_str::<Value>(line)));
            all.find(|finding| finding["check"] == "TTL index")
                .expect("it is checked")
        };
        let seconds = if retention == "1d" { 86_400 } else { 604_800 };
        let builder = provider(&db).await.to_builder();
        let library = must(builder.retention(Duration::from_secs(seconds)).build()).admin();
        let finding = found();
        assert_eq!(finding["state"], "wrong", "{finding}");
        // The library's text ends with a command, which `doctor` prints once.
        let said = library.inspect_index().await.to_string();
        assert_eq!(finding["finding"].as_str(), said.split("; in mongosh: ").next());
        let create = format!(
            "db.getCollection(\"distributed_locks\").createIndex({{ expiresAt: 1 }}, {{ name: \"expiresAt_ttl\", \
             expireAfterSeconds: {seconds} }})"
        );
        let mend = format!(
            "/* only if the retention of the providers is {seconds} s; else: mongolock doctor --retention TIME */ \
             db.getCollection(\"distributed_locks\").dropIndex(\"{named}\"); {create}"
        );
        assert_eq!(finding["mend"], mend);
        must(locks(db.database()).drop_index(named).await);
        let finding = found();
        assert_eq!(finding["state"], "wrong");
        assert_eq!(finding["mend"], create);
        assert_eq!(library.index_state().await, IndexState::Ready);
        assert_eq!(found()["state"], "ok");
    }
}

/// It is supported, with limits that the finding names.
#[tokio::test]
async fn a_standalone_server_is_ok_with_its_limits() {
    let server = must(LentServer::standalone().await);
    let db = test_db().await;
    let (code, all) = findings(&db, &server.uri());
    assert_eq!(code, Some(0), "{all:#?}");
    let limits = ["commits", "`mongolock watch`", "poll", "crash"];
    for (check, words) in [("deployment", &limits[..]), ("change streams", &limits[1..3])] {
        assert_eq!((of(&all, check).len(), state(&all, check)), (1, "ok"), "{all:#?}");
        let said = text(&all, check, "finding");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    let mend = text(&all, "deployment", "mend");
    assert!(mend.contains("rs.initiate()"), "{mend}");
}

/// The clocks of three members, of which one is ahead; and then that of a member that does not answer.
#[tokio::test]
async fn the_clocks_of_all_members_are_compared() {
    let db = test_db().await;
    let directory = must(tempfile::tempdir());
    let ahead = Duration::from_secs(20);
    let options = ServerOptions::three_members().election_timeout(Duration::from_secs(10));
    let server = one_clock_ahead(options, directory.path(), ahead).await;
    let (code, all) = findings(&db, &server.uri());
    assert_eq!(code, Some(1));
    let clocks = of(&all, "clocks");
    assert_eq!((clocks.len(), clocks[0].0), (1, "wrong"), "{all:#?}");
    let said = text(&all, "clocks", "finding");
    assert!(said.contains("(3 members)"), "{said}");
    assert!(said.contains(" is ahead of "), "{said}");
    let apart = said.split("s apart").next().unwrap_or_default();
    let apart: f64 = must(apart.parse());
    assert!((apart - 20.0).abs() < 1.0, "{said}");
    assert_eq!(state(&all, "deployment"), "ok");
    assert_eq!(state(&all, "write concern"), "ok");

    let secondaries = server.secondaries().await;
    let stopped = secondaries.first().expect("there are two");
    must(stopped.stop());
    // It counts as there until its heartbeat times out.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (_, all) = findings(&db, &server.uri());
    must(stopped.resume());
    let silent = format!("2 of 3 are there; no heartbeat of {}", stopped.address());
    let found = text(&all, "write concern", "finding");
    assert!(found.contains(&silent), "{found}");
    let clocks = of(&all, "clocks");
    assert_eq!((clocks.len(), clocks[0].0), (2, "unknown"), "{all:#?}");
    let unreached = text(&all, "clocks", "finding");
    assert!(unreached.starts_with(stopped.address()), "{unreached}");
    let compared = clocks[1].1["finding"].as_str().unwrap_or_default();
    assert!(compared.contains("(2 members)"), "{compared}");
}
