//! The web service: its answer while a lock is busy, and what its probe and its metrics say under load, with a kill of MongoDB
//! in between.

use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use mongolock::LockProvider;
use mongolock_tests::{AMPLE, Server, ServerOptions, eventually, must, test_db};
use reqwest::{Client, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::uri;
use crate::executables::executable;

/// The callers, which send requests one after the other for four reports.
const CALLERS: u32 = 8;

struct Service {
    process: Child,
    url: String,
    client: Client,
}

impl Service {
    /// Starts the example with its locks in this MongoDB, and waits until it listens.
    async fn start(uri: &str) -> Self {
        let mut command = Command::new(executable("service"));
        command.env("MONGODB_URI", uri).env("ADDRESS", "127.0.0.1:0");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = must(command.kill_on_drop(true).spawn());
        let (mut printed, mut line) = (BufReader::new(process.stdout.take().unwrap()), String::new());
        must(must(timeout(AMPLE, printed.read_line(&mut line)).await));
        let url = line.trim_end().strip_prefix("listening on ");
        let url = url.unwrap_or_else(|| panic!("{line}")).to_owned();
        Self {
            process,
            url,
            client: Client::new(),
        }
    }

    async fn get(&self, path: &str) -> Option<(StatusCode, String)> {
        let response = self.client.get(format!("{}{path}", self.url)).send().await.ok()?;
        Some((response.status(), response.text().await.ok()?))
    }

    async fn rebuild(&self, report: u32) -> StatusCode {
        let url = format!("{}/reports/{report}", self.url);
        must(self.client.post(url).send().await).status()
    }

    /// Waits until the readiness probe has this status.
    async fn until_ready(&self, status: StatusCode) {
        let probe = async || (self.get("/ready").await?.0 == status).then_some(());
        must(eventually(AMPLE, "readiness", probe).await);
    }

    /// Sends SIGTERM, and returns what a service that ends well has printed.
    async fn end(self) -> Output {
        let id = Pid::from_raw(must(i32::try_from(self.process.id().unwrap())));
        must(kill_process(id.unwrap(), Signal::TERM));
        let output = timeout(AMPLE, self.process.wait_with_output());
        let output = must(output.await.unwrap());
        assert!(output.status.success(), "{output:?}");
        output
    }

    /// The sum of the series of a metric whose labels contain this text.
    async fn metric(&self, name: &str, label: &str) -> f64 {
        let (_, metrics) = self.get("/metrics").await.unwrap();
        let series = metrics.lines().filter_map(|line| line.rsplit_once(' '));
        let matching =
            series.filter(|(series, _)| series.split('{').next() == Some(name) && series.contains(label));
        matching.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
    }
}

#[tokio::test]
async fn service_answers_503_while_another_process_holds_the_lock() {
    let db = test_db().await;
    let service = Service::start(&uri(&db)).await;
    let held = must(LockProvider::new(db.database()).lock("report:42").await);
    assert_eq!(service.rebuild(42).await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(service.rebuild(7).await, StatusCode::OK);
    must(held.release().await);
    assert_eq!(service.rebuild(42).await, StatusCode::OK);
    service.end().await;
}

#[tokio::test]
async fn service_says_what_happens_when_mongodb_is_killed() {
    let server = must(Server::start(ServerOptions::single()).await);
    let service = Service::start(&server.uri()).await;
    service.until_ready(StatusCode::OK).await;

    let (goes_on, rebuilt) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (client, goes_on, rebuilt) = (service.client.clone(), Arc::clone(&goes_on), Arc::clone(&rebuilt));
        let url = format!("{}/reports/{}", service.url, caller % 4);
        callers.spawn(async move {
            while goes_on.load(Ordering::Relaxed) {
                match client.post(&url).send().await {
                    Ok(response) if response.status() == StatusCode::OK => {
                        rebuilt.fetch_add(1, Ordering::Relaxed);
                    }
                    // After the end of the service a caller gets no answer.
                    Ok(_) | Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                }
            }
        });
    }
    let until_rebuilt = async |number: u32| {
        let enough = async || (rebuilt.load(Ordering::Relaxed) >= number).then_some(());
        must(eventually(AMPLE, "rebuilt reports", enough).await);
    };
    until_rebuilt(100).await;
    assert!(service.metric("mongolock_acquires_total", "acquired").await >= 100.0);
    let waiting = service.metric("mongolock_waiting", "").await;
    assert!(waiting > 0.0, "callers compete for four locks");
    assert!(service.metric("mongolock_hold_seconds_count", "").await >= 100.0);

    must(server.node().kill().await);
    service.until_ready(StatusCode::SERVICE_UNAVAILABLE).await;
    let errors = service.metric("mongolock_commands_total", r#"outcome="error""#);
    assert!(errors.await > 0.0);

    must(server.node().restart().await);
    service.until_ready(StatusCode::OK).await;
    until_rebuilt(rebuilt.load(Ordering::Relaxed) + 100).await;
    assert!(service.metric("mongolock_held", "").await <= 4.0);

    let output = service.end().await;
    goes_on.store(false, Ordering::Relaxed);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors, "", "no request was interrupted");
    while callers.join_next().await.is_some() {}
    let client = must(server.client().await);
    let held = mongodb::bson::doc! { "lockId": { "$ne": "" } };
    let locks = mongolock_tests::locks(&client.database("mongolock"));
    assert_eq!(must(locks.find_one(held).await), None);
}
