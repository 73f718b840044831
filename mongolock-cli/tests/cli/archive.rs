//! `record`: what is known of turns after the oplog has forgotten them. A recorder writes every 10 s, which makes these tests
//! the longest ones. Tests start in the order of their names, so these are among the first.

use std::time::Duration;

use mongodb::Database;
use mongodb::bson::{DateTime, Document, doc};
use mongolock::LockProvider;
use mongolock_tests::{AMPLE, Server, ServerOptions, eventually, must, test_db};
use rustix::process::Signal;
use serde_json::Value;
use tokio::time::sleep;

use crate::fixture::{Running, at, mongolock, output, send};
use crate::log::{log, log_at, now, now_as_text, owner, told, turn};

/// What the oplog has forgotten is not known: a turn that has begun before is shown as far as the documents tell, or the
/// history.
#[tokio::test]
async fn a_wrapped_oplog_hides_what_was_not_recorded() {
    // The oplog since the last checkpoint is kept, so there is one each second.
    let options = ServerOptions::single().argument("--syncdelay").argument("1");
    let server = must(Server::start(options).await);
    let db = test_db().await;
    let client = must(server.client().await);
    let database = client.database(db.name());
    let anna = LockProvider::builder(&database).owner("anna");
    let anna = must(anna.build());
    let released = must(anna.lock("a:released").acquire().await);
    let again = must(anna.lock("b:again").acquire().await);
    let held = must(anna.lock("c:held").acquire().await);
    turn(&anna, "d:before").await;
    let before = now_as_text(&database).await;
    let first_line = || {
        let (code, out, said) = output(at(&server.uri(), &db, &["log", "--json", "--at", "0s"]));
        assert_eq!((code, said.as_str()), (Some(0), ""));
        let line: Value = must(serde_json::from_str(out.lines().next().unwrap_or_default()));
        line
    };
    assert_eq!(first_line()["remembers_since"], Value::Null);
    must(released.release().await);
    let released = must(anna.lock("a:released").acquire().await);

    let wrap = async || {
        let before = now_as_text(&database).await;
        let filler = client.database("filler").collection::<Document>("filler");
        let text = "x".repeat(1_000_000);
        let wrapped = eventually(AMPLE, "the end of the first part of the oplog", || async {
            for _ in 0..20 {
                must(filler.insert_one(doc! { "text": &text }).await);
            }
            let earliest = first_line()["remembers_since"].clone();
            earliest
                .as_str()
                .filter(|earliest| *earliest > before.as_str())
                .map(str::to_owned)
        });
        let earliest = must(wrapped.await);
        // The second in which the oplog begins is not remembered as a whole.
        sleep(Duration::from_secs(2)).await;
        earliest
    };
    let earliest = wrap().await;
    assert!(before < earliest);
    must(released.release().await);
    must(again.release().await);
    turn(&anna, "b:again").await;

    let turns = log_at(&server.uri(), &db, &[]);
    let wanted = [
        "b:again anna released",
        "a:released ? released",
        "c:held anna held",
        "b:again ? released",
    ];
    assert_eq!(told(&turns), wanted, "the latest beginning is first");
    // The document of a released lock keeps the time of its acquisition, until the next one.
    assert!(
        turns[1]["from"]
            .as_str()
            .is_some_and(|from| from < earliest.as_str()),
        "{}",
        turns[1]
    );

    // What happens while a recorder works is known for longer; between two of them there is a gap.
    let record = || Running::start(at(&server.uri(), &db, &["record"]));
    let mut recorder = record();
    until_recording(&database).await;
    turn(&anna, "d:recorded").await;
    let spanning = must(anna.lock("e:spanning").acquire().await);
    until_recording(&database).await;
    recorder.signal(Signal::TERM);
    assert_eq!(recorder.code().await, Some(0));
    turn(&anna, "d:missed").await;
    wrap().await;
    let mut recorder = record();
    until_recording(&database).await;
    must(spanning.release().await);
    turn(&anna, "d:later").await;
    recorder.signal(Signal::TERM);
    assert_eq!(recorder.code().await, Some(0));
    let turns = log_at(&server.uri(), &db, &[]);
    let lines = told(&turns);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let wanted = [
        "d:later anna released",
        "? ? gap",
        "e:spanning anna released",
        "d:recorded anna released",
        "c:held anna held",
    ];
    assert_eq!(
        lines.len(),
        wanted.len() + lines.iter().filter(|line| line.starts_with("b:")).count(),
        "{lines:?}"
    );
    assert!(wanted.iter().all(|line| lines.contains(line)), "{lines:?}");
    must(held.release().await);
}

/// Waits until a recorder has written its first batch: the position is then later than now.
async fn until_recording(database: &Database) {
    let now = now(database).await;
    let history = database.collection::<Document>("distributed_locks.history");
    let recording = eventually(AMPLE, "a batch of the recorder", || async {
        let position = must(history.find_one(doc! { "_id": "position" }).await)?;
        (*must(position.get_datetime("at")) >= now).then_some(())
    });
    must(recording.await);
}

