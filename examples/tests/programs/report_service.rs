//! The program `report_service`: the demonstration as a user runs it, and instances as their clients use them.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use mongolock_tests::{TestDb, eventually, must, test_db};
use reqwest::header::RETRY_AFTER;
use reqwest::{Body, RequestBuilder};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::run::{Alone, passes, program, signal};

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
        let mut command = report_service(&["serve", "--instance", "1", "--database", database]);
        command.args(options).env("MONGODB_URI", uri);
        let mut process = must(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn());
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let first = must(output.lines().next().expect("it says where it listens"));
        let url = first.strip_prefix("Listening on ").expect("it says so first");
        Self {
            _input: process.stdin.take(),
            url: url.to_owned(),
            process,
        }
    }

    fn pair(db: &TestDb, options: &[&str]) -> [Self; 2] {
        [Self::start(db, options), Self::start(db, options)]
    }

    fn report(&self, id: impl std::fmt::Display) -> String {
        format!("{}/reports/{id}", self.url)
    }

    async fn change(&self, id: u32, body: &'static str) -> Answer {
        send(post(self.report(id), body)).await
    }

    fn spawn_change(&self, id: u32, work_ms: u16) -> JoinHandle<Answer> {
        tokio::spawn(send(post(
            self.report(id),
            format!(r#"{{"work_ms": {work_ms}}}"#),
        )))
    }

    /// A request that holds the report for `work_ms`, from the moment at which it does.
    async fn hold(&self, db: &TestDb, id: u32, work_ms: u16) -> JoinHandle<Answer> {
        let held = self.spawn_change(id, work_ms);
        let is_held = || async { is_held(db, id).await.then_some(()) };
        must(eventually(SOON, "a report that is held", is_held).await);
        held
    }

    async fn read(&self, id: u32) -> Answer {
        send(http().get(self.report(id))).await
    }

    /// The revisions, as tokens.
    async fn tokens(&self, id: u32) -> Vec<u64> {
        let answer = self.read(id).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let revisions = answer.body["revisions"].as_array().expect("a list");
        revisions
            .iter()
            .map(|revision| number(revision, "token"))
            .collect()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    retry_after: Option<String>,
    body: Value,
}

impl Answer {
    fn number(&self, field: &str) -> u64 {
        number(&self.body, field)
    }

    fn millis(&self, field: &str) -> Duration {
        Duration::from_millis(self.number(field))
    }

    /// Asserts that this is such a refusal, without what the error of the lock names: its name, its owner, and hosts.
    #[track_caller]
    fn refuses(&self, status: u16, error: &str, retry_after: Option<&str>) {
        let found = (self.status, &self.body["error"], self.retry_after.as_deref());
        assert_eq!(found, (status, &Value::from(error), retry_after), "{self:?}");
        let body = self.body.to_string();
        for internal in ["report:1", "instance 1", "127.0.0.1"] {
            assert!(!body.contains(internal), "{self:?}");
        }
    }
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().expect(field)
}

fn http() -> reqwest::Client {
    // A proxy of the environment does not apply; and a test that hangs says where.
    let client = reqwest::Client::builder().no_proxy();
    must(client.timeout(Duration::from_secs(60)).build())
}

fn post(url: String, body: impl Into<Body>) -> RequestBuilder {
    http()
        .post(url)
        .header("content-type", "application/json")
        .body(body)
}

async fn send(request: RequestBuilder) -> Answer {
    let response = must(request.send().await);
    let retry_after = response.headers().get(RETRY_AFTER);
    Answer {
        status: response.status().as_u16(),
        retry_after: retry_after.map(|value| must(value.to_str()).to_owned()),
        // Requests that reach no handler are answered with a text.
        body: response.json().await.unwrap_or_default(),
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
    const REQUESTS: u64 = 40;
    let db = test_db().await;
    let instances = Instance::pair(&db, &["--acquire-timeout", "1m"]);
    let requests = (0..REQUESTS).map(|number| instances[usize::from(number % 2 == 0)].spawn_change(1, 5));
    let requests: Vec<_> = requests.collect();
    let mut answers = Vec::new();
    for request in requests {
        let answer = must(request.await);
        assert!(
            answer.status == 200 && answer.number("held_ms") >= 5,
            "{answer:?}"
        );
        answers.push((answer.number("revision"), answer.number("token")));
    }
    answers.sort_unstable();
    let (revisions, tokens): (Vec<u64>, Vec<u64>) = answers.into_iter().unzip();
    assert_eq!(revisions, (1..=REQUESTS).collect::<Vec<_>>());
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
    // Long enough for the holder's own request, the first one of its instance, on a busy machine.
    let instances = Instance::pair(&db, &["--acquire-timeout", "2s"]);
    let holder = instances[0].hold(&db, 1, 12_000).await;
    for instance in &instances {
        let refused = instance.change(1, "{}").await;
        refused.refuses(503, "lock_timeout", Some("1"));
        assert!(refused.number("waited_ms") >= 2_000, "{refused:?}");
        let refused = instance.change(1, r#"{"wait": false}"#).await;
        refused.refuses(409, "lock_busy", None);
        let other = instance.change(2, r#"{"work_ms": 1}"#).await;
        assert_eq!(other.status, 200, "{other:?}");
    }
    assert!(
        !holder.is_finished(),
        "the holder has ended before the others were refused"
    );
    let holder = must(holder.await);
    assert_eq!((holder.status, holder.number("revision")), (200, 1), "{holder:?}");
    assert_eq!(instances[1].tokens(1).await, [holder.number("token")]);
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

    let (waited, held) = (next.millis("waited_ms"), next.millis("held_ms"));
    assert!(held >= Duration::from_millis(50), "{next:?}");
    assert!(waited + held <= took, "{next:?} in {took:?}");
    assert!(holder.millis("held_ms") >= WORK, "{holder:?}");
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
    assert_eq!((next.status, next.number("revision")), (200, 1), "{next:?}");
    assert_eq!(first.tokens(1).await, [next.number("token")]);
}

#[tokio::test]
async fn a_request_in_progress_is_answered_before_the_instance_ends() {
    let db = test_db().await;
    for name in ["TERM", "INT"] {
        let mut instance = Instance::start(&db, &[]);
        let in_progress = instance.hold(&db, 1, 500).await;
        signal(name, instance.process.id());
        let answer = must(in_progress.await);
        assert_eq!(answer.status, 200, "{answer:?}");
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
    must(in_progress.await).refuses(500, "lock_lost", None);
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
    instance.change(1, "{}").await.refuses(409, "stale", None);
    assert_eq!(must(reports.find_one(doc! {}).await), Some(report));
}

#[tokio::test]
async fn an_unreachable_database_is_not_a_busy_lock() {
    let uri = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200";
    let instance = Instance::on(uri, "app", &["--acquire-timeout", "300ms"]);
    for answer in [instance.change(1, "{}").await, instance.read(1).await] {
        answer.refuses(503, "no_database", Some("1"));
    }
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let db = test_db().await;
    let instance = Instance::start(&db, &[]);
    instance.read(9).await.refuses(404, "not_found", None);
    let status = async |id: &str, body: &'static str| send(post(instance.report(id), body)).await.status;
    assert_eq!(status("1", r#"{"work_ms": 70000}"#).await, 422);
    assert_eq!(status("1", r#"{"works_ms": 7}"#).await, 422);
    assert_eq!(status("x", "{}").await, 400);
    assert!(!is_held(&db, 1).await);
}

/// As `curl -X POST` sends it.
#[tokio::test]
async fn a_request_needs_no_body() {
    let db = test_db().await;
    let instance = Instance::start(&db, &[]);
    let changed = send(http().post(instance.report(1))).await;
    assert_eq!(
        (changed.status, changed.number("revision")),
        (200, 1),
        "{changed:?}"
    );
    assert!(changed.number("held_ms") >= 100, "{changed:?}");
}
