//! The program `report_service`: the demonstration as a user runs it, and instances as their clients use them.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use mongolock_tests::{TestDb, eventually, must, test_db};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use tokio::task::JoinHandle;

use crate::run::{Alone, drops_its_database, passes, program, signal};

/// The limit for what takes no time, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

fn report_service(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_report_service"), arguments)
}

// The demonstration.

/// S0.16, S0.17: some callers are refused while others proceed, and each answer says how long it waited and held.
#[tokio::test]
async fn the_demonstration_passes() {
    let text = passes(report_service(&[])).await;
    text.has_lines(&[
        "lost updates 0",
        "failed 0",
        "tokens rise strictly in every report, in the order of the writes",
        "other reports 12 of 12 changes made while report 1 was held",
    ]);
    let refused = text.lines().filter(|line| line.ends_with("503, retry after 1 s"));
    assert!(refused.count() > 0, "{text:?}");
}

#[tokio::test]
async fn its_database_on_a_given_server_is_dropped() {
    drops_its_database("report_service", report_service(&[])).await;
}

fn at_work() -> Alone {
    Alone::start("report_service", report_service(&["--keep-running"]))
}

#[tokio::test]
async fn killed_it_leaves_nothing() {
    at_work().killed_leaves_nothing().await;
}

#[tokio::test]
async fn interrupted_it_leaves_nothing() {
    at_work().interrupted_leaves_nothing().await;
}

// Instances.

const NOT_WAITING: &str = r#"{"wait": false}"#;

/// One instance; it ends with this value, at the latest with the test process.
struct Instance {
    process: Child,
    url: String,
    /// The instance ends when this is closed, and waiting for a process closes it.
    _input: Option<ChildStdin>,
}

impl Instance {
    fn start(db: &TestDb, options: &[&str]) -> Self {
        Self::on(db.uri(), db.name(), options)
    }

    fn on(uri: &str, database: &str, options: &[&str]) -> Self {
        let mut process = must(
            report_service(&["serve", "--instance", "1", "--database", database])
                .args(options)
                .env("MONGODB_URI", uri)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn(),
        );
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let first = must(output.lines().next().expect("it says where it listens"));
        let url = first.strip_prefix("Listening on ").expect("it says so first");
        Self {
            _input: process.stdin.take(),
            process,
            url: url.to_owned(),
        }
    }

    fn pair(db: &TestDb, options: &[&str]) -> [Self; 2] {
        [Self::start(db, options), Self::start(db, options)]
    }

    fn report(&self, id: u32) -> String {
        format!("{}/reports/{id}", self.url)
    }

    async fn change(&self, id: u32, body: &str) -> Answer {
        post(self.report(id), body.to_owned()).await
    }

