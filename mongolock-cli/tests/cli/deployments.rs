//! Deployments on which no lock can be acquired, or held locks get lost, although a server answers: `doctor` says so.

use std::thread;

use mongodb::bson::{Bson, DateTime, Document, doc};
use mongolock::{IndexState, LockProvider};
use mongolock_tests::{LentServer, Set, TestDb, locks, must, test_db, until};

use crate::fixture::{at, mongolock, output, provider};

/// What `doctor` says of a write that no majority has.
const UNCONFIRMED: &str = "no majority of the members confirms a write within 5.0s";

/// Asserts that `doctor` exits with 1, and that the first line with something wrong is of this check and has these words. Returns
/// all lines.
fn assert_wrong(db: &TestDb, uri: &str, check: &str, words: &str) -> String {
    let (code, out, said) = output(at(uri, db, &["doctor"]));
    assert_eq!((code, said.as_str()), (Some(1), ""), "{out}");
    let wrong = out.lines().find(|line| line.starts_with("WRONG"));
    let wrong = wrong.unwrap_or_else(|| panic!("nothing is wrong: {out}"));
    assert!(wrong.contains(check), "{check}, {words}: {out}");
    assert!(wrong.contains(words), "{check}, {words}: {out}");
    out
}

fn direct(set: &Set, member: usize) -> String {
    format!("mongodb://{}/?directConnection=true", set.address(member))
}

async fn until_down(set: &Set, member: i32) {
    let down = (Ok(member), Ok(8));
    until("a member that is down", async || {
        let status = set.run(0, doc! { "replSetGetStatus": 1 }).await;
        let mut members = must(status.get_array("members"))
            .iter()
            .filter_map(Bson::as_document);
        members.any(|found| (found.get_i32("_id"), found.get_i32("state")) == down)
    })
    .await;
}

/// Writes without waiting for other members.
async fn write(set: &Set) {
    let note = doc! { "appendOplogNote": 1, "data": {}, "writeConcern": { "w": 1 } };
    set.run(0, note).await;
}

/// The arbiter keeps the primary in office, and confirms nothing.
#[tokio::test]
async fn an_arbiter_and_one_of_two_members() {
    let db = test_db().await;
    let set = Set::start("arbiter", &[doc! {}, doc! {}, doc! { "arbiterOnly": true }]).await;
    must(set.node(1).kill().await);
    until_down(&set, 1).await;
    // The write of doctor changes nothing, and what was written before is confirmed.
    write(&set).await;
    let uri = format!("mongodb://{}/?replicaSet=arbiter", set.address(0));
    let there = "majority (2 members); 1 of 3 is there";
    let out = assert_wrong(&db, &uri, "write concern", there);
    assert!(out.contains(UNCONFIRMED), "{out}");
}

#[tokio::test]
async fn a_member_that_applies_nothing_or_late_and_one_that_is_no_primary() {
    let db = test_db().await;
    let set = Set::start("late", &[doc! {}, doc! {}]).await;
    let uri = format!("mongodb://{}/?replicaSet=late", set.address(0));
    let (code, out, _) = output(at(&uri, &db, &["doctor"]));
    assert_eq!(code, Some(0), "{out}");
    assert_wrong(&db, &direct(&set, 1), "deployment", "this member is no primary");

    let app = must(set.node(0).client().await).database(db.name());
    let provider = LockProvider::new(&app);
    must(must(provider.lock("a").acquire().await).release().await);
    // The build of an index would wait for the member that applies nothing.
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
    set.run(1, doc! { "fsync": 1, "lock": true }).await;
    write(&set).await;
    thread::scope(|scope| {
        scope.spawn(|| {
            // The past is read from what a majority has.
            let (code, _, said) = output(at(&uri, &db, &["log"]));
            let reason = "no majority of the replica set has confirmed a write since 20";
            assert!(code == Some(125) && said.contains(reason), "{said}");
        });
        scope.spawn(|| assert_wrong(&db, &uri, "majority write", UNCONFIRMED));
        // Options of the string are for other programs: a tag that no member has, and a member that lags.
        for options in [
            "readPreference=secondary",
            "readPreference=secondary&readPreferenceTags=dc:none",
            "readConcernLevel=linearizable",
            "w=7",
        ] {
            let found = "ok       documents       1 lock, none damaged";
            for (command, words) in [(&["show", "a"][..], "released"), (&["doctor"], found)] {
                let program = at(&format!("{uri}&{options}"), &db, command);
                scope.spawn(move || {
                    let (code, out, said) = output(program);
                    let all = format!("{options}: {out}{said}");
                    assert!(out.contains(words), "{all}");
                    assert!(code == Some(0) || command == ["doctor"], "{all}");
                });
            }
        }
    });
    // The member counts as late only when it has been for a while.
    let late = "WRONG    write concern   majority (2 members); 1 of 2 is there";
    until("a member that is late", async || {
        write(&set).await;
        output(at(&uri, &db, &["doctor"])).1.contains(late)
    })
    .await;
    set.run(1, doc! { "fsyncUnlock": 1 }).await;

    let hidden = doc! { "hidden": true, "secondaryDelaySecs": 3600 };
    let config = set.config(2, &[doc! {}, hidden]);
    let reconfigure = doc! { "replSetReconfig": config, "force": true };
    set.run(0, reconfigure).await;
    assert_wrong(&db, &uri, "write concern", "applies writes 1h");
}

