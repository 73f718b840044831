//! The web services: `axum_service` while its lock is busy, and `service` under load, with a kill of MongoDB in between: what
//! its probes and its metrics say.

use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use mongolock_tests::{AMPLE, Server, ServerOptions, eventually, must};
use reqwest::{Client, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::executables::executable;

/// The callers, which send requests one after the other for four reports.
const CALLERS: u32 = 8;

struct Service {
    process: Child,
    url: String,
    client: Client,
}

impl Service {
    /// Starts the example with its locks in this MongoDB, or in memory, and waits until it listens.
    async fn start(name: &str, uri: Option<&str>) -> Self {
        let mut command = Command::new(executable(name));
        command.env_remove("MONGODB_URI").env("PORT", "0");
        command.envs(uri.map(|uri| ("MONGODB_URI", uri)));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = must(command.kill_on_drop(true).spawn());
        let (mut printed, mut line) = (BufReader::new(process.stdout.take().unwrap()), String::new());
        must(must(timeout(AMPLE, printed.read_line(&mut line)).await));
        let url = line
            .strip_prefix("listening on ")
            .and_then(|rest| rest.split(';').next());
        let url = url.unwrap_or_else(|| panic!("{line}")).to_owned();
        // It prints nothing more before its end.
        process.stdout = Some(printed.into_inner());
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

    /// Waits until the readiness probe has this status, and returns what `/health` says then.
    async fn until_ready(&self, status: StatusCode) -> serde_json::Value {
        let probe = async || (self.get("/ready").await?.0 == status).then_some(());
        must(eventually(AMPLE, "readiness", probe).await);
        let (_, health) = self.get("/health").await.unwrap();
        must(serde_json::from_str(&health))
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
async fn axum_service_says_when_a_busy_report_may_be_asked_for_again() {
    let service = Service::start("axum_service", None).await;
    let rebuild = async |id: u32| {
        let url = format!("{}/reports/{id}", service.url);
        let response = must(service.client.post(url).send().await);
        let after = response.headers().get("retry-after");
        let seconds = after.map(|after| must(must(after.to_str()).parse::<u64>()));
        (response.status(), seconds)
    };
    let (other, first, second, third) = tokio::join!(rebuild(7), rebuild(42), rebuild(42), rebuild(42));
    assert_eq!(other, (StatusCode::OK, None));
    // The work takes 3 s, and a request waits for 2 s.
    let (done, refused): (Vec<_>, Vec<_>) = [first, second, third]
        .into_iter()
        .partition(|(status, _)| *status == StatusCode::OK);
    assert!(!done.is_empty() && !refused.is_empty(), "{done:?} {refused:?}");
    for (status, seconds) in refused {
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(matches!(seconds, Some(1..=3)), "{seconds:?}");
    }
    service.end().await;
}

#[tokio::test]
async fn service_says_what_happens_when_mongodb_is_killed() {
    let server = must(Server::start(ServerOptions::single()).await);
    let service = Service::start("service", Some(&server.uri())).await;
    let before = service.until_ready(StatusCode::OK).await;
    let is_up = before["has_primary"] == true && before["is_shut_down"] == false;
    assert!(is_up, "{before}");

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
    let down = service.until_ready(StatusCode::SERVICE_UNAVAILABLE).await;
    let error = down["error"].as_str().unwrap_or_default();
    let is_named = down["is_reachable"] == false && error.contains("127.0.0.1");
    assert!(is_named, "{down}");
    assert_eq!(service.get("/live").await.unwrap().0, StatusCode::OK);
    let errors = service.metric("mongolock_commands_total", r#"outcome="error""#);
    assert!(errors.await > 0.0);

    must(server.node().restart().await);
    let again = service.until_ready(StatusCode::OK).await;
    assert_eq!(again["error"], serde_json::Value::Null);
    until_rebuilt(rebuilt.load(Ordering::Relaxed) + 100).await;
    assert!(service.metric("mongolock_held", "").await <= 4.0);

    let output = service.end().await;
    goes_on.store(false, Ordering::Relaxed);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.ends_with("all locks are released\n"), "{printed}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors, "", "no request was interrupted");
    while callers.join_next().await.is_some() {}
    let client = must(server.client().await);
    let held = mongodb::bson::doc! { "lockId": { "$ne": "" } };
    let locks = mongolock_tests::locks(&client.database("mongolock"));
    assert_eq!(must(locks.find_one(held).await), None);
}
