//! `log`: who had which lock, from when to when.

use std::time::Duration;

use mongodb::Database;
use mongodb::bson::{DateTime, doc};
use mongolock::LockProvider;
use mongolock_tests::{FailPoint, LentServer, TestDb, lock_document, locks, must, test_db};
use serde_json::Value;
use tokio::time::sleep;

use crate::fixture::{assert_fields, at, ends, mongolock, output, owner, restricted};

/// The fields of `--json`, as the help lists them.
pub(crate) const FIELDS: &str = "remembers_since name permit owner fencing_token from to held_ms end";

/// The turns, without the line that says how far the server remembers.
fn log(db: &TestDb, arguments: &[&str]) -> Vec<Value> {
    log_at(db.uri(), db, arguments)
}

pub(crate) fn log_at(uri: &str, db: &TestDb, arguments: &[&str]) -> Vec<Value> {
    let (code, out, said) = output(at(uri, db, &[&["log", "--json"], arguments].concat()));
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let mut lines: Vec<Value> = out.lines().map(|line| must(serde_json::from_str(line))).collect();
    assert_fields(&lines, FIELDS);
    assert!(lines[0].get("remembers_since").is_some(), "{}", lines[0]);
    lines.remove(0);
    lines
}

/// Name, owner and end of each turn.
pub(crate) fn told(turns: &[Value]) -> Vec<String> {
    let text = |turn: &Value, key: &str| turn[key].as_str().unwrap_or("?").to_owned();
    let told = |turn| ["name", "owner", "end"].map(|key| text(turn, key)).join(" ");
    turns.iter().map(told).collect()
}

/// A time of a turn, in milliseconds.
fn millis(turn: &Value, key: &str) -> i64 {
    let text = turn[key].as_str().expect("the time is known");
    must(DateTime::parse_rfc3339_str(text)).timestamp_millis()
}

/// Acquires a lock and releases it.
pub(crate) async fn turn(provider: &LockProvider, name: &str) {
    must(must(provider.lock(name).acquire().await).release().await);
}

/// The server's time, as text.
pub(crate) async fn now_as_text(database: &Database) -> String {
    let hello = must(database.run_command(doc! { "hello": 1 }).await);
    must(must(hello.get_datetime("localTime")).try_to_rfc3339_string())
}