/// Two recorders at once: one works, and the other one goes on when it was killed.
#[tokio::test]
async fn one_of_two_recorders_works() {
    let db = test_db().await;
    let anna = owner(&db, "anna").await;
    let held = must(anna.lock("x:held").acquire().await);
    let record = || Running::start(mongolock(&db, &["record"]));
    let mut first = record();
    until_recording(db.database()).await;
    let mut second = record();
    must(must(anna.semaphore("x:s", 2).acquire().await).release().await);
    until_recording(db.database()).await;
    first.signal(Signal::KILL);
    first.ended().await;
    turn(&anna, "x:a").await;
    // The lease of the first one ends, and the second one begins before the position.
    until_recording(db.database()).await;
    turn(&anna, "x:a").await;
    until_recording(db.database()).await;
    second.signal(Signal::TERM);
    assert_eq!(second.code().await, Some(0));

    let history = db.database().collection::<Document>("distributed_locks.history");
    let of_x = doc! { "_id.name": { "$regex": "^x:" } };
    assert_eq!(
        must(history.count_documents(of_x).await),
        4,
        "each turn is one document"
    );
    let wanted = [
        "x:a anna released",
        "x:a anna released",
        "x:s anna released",
        "x:held anna held",
    ];
    let turns = log(&db, &["x:"]);
    assert_eq!(told(&turns), wanted);
    assert_eq!(turns[3]["fencing_token"], held.fencing_token().get());

    // The server remembers more, so that they are not read from there.
    let changed = doc! { "$set": { "lockId": "bert#1" } };
    must(history.update_one(doc! { "_id.name": "x:s" }, changed).await);
    assert_eq!(told(&log(&db, &["x:"])), wanted);
}

/// The recorder that began last says for how long the turns are kept.
#[tokio::test]
async fn turns_are_kept_for_as_long_as_the_last_recorder_says() {
    let db = test_db().await;
    let day = Duration::from_secs(24 * 60 * 60);
    for (keep, kept) in [(&["--keep", "90d"][..], day * 90), (&[], day * 30)] {
        let mut recorder = Running::start(mongolock(&db, &[&["record"], keep].concat()));
        until_recording(db.database()).await;
        recorder.signal(Signal::TERM);
        assert_eq!(recorder.code().await, Some(0));
        assert_eq!(kept_for(db.database()).await, Some(kept));
    }
}

/// The expiry of the TTL index of the history.
async fn kept_for(database: &Database) -> Option<Duration> {
    let history = database.collection::<Document>("distributed_locks.history");
    let mut indexes = must(history.list_indexes().await);
    while must(indexes.advance().await) {
        let options = must(indexes.deserialize_current()).options.unwrap_or_default();
        if options.expire_after.is_some() {
            return options.expire_after;
        }
    }
    None
}

/// A recorder that begins long before the position, or that was stopped and goes on beside another one, writes again what is
/// written.
#[tokio::test]
async fn what_is_recorded_again_stays_the_same() {
    let db = test_db().await;
    let (anna, bert) = (owner(&db, "anna").await, owner(&db, "bert").await);
    let record = || Running::start(mongolock(&db, &["record"]));
    let first = record();
    until_recording(db.database()).await;
    let history = db.database().collection::<Document>("distributed_locks.history");
    let hour = Duration::from_secs(60 * 60);
    let handle = must(must(anna.lock("handed").acquire().await).detach(hour).await);
    let held = must(bert.resume(&handle).await);
    must(
        must(bert.lock("done").once_per(hour).acquire().await)
            .done()
            .await,
    );
    // Each hold ends when the next one of the other process waits for it.
    let hand_over = async |provider: &LockProvider| {
        for _ in 0..20 {
            must(must(provider.lock("busy").acquire().await).release().await);
            must(
                must(provider.semaphore("permits", 1).acquire().await)
                    .release()
                    .await,
            );
        }
    };
    tokio::join!(hand_over(&anna), hand_over(&bert));
    let last = must(anna.lock("busy").acquire().await);
    until_recording(db.database()).await;
    let recorded = async || {
        let of_users = doc! { "_id.name": { "$exists": true, "$ne": "mongolock:recorder" } };
        let mut found = must(history.find(of_users).sort(doc! { "_id": 1 }).await);
        let mut turns = Vec::new();
        while must(found.advance().await) {
            turns.push(must(found.deserialize_current()));
        }
        turns
    };
    let before = recorded().await;
    let open: Vec<&Document> = before.iter().filter(|turn| !turn.contains_key("end")).collect();
    assert_eq!((before.len(), open.len()), (83, 2), "{before:?}");

    // Another one takes over.
    send(first.id(), Signal::STOP);
    let mut second = record();
    must(history.delete_one(doc! { "_id": "position" }).await);
    let begin = doc! { "_id": "position", "at": DateTime::from_millis(must(before[0].get_datetime("from")).timestamp_millis() - 60_000) };
    must(history.insert_one(begin).await);
    until_recording(db.database()).await;
    assert_eq!(recorded().await, before);
    second.signal(Signal::TERM);
    assert_eq!(second.code().await, Some(0));
    send(first.id(), Signal::CONT);
    until_recording(db.database()).await;
    assert_eq!(recorded().await, before);
    must(last.release().await);
    must(held.release().await);
}
