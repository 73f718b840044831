//! `why`, and deadlocks of programs under `run`.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongolock::{LockGuard, LockProvider};
use mongolock_tests::{AMPLE, FailPoint, Server, ServerOptions, TestDb, eventually, locks, must, test_db};
use serde_json::Value;
use tokio::sync::Barrier;
use tokio::time::sleep;

use crate::fixture::{Running, at, mongolock, output, provider};

fn why(db: &TestDb, name: &str) -> String {
    let (code, out, said) = output(mongolock(db, &["why", name]));
    assert_eq!((code, said.as_str()), (Some(0), ""));
    out
}

/// Waits until the answer contains this text.
async fn until(db: &TestDb, name: &str, part: &str) -> String {
    let answer = || async {
        // Before its first acquisition the lock is unknown.
        let (_, out, _) = output(mongolock(db, &["why", name]));
        out.contains(part).then_some(out)
    };
    must(eventually(AMPLE, part, answer).await)
}

fn json(db: &TestDb, name: &str) -> Value {
    let (code, out, said) = output(mongolock(db, &["why", name, "--json"]));
    assert_eq!((code, said.as_str()), (Some(0), ""));
    must(serde_json::from_str(&out))
}

async fn process(db: &TestDb, owner: &str) -> LockProvider {
    must(
        provider(db)
            .await
            .to_builder()
            .owner(owner)
            .acquire_timeout(AMPLE)
            .build(),
    )
}

/// Waits for a lock under another one, until the task is dropped.
fn nested(provider: &LockProvider, outer: &'static str, inner: &'static str) -> tokio::task::JoinHandle<()> {
    let provider = provider.clone();
    tokio::spawn(async move {
        let body = async |_| provider.lock(inner).acquire().await.map(drop);
        let _ = provider.lock(outer).run(body).await;
    })
}

#[tokio::test]
async fn what_a_holder_waits_for_is_shown_to_the_end() {
    let db = test_db().await;
    let (anna, bert) = (process(&db, "anna").await, process(&db, "bert").await);
    let last = must(bert.lock("c").note("file 7 of 9").acquire().await);
    let _second = nested(&bert, "b", "c");
    let _first = nested(&anna, "a", "b");
    // It is noted with the first renewal.
    let text = until(&db, "a", "note       file 7 of 9").await;
    // The lease of `a` may have been renewed by then as well.
    let lines = text.lines().filter(|line| !line.starts_with("  renewals"));
    let begins: Vec<&str> = lines
        .map(|line| line.split(" since").next().unwrap_or(line))
        .collect();
    assert_eq!(begins[..2], ["a", "  held by    anna"], "{text}");
    assert!(begins[2].starts_with("  waits for b for "), "{text}");
    assert_eq!(begins[3], "    held by    bert", "{text}");
    assert!(begins[4].starts_with("    waits for c for "), "{text}");
    assert_eq!(begins[5], "      held by    bert", "{text}");
    assert_eq!(begins[6..], ["      note       file 7 of 9"], "{text}");

    let answer = json(&db, "a");
    let waits = &answer["holders"][0]["waits_for"][0];
    assert_eq!(
        (&waits["name"], &waits["certain"]),
        (&Value::from("b"), &Value::from(true))
    );
    assert_eq!(waits["holders"][0]["waits_for"][0]["holders"][0]["owner"], "bert");
    assert!(waits.get("deadlock").is_none(), "{answer}");
    assert_eq!(json(&db, "c")["holders"][0]["note"], "file 7 of 9");
    must(last.release().await);
}

/// The guard may be in another task by now.
#[tokio::test]
async fn a_guard_makes_it_a_guess() {
    let db = test_db().await;
    let (anna, bert) = (process(&db, "anna").await, process(&db, "bert").await);
    let _held = must(bert.lock("b").acquire().await);
    let waiting = tokio::spawn(async move {
        let _guard = must(anna.lock("a").acquire().await);
        let _ = anna.lock("b").acquire().await;
    });
    until(&db, "a", "  perhaps waits for b for ").await;
    assert!(!why(&db, "b").contains("waits for"));
    waiting.abort();
}

/// A hold of `a` that is renewed every 300 ms, after five others.
async fn renewed_often_after_five_turns(provider: &LockProvider) -> LockGuard {
    let often = provider.to_builder().renew_interval(Duration::from_millis(300));
    let lock = must(often.build()).lock("a");
    for _ in 0..5 {
        must(must(lock.acquire().await).release().await);
    }
    must(lock.acquire().await)
}

#[tokio::test]
async fn renewals_and_the_turns_before_are_told() {
    let db = test_db().await;
    let anna = process(&db, "anna").await;
    let held = renewed_often_after_five_turns(&anna).await;
    let text = until(&db, "a", "renewals   every 0.").await;
    assert!(text.contains("before     5 turns in 10m, median 0."), "{text}");
    must(held.release().await);
    assert!(why(&db, "a").contains("nobody holds it"));
    assert_eq!(output(mongolock(&db, &["why", "unknown"])).0, Some(1));
}

