//! `watch`: what happens to locks, line by line.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};
use std::slice;
use std::time::Duration;

use mongodb::bson::{DateTime, doc};
use mongolock::LockProvider;
use mongolock_tests::{AMPLE, FailPoint, TestDb, eventually, locks, must, test_db};
use serde_json::Value;

use crate::fixture::{assert_fields, at, mongolock, owner, provider};

/// The server's code of a stream whose events it no longer has.
const HISTORY_LOST: i32 = 286;

/// A `watch --json` that runs.
struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The lines that were read too early.
    early: VecDeque<Value>,
}

impl Watch {
    /// Starts it, and waits until it reports what a provider does.
    async fn start(uri: &str, db: &TestDb, arguments: &[&str], provider: &LockProvider) -> Self {
        let mut command = at(uri, db, &[&["watch", "--json"], arguments].concat());
        let mut child = must(command.stdout(Stdio::piped()).spawn());
        let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        let provider = provider.clone();
        let acting = tokio::spawn(async move {
            loop {
                must(must(provider.lock("x:warm").acquire().await).release().await);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        let (first, lines) = must(tokio::task::spawn_blocking(move || (lines.next(), lines)).await);
        assert!(first.is_some());
        acting.abort();
        Self {
            child,
            lines,
            early: VecDeque::new(),
        }
    }

    /// The next line about a name; the lines about others are left for later.
    fn next(&mut self, name: &str) -> Value {
        if let Some(at) = self.early.iter().position(|line| line["name"] == name) {
            return self.early.remove(at).expect("it is there");
        }
        loop {
            let line = must(self.lines.next().expect("it does not end"));
            let line: Value = must(serde_json::from_str(&line));
            assert_has_only_known_fields(&line);
            if line["name"] == name || line["event"] == name {
                return line;
            }
            self.early.push_back(line);
        }
    }

    /// The event and the owner of the next line about a name.
    fn event(&mut self, name: &str) -> (String, String) {
        let line = self.next(name);
        let text = |key: &str| line[key].as_str().unwrap_or("-").to_owned();
        (text("event"), text("owner"))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The fields of `--json`, as the help lists them.
pub(crate) const FIELDS: &str =
    "at event name permit owner previous_owner fencing_token lock_id acquired_at expires_at since problem";

fn assert_has_only_known_fields(line: &Value) {
    assert_fields(slice::from_ref(line), FIELDS);
    let at = line["at"].as_str().unwrap_or_default();
    assert!(DateTime::parse_rfc3339_str(at).is_ok(), "{line}");
}

fn said(event: &str, owner: &str) -> (String, String) {
    (event.to_owned(), owner.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_is_a_line() {
    let db = test_db().await;
    let anna = owner(&db, "anna").await;
    let bert = must(anna.to_builder().owner("bert").build());
    let mut watch = Watch::start(db.uri(), &db, &["x:"], &anna).await;

    let _other = must(anna.lock("y").acquire().await);
    let held = must(anna.lock("x:a").acquire().await);
    let line = watch.next("x:a");
    assert_eq!(line["event"], "acquired");
    assert_eq!(line["owner"], "anna");
    assert_eq!(line["fencing_token"], held.fencing_token().get());
    must(held.release().await);
    assert_eq!(watch.event("x:a"), said("released", "anna"));
    let held = must(bert.lock("x:a").acquire().await);
    assert_eq!(watch.event("x:a"), said("acquired", "bert"));
    must(bert.admin().force_release("x:a").await);
    assert_eq!(watch.event("x:a"), said("released", "bert"));
    held.lost().await;

    let permit = must(anna.semaphore("x:s", 2).acquire().await);
    let line = watch.next("x:s");
    assert_eq!(line["event"], "acquired");
    assert_eq!(line["permit"], permit.number());
    assert_eq!(line["fencing_token"], Value::Null, "a permit has no token");

    let week = Duration::from_secs(7 * 24 * 60 * 60);
    must(must(anna.lock("x:d").once_per(week).acquire().await).done().await);
    assert_eq!(watch.event("x:d"), said("acquired", "anna"));
    assert_eq!(watch.event("x:d"), said("done", "anna"));

    let hour = Duration::from_secs(60 * 60);
    let handle = must(must(anna.lock("x:h").acquire().await).detach(hour).await);
    let resumed = must(bert.resume(&handle).await);
    let given = resumed.fencing_token().get();
    assert!(must(anna.release(&must(resumed.detach(hour).await)).await));
    for event in ["acquired", "detached"] {
        assert_eq!(watch.event("x:h"), said(event, "anna"));
    }
    let line = watch.next("x:h");
    assert_eq!(line["event"], "resumed");
    assert_eq!(line["owner"], "anna");
    assert_eq!(line["fencing_token"], given);
    for event in ["detached", "released"] {
        assert_eq!(watch.event("x:h"), said(event, "anna"));
    }

    // A lease whose holder has died.
    let dead = doc! { "$set": { "lockId": "carl#1", "acquiredAt": "$$NOW", "fencingToken": 5_i64,
    "expiresAt": { "$add": ["$$NOW", 300] } } };
    let locks = locks(db.database());
    let update = locks.update_one(doc! { "_id": "x:e" }, vec![dead]);
    must(update.upsert(true).await);
    assert_eq!(watch.event("x:e"), said("acquired", "carl"));
    assert_eq!(watch.event("x:e"), said("expired", "carl"));
    let taken = must(anna.lock("x:e").acquire().await);
    let line = watch.next("x:e");
    assert_eq!(line["event"], "taken_over");
    assert_eq!(line["previous_owner"], "carl");
    must(locks.delete_one(doc! { "_id": "x:e" }).await);
    assert_eq!(watch.event("x:e"), said("deleted", "anna"));
    taken.lost().await;
    // It has another prefix.
    assert!(watch.early.iter().all(|line| line["name"] != "y"));
}

/// The server no longer has the events, and the locks cannot be read at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missed_events_are_a_gap_that_is_told_once() {
    let db = test_db().await;
    let anna = owner(&db, "anna").await;
    let mut watch = Watch::start(db.uri(), &db, &[], &anna).await;
    let namespace = locks(db.database()).namespace().to_string();
    let lost = FailPoint::on(&["getMore", "find"])
        .times(3)
        .error_code(HISTORY_LOST);
    let lost = must(lost.collection(&namespace).enable(db.uri()).await);
    let held = must(anna.lock("b").acquire().await);
    let gap = watch.next("gap");
    assert!(gap["since"].as_str() <= gap["at"].as_str(), "{gap}");
    assert_eq!(watch.event("b"), said("acquired", "anna"));
    must(held.release().await);
    assert_eq!(watch.event("b"), said("released", "anna"));
    // A gap is told once.
    assert!(watch.early.iter().all(|line| line["event"] != "gap"));
    must(lost.clear().await);
}

/// A person who sees no lines knows whether nothing happens or nothing can be seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_told_and_its_end() {
    let db = test_db().await;
    let anna = owner(&db, "anna").await;
    let proxy = must(db.proxy().await);
    let mut watch = Watch::start(&proxy.uri(), &db, &[], &anna).await;

    // The connections end, and no new one is accepted.
    proxy.refuse_connections();
    proxy.reset_connections();
    let gone = watch.next("gone");
    let problem = gone["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("MongoDB"), "{gone}");
    let held = must(anna.lock("a").acquire().await);
    proxy.accept_connections();
    watch.next("back");
    assert_eq!(watch.event("a"), said("acquired", "anna"));

    // The connections stay, and nothing comes.
    proxy.freeze();
    watch.next("gone");
    must(held.release().await);
    proxy.thaw();
    watch.next("back");
    assert_eq!(watch.event("a"), said("released", "anna"));
}

/// A reader that has ended is noticed at the next line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_with_its_reader() {
    let db = test_db().await;
    let anna = provider(&db).await;
    let mut command = mongolock(&db, &["watch"]);
    let mut child = must(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
    drop(child.stdout.take());
    let ended = eventually(AMPLE, "the end of the program", || {
        let status = must(child.try_wait());
        let anna = anna.clone();
        async move {
            must(must(anna.lock("a").acquire().await).release().await);
            status
        }
    });
    assert_eq!(must(ended.await).code(), Some(0));
}