#[tokio::test]
async fn a_member_that_was_never_initiated() {
    let db = test_db().await;
    let set = Set::uninitiated("never", 1).await;
    let none = "has none yet: it takes no writes";
    assert_wrong(&db, &direct(&set, 0), "deployment", none);
    let found = format!("mongodb://{}/", set.address(0));
    assert_wrong(&db, &found, "connection", "no replica set yet");
}

/// What the collection itself refuses or loses, with the command that mends it.
#[tokio::test]
async fn the_collection_refuses_a_release_or_loses_held_locks() {
    let validator = doc! { "lockId": { "$type": "string", "$ne": "" } };
    let create = doc! { "create": "distributed_locks", "validator": validator };
    let index = |index: Document| doc! { "createIndexes": "distributed_locks", "indexes": [index] };
    let ttl = |field: &str| index(doc! { "key": { field: 1 }, "name": "mine", "expireAfterSeconds": 3600 });
    let unique = index(doc! { "key": { "lockId": 1 }, "name": "mine", "unique": true });
    let refused = "a release is refused: MongoDB refused a write (error 121";
    let second = "a second release is refused: MongoDB refused a write (error 11000";
    let deletes = "the index `mine` deletes documents 3600 s after their";
    for (command, check, words) in [
        (create, "write of locks", refused),
        (unique, "write of locks", second),
        (ttl("acquiredAt"), "TTL index", deletes),
        (ttl("note"), "TTL index", deletes),
    ] {
        let db = test_db().await;
        must(must(db.without_stable_api().await).run_command(command).await);
        let state = provider(&db).await.admin().index_state().await;
        assert_eq!(state, IndexState::Ready);
        assert_wrong(&db, db.uri(), check, words);
        let (_, again, _) = output(mongolock(&db, &["ls", "--json"]));
        assert_eq!(again, "", "nothing was written");
    }
}

#[tokio::test]
async fn a_server_that_deletes_nothing() {
    let db = test_db().await;
    let server = must(LentServer::with_users().await);
    let set = |on: bool| doc! { "setParameter": 1, "ttlMonitorEnabled": on };
    let admin = must(server.client().await).database("admin");
    let app = must(server.client().await).database(db.name());
    let locks_of_app = LockProvider::new(&app);
    assert_eq!(locks_of_app.admin().index_state().await, IndexState::Ready);
    must(admin.run_command(set(false)).await);
    assert_wrong(&db, &server.uri(), "TTL monitor", "it is off");

    // A user who may not see the parameter sees what it leads to.
    let resource = doc! { "db": db.name(), "collection": "" };
    let actions = "find insert update remove createIndex listIndexes changeStream";
    let actions: Vec<&str> = actions.split(' ').collect();
    let role = doc! { "createRole": "user", "roles": [], "privileges": [{ "resource": resource, "actions": actions }] };
    must(app.run_command(role).await);
    let user = doc! { "createUser": "anna", "pwd": "S3cr3t", "roles": ["user"] };
    must(app.run_command(user).await);
    let uri = format!("mongodb://anna:S3cr3t@{}/{}", server.node().address(), db.name());
    let (code, out, _) = output(at(&uri, &db, &["doctor"]));
    assert_eq!(code, Some(0), "{out}");
    let unseen = "unknown  TTL monitor     this user may not see";
    assert!(out.contains(unseen), "{out}");
    let over = DateTime::from_millis(DateTime::now().timestamp_millis() - 3 * 86_400_000);
    let lock =
        doc! { "_id": "old", "lockId": "", "acquiredAt": over, "expiresAt": over, "fencingToken": 1_i64 };
    must(locks(&app).insert_one(lock).await);
    let kept = "documents that are long over are not deleted, such as \"old\"";
    assert_wrong(&db, &uri, "TTL monitor", kept);
    must(admin.run_command(set(true)).await);
}