/// The end of the events is not there in time, and so the last renewal may not be either. Whole turns count. On a server of
/// its own, because the first reply has all turns only if the server has few events of others.
#[tokio::test]
async fn renewals_of_a_part_of_the_past_are_not_told() {
    let (server, db) = (
        must(Server::start(ServerOptions::single()).await),
        test_db().await,
    );
    let database = must(server.client().await).database(db.name());
    let held = renewed_often_after_five_turns(&LockProvider::new(&database)).await;
    let why = || output(at(&server.uri(), &db, &["why", "a"])).1;
    let renewed = || async { why().contains("renewals   every 0.").then_some(()) };
    must(eventually(AMPLE, "renewals", renewed).await);
    let slow = FailPoint::on(&["getMore"]).always().block(Duration::from_secs(3));
    let slow = slow.collection(&locks(&database).namespace().to_string());
    let slow = must(slow.enable(&server.uri()).await);
    let text = why();
    assert!(!text.contains("renewals"), "{text}");
    assert!(text.contains("before     5 turns in 10m, median 0."), "{text}");
    must(slow.clear().await);
    must(held.release().await);
}

/// The documents show a circle at once, but two readings have to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_that_one_reading_shows_is_a_guess() {
    let db = test_db().await;
    let (anna, bert) = (process(&db, "anna").await, process(&db, "bert").await);
    let both_hold = Arc::new(Barrier::new(2));
    for (provider, outer, inner) in [(anna, "a", "b"), (bert, "b", "a")] {
        let both_hold = Arc::clone(&both_hold);
        tokio::spawn(async move {
            let body = async |_| {
                both_hold.wait().await;
                provider.lock(inner).acquire().await.map(drop)
            };
            let _ = provider.lock(outer).run(body).await;
        });
    }
    let text = until(&db, "a", ": deadlock").await;
    assert!(!text.contains("perhaps"), "{text}");
    // Another wait begins as often as the program reads.
    let waiters = db.database().collection::<Document>("distributed_locks.waiters");
    let later = doc! { "$set": { "holds_since": "$$NOW" } };
    let moving = tokio::spawn(async move {
        loop {
            must(
                waiters
                    .update_many(doc! { "holds.0": { "$exists": true } }, vec![later.clone()])
                    .await,
            );
            sleep(Duration::from_millis(100)).await;
        }
    });
    until(&db, "a", ": perhaps a deadlock").await;
    moving.abort();
}

/// Each command runs under its own lock, and acquires the next one when all have started. The variable says inside which
/// holds it runs.
#[tokio::test]
async fn commands_under_run_that_wait_for_each_other_are_in_a_deadlock() {
    let db = test_db().await;
    for length in 2..=3 {
        let directory = must(tempfile::tempdir());
        let start = |number: usize| {
            let wait = if number == 0 { "8s" } else { "60s" };
            let (own, next) = (
                format!("{length}.{number}"),
                format!("{length}.{}", (number + 1) % length),
            );
            let script = format!(
                "touch {own}; while [ $(ls | wc -l) -lt {length} ]; do sleep 0.01; done; \
                 exec {} --database {} run {next} --wait {wait} -- true",
                env!("CARGO_BIN_EXE_mongolock"),
                db.name()
            );
            let mut command: Command = mongolock(&db, &["run", &own, "--", "sh", "-c", &script]);
            command.current_dir(directory.path()).stderr(Stdio::piped());
            Running::start(command)
        };
        let mut all: Vec<Running> = (0..length).map(start).collect();
        let first = format!("{length}.0");
        until(&db, &first, ": deadlock").await;
        let mut codes = Vec::new();
        for running in &mut all {
            codes.push(running.code().await);
        }
        let names: Vec<String> = (1..=length)
            .map(|number| format!("{length}.{}", number % length))
            .collect();
        let said = all[0].said();
        assert!(
            said.contains(&format!("deadlock of `{}`", names.join("`, `"))),
            "{said}"
        );
        // It is told while they wait, with the holder before.
        let told = format!("for the first: {}", names.join(" > "));
        for text in [told.as_str(), "waiting for ", ", held by "] {
            assert!(said.contains(text), "{text}: {said}");
        }
        let mut expected = vec![Some(0); length];
        expected[0] = Some(75);
        assert_eq!(codes, expected, "{said}");
    }
}

/// No process has it, so that nothing is known of what it waits for.
#[tokio::test]
async fn the_owner_of_a_detached_lease_is_shown() {
    let db = test_db().await;
    let anna = process(&db, "anna").await;
    let handle = must(
        must(anna.lock("a").acquire().await)
            .detach(Duration::from_secs(60))
            .await,
    );
    assert!(why(&db, "a").contains("held by    anna since"));
    assert!(must(anna.release(&handle).await));
}

/// Nobody holds them, and nobody gets them.
#[tokio::test]
async fn a_mark_and_a_minimum_hold_are_told() {
    let db = test_db().await;
    let anna = process(&db, "anna").await;
    let job = anna.lock("job").once();
    must(must(job.acquire().await).done().await);
    let answer = why(&db, "job");
    assert!(
        answer.contains("not free   done by anna, for another "),
        "{answer}"
    );
    assert!(!answer.contains("nobody holds it"), "{answer}");
    assert_eq!(json(&db, "job")["kept"][0]["state"], "done");

    let permits = anna.semaphore("pool", 2).min_hold(Duration::from_secs(600));
    must(must(permits.acquire().await).release().await);
    let answer = why(&db, "pool");
    assert!(
        answer.contains("permit ") && answer.contains("released, and kept for another "),
        "{answer}"
    );
    must(must(anna.lock("free").acquire().await).release().await);
    assert!(why(&db, "free").contains("nobody holds it"));
    assert!(json(&db, "free").get("kept").is_none());
}