#[tokio::test]
async fn each_turn_is_a_line() {
    let db = test_db().await;
    let (anna, bert) = (owner(&db, "anna").await, owner(&db, "bert").await);
    turn(&anna, "x:a").await;
    let held = must(bert.lock("x:a").acquire().await);
    let document = lock_document(db.database(), "x:a").await.expect("it is held");
    let permit = must(anna.semaphore("x:s", 2).acquire().await);
    let number = permit.number();
    must(permit.release().await);
    let week = Duration::from_secs(7 * 24 * 60 * 60);
    must(must(bert.lock("x:d").once_per(week).acquire().await).done().await);
    turn(&anna, "y").await;
    // Its lease changes hands, and stays one turn.
    let hour = Duration::from_secs(60 * 60);
    let handle = must(must(anna.lock("x:h").acquire().await).detach(hour).await);
    let handle = must(must(bert.resume(&handle).await).detach(hour).await);
    assert!(must(bert.release(&handle).await));
    // Nobody resumes it.
    let detached = must(anna.lock("x:e").acquire().await);
    must(detached.detach(Duration::from_millis(300)).await);
    sleep(Duration::from_millis(400)).await;
    let middle = now_as_text(db.database()).await;
    sleep(Duration::from_millis(20)).await;
    turn(&anna, "x:l").await;

    for (window, wanted) in [
        (&["x:a", "--at", &middle][..], &["x:a bert held"][..]),
        (&["--since", &middle], &["x:l anna released", "x:a bert held"]),
        (
            &["x:a", "--until", &middle],
            &["x:a bert held", "x:a anna released"],
        ),
    ] {
        assert_eq!(told(&log(&db, window)), wanted, "{window:?}");
    }
    let turns = log(&db, &["x:", "--until", &middle]);
    let wanted = [
        "x:e anna expired",
        "x:h anna released",
        "x:d bert done",
        "x:s anna released",
        "x:a bert held",
        "x:a anna released",
    ];
    assert_eq!(told(&turns), wanted);
    let [_, _, _, of_permit, held_now, earlier] = &turns[..] else {
        panic!("{turns:?}")
    };
    assert_eq!(of_permit["permit"], number, "{of_permit}");
    assert!(of_permit.get("fencing_token").is_none(), "a permit has no token");
    assert_eq!(held_now["fencing_token"], held.fencing_token().get());
    let acquired = must(document.get_datetime("acquiredAt")).timestamp_millis();
    assert_eq!(millis(held_now, "from"), acquired);
    assert_eq!(held_now["to"], Value::Null);
    let (from, to) = (millis(earlier, "from"), millis(earlier, "to"));
    assert!(from <= to && to <= acquired, "{earlier}");
    assert_eq!(earlier["held_ms"], to - from);
    assert_eq!(log(&db, &[]).len(), 8, "without a name all turns are shown");
    assert_eq!(log(&db, &["x"]).len(), 7, "a name without a lock is a prefix");
    // A semaphore is its permits.
    assert_eq!(told(&log(&db, &["x:s"])), ["x:s anna released"]);

    let (code, out, said) = output(mongolock(&db, &["log", "x:a"]));
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("the server remembers "), "{out}");
    let headings: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(headings, ["NAME", "OWNER", "FROM", "TO", "HELD", "END"]);
    for (line, owner, end) in [(lines[2], "bert", "held"), (lines[3], "anna", "released")] {
        let begin = format!("x:a   {owner}   ");
        assert!(line.starts_with(&begin) && line.ends_with(end), "{out}");
    }
    let windows = "--at 2100-01-01|--since 1h --until 2h|--since soon|--at 1h --since 2h";
    for window in windows.split('|') {
        let arguments: Vec<&str> = ["log"].into_iter().chain(window.split(' ')).collect();
        let (code, out, _) = output(mongolock(&db, &arguments));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{window}");
    }
}

/// The server forgets a part of the past while it sends the events of it: they are read again.
#[tokio::test]
async fn a_past_that_is_forgotten_while_it_is_read_shows_no_turn_twice() {
    const HISTORY_LOST: i32 = 286;
    let db = test_db().await;
    let locks = locks(db.database());
    let names = (0..50).map(|number| doc! { "_id": format!("{number}") });
    must(locks.insert_many(names).await);
    // More events than a reply has.
    for turn in 1..=12_i64 {
        let held = doc! { "lockId": format!("anna#{turn}"), "acquiredAt": DateTime::now(),
        "expiresAt": DateTime::MAX, "fencingToken": turn };
        must(locks.update_many(doc! {}, doc! { "$set": held }).await);
        if turn < 12 {
            let released = doc! { "lockId": "", "expiresAt": DateTime::now() };
            must(locks.update_many(doc! {}, doc! { "$set": released }).await);
        }
    }
    let forgotten = FailPoint::on(&["getMore"]).error_code(HISTORY_LOST);
    let forgotten = forgotten.collection(&locks.namespace().to_string());
    let _forgotten = must(forgotten.enable(db.uri()).await);
    let turns = told(&log(&db, &[]));
    let count = |line: &str| turns.iter().filter(|turn| turn.ends_with(line)).count();
    let counts = (turns.len(), count(" anna held"), count(" anna released"));
    assert_eq!(counts, (600, 50, 550));
}

#[tokio::test]
async fn a_server_without_change_streams_and_a_missing_right_are_explained() {
    let db = test_db().await;
    let server = must(LentServer::standalone().await);
    for command in ["log", "watch"] {
        ends(at(&server.uri(), &db, &[command]), 125, "replica set");
    }
    let (_server, uri) = restricted(&db, &["find"]).await;
    ends(at(&uri, &db, &["log"]), 125, "Grant `find` and `changeStream`");
    // It reads nothing else.
    let (_server, uri) = restricted(&db, &["find", "changeStream"]).await;
    assert_eq!(log_at(&uri, &db, &[]), [Value::Null; 0]);
}