    fn spawn_change(&self, id: u32, work_ms: u16) -> JoinHandle<Answer> {
        tokio::spawn(post(self.report(id), format!(r#"{{"work_ms": {work_ms}}}"#)))
    }

    /// A request that holds the report for `work_ms`, from the moment at which it does.
    async fn hold(&self, db: &TestDb, id: u32, work_ms: u16) -> JoinHandle<Answer> {
        let held = self.spawn_change(id, work_ms);
        let is_held = || async { is_held(db, id).await.then_some(()) };
        must(eventually(SOON, "a report that is held", is_held).await);
        held
    }

    /// The revisions, as tokens.
    async fn tokens(&self, id: u32) -> Vec<i64> {
        let answer = answer(must(http().get(self.report(id)).send().await)).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        answer.revisions.iter().map(|revision| revision.token).collect()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An answer of an instance: the fields of all kinds of answers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    #[serde(skip)]
    status: StatusCode,
    #[serde(skip)]
    retry_after: Option<String>,
    revision: usize,
    token: i64,
    waited_ms: u64,
    held_ms: u64,
    error: String,
    message: String,
    revisions: Vec<Revision>,
}

#[derive(Debug, Deserialize)]
struct Revision {
    token: i64,
}

fn http() -> reqwest::Client {
    // A proxy of the environment does not apply; and a test that hangs says where.
    must(
        reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(60))
            .build(),
    )
}

async fn post(url: String, body: String) -> Answer {
    let request = http()
        .post(url)
        .header(CONTENT_TYPE, "application/json")
        .body(body);
    answer(must(request.send().await)).await
}

async fn answer(response: Response) -> Answer {
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER);
    let retry_after = retry_after.map(|value| must(value.to_str()).to_owned());
    Answer {
        status,
        retry_after,
        ..must(response.json().await)
    }
}

/// The error of the lock names it, its owner and hosts: none of that is for clients.
#[track_caller]
fn assert_names_no_internals(answer: &Answer) {
    for internal in ["report:1", "instance 1", "127.0.0.1"] {
        assert!(!answer.message.contains(internal), "{answer:?}");
    }
}

async fn is_held(db: &TestDb, id: u32) -> bool {
    let locks = db.database().collection::<Document>("distributed_locks");
    let held = doc! { "_id": format!("report:{id}"), "lockId": { "$ne": "" } };
    must(locks.find_one(held).await).is_some()
}

/// S0.1 between the processes of a service, and S0.17.
#[tokio::test]
async fn no_update_is_lost_between_two_instances() {
    const REQUESTS: usize = 40;
    let db = test_db().await;
    let instances = Instance::pair(&db, &["--acquire-timeout", "1m"]);
    let mut answers = Vec::new();
    let in_progress: Vec<_> = (0..REQUESTS)
        .map(|number| instances[number % 2].spawn_change(1, 5))
        .collect();
    for answer in in_progress {
        answers.push(must(answer.await));
    }
    assert!(
        answers.iter().all(|answer| answer.status == StatusCode::OK),
        "{answers:?}"
    );
    assert!(answers.iter().all(|answer| answer.held_ms >= 5), "{answers:?}");
    answers.sort_by_key(|answer| answer.revision);
    let revisions = answers.iter().map(|answer| answer.revision);
    assert!(revisions.eq(1..=REQUESTS), "{answers:?}");
    let tokens: Vec<_> = answers.iter().map(|answer| answer.token).collect();
    assert!(
        tokens.is_sorted_by(|earlier, later| earlier < later),
        "{tokens:?}"
    );
    for instance in &instances {
        assert_eq!(instance.tokens(1).await, tokens);
    }
}

/// S0.16.
#[tokio::test]
async fn only_requests_that_do_not_get_the_lock_are_refused() {
    let db = test_db().await;
    let instances = Instance::pair(&db, &["--acquire-timeout", "300ms"]);
    let holder = instances[0].hold(&db, 1, 4_000).await;
    for instance in &instances {
        let refused = instance.change(1, "{}").await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{refused:?}");
        assert_eq!(refused.retry_after.as_deref(), Some("1"));
        assert_eq!(refused.error, "lock_timeout");
        assert_names_no_internals(&refused);
        assert!(refused.waited_ms >= 300, "{refused:?}");

        let refused = instance.change(1, NOT_WAITING).await;
        assert_eq!(refused.status, StatusCode::CONFLICT, "{refused:?}");
        assert_eq!(refused.retry_after, None);
        assert_eq!(refused.error, "lock_busy");
        assert_names_no_internals(&refused);

        let other = instance.change(2, r#"{"work_ms": 1}"#).await;
        assert_eq!(other.status, StatusCode::OK, "{other:?}");
    }
    assert!(
        !holder.is_finished(),
        "the holder has ended before the others were refused"
    );
    let holder = must(holder.await);
    assert_eq!(
        (holder.status, holder.revision),
        (StatusCode::OK, 1),
        "{holder:?}"
    );
    assert_eq!(instances[1].tokens(1).await, [holder.token]);
    assert_eq!(instances[1].tokens(2).await.len(), 2);
}

/// S0.17.
#[tokio::test]
async fn the_answer_says_how_long_it_waited_and_held() {
    const WORK: Duration = Duration::from_secs(2);
    // The time that a busy machine may need to deliver a request to an instance.
    const DELIVERY: Duration = Duration::from_secs(1);
    let db = test_db().await;
    let [first, second] = Instance::pair(&db, &["--acquire-timeout", "1m"]);
    let begun = Instant::now();
    let holder = first.hold(&db, 1, 2_000).await;
    let sent = Instant::now();
    let next = second.change(1, r#"{"work_ms": 50}"#).await;
    let took = sent.elapsed();
    let holder = must(holder.await);

    let (waited, held) = (
        Duration::from_millis(next.waited_ms),
        Duration::from_millis(next.held_ms),
    );
    assert!(held >= Duration::from_millis(50), "{next:?}");
    assert!(waited + held <= took, "{next:?} in {took:?}");
    assert!(Duration::from_millis(holder.held_ms) >= WORK, "{holder:?}");
    // The holder worked at least until `begun + WORK`.
    let rest = WORK.saturating_sub(sent - begun);
    assert!(waited >= rest.saturating_sub(DELIVERY), "{next:?}, rest {rest:?}");
}

#[tokio::test]
async fn a_client_that_closes_its_connection_leaves_nothing_behind() {
    let db = test_db().await;
    let [first, second] = Instance::pair(&db, &["--acquire-timeout", "1m"]);
    let holder = first.hold(&db, 1, u16::MAX).await;
    let waiter = first.spawn_change(1, u16::MAX);
    holder.abort();
    waiter.abort();
    let next = second.change(1, r#"{"work_ms": 1}"#).await;
    assert_eq!((next.status, next.revision), (StatusCode::OK, 1), "{next:?}");
    assert_eq!(first.tokens(1).await, [next.token]);
}

#[tokio::test]
async fn a_request_in_progress_is_answered_before_the_instance_ends() {
    let db = test_db().await;
    for name in ["TERM", "INT"] {
        let mut instance = Instance::start(&db, &[]);
        let in_progress = instance.hold(&db, 1, 500).await;
        signal(name, instance.process.id());
        let answer = must(in_progress.await);
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        assert_eq!(must(instance.process.wait()).code(), Some(0));
        assert!(!is_held(&db, 1).await);
    }
}

#[tokio::test]
async fn a_request_that_takes_too_long_to_finish_loses_its_lock() {
    let db = test_db().await;
    // Long enough for the reply of MongoDB, without which the work does not begin.
    let mut instance = Instance::start(&db, &["--grace", "3s"]);
    let in_progress = instance.hold(&db, 1, u16::MAX).await;
    signal("TERM", instance.process.id());
    let answer = must(in_progress.await);
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{answer:?}");
    assert_eq!(answer.error, "lock_lost");
    assert_eq!(answer.retry_after, None);
    assert_eq!(must(instance.process.wait()).code(), Some(0));
    assert!(!is_held(&db, 1).await);
}

/// The report has the greater token of a newer holder.
#[tokio::test]
async fn a_stale_write_is_refused() {
    const LATER: i64 = 1 << 53;
    let db = test_db().await;
    let reports = db.database().collection::<Document>("reports");
    let report = doc! { "_id": 1, "fencingToken": LATER, "revisions": [{ "token": LATER, "instance": "2" }] };
    must(reports.insert_one(&report).await);
    let instance = Instance::start(&db, &[]);
    let answer = instance.change(1, "{}").await;
    assert_eq!(answer.status, StatusCode::CONFLICT, "{answer:?}");
    assert_eq!(answer.error, "stale");
    assert_names_no_internals(&answer);
    assert_eq!(must(reports.find_one(doc! {}).await), Some(report));
}

#[tokio::test]
async fn an_unreachable_database_is_not_a_busy_lock() {
    let uri = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200";
    let instance = Instance::on(uri, "app", &["--acquire-timeout", "300ms"]);
    let changed = instance.change(1, "{}").await;
    let read = answer(must(http().get(instance.report(1)).send().await)).await;
    for answer in [changed, read] {
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
        assert_eq!(answer.error, "no_database", "{answer:?}");
        assert_eq!(answer.retry_after.as_deref(), Some("1"));
        assert_names_no_internals(&answer);
    }
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let db = test_db().await;
    let instance = Instance::start(&db, &[]);
    let unknown = answer(must(http().get(instance.report(9)).send().await)).await;
    assert_eq!(
        (unknown.status, &*unknown.error),
        (StatusCode::NOT_FOUND, "not_found")
    );
    let refused = async |url: String, body: &'static str| {
        let request = http()
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        must(request.send().await).status()
    };
    let too_long = refused(instance.report(1), r#"{"work_ms": 70000}"#).await;
    assert_eq!(too_long, StatusCode::UNPROCESSABLE_ENTITY);
    let misspelt = refused(instance.report(1), r#"{"works_ms": 7}"#).await;
    assert_eq!(misspelt, StatusCode::UNPROCESSABLE_ENTITY);
    let no_number = refused(format!("{}/reports/x", instance.url), "{}").await;
    assert_eq!(no_number, StatusCode::BAD_REQUEST);
    assert!(!is_held(&db, 1).await);
}

/// As `curl -X POST` sends it.
#[tokio::test]
async fn a_request_needs_no_body() {
    let db = test_db().await;
    let instance = Instance::start(&db, &[]);
    let changed = answer(must(http().post(instance.report(1)).send().await)).await;
    assert_eq!(
        (changed.status, changed.revision),
        (StatusCode::OK, 1),
        "{changed:?}"
    );
    assert!(changed.held_ms >= 100, "{changed:?}");
}
