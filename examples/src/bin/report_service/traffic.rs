//! The requests of the demonstration.

use std::fmt;
use std::time::Duration;

use anyhow::Context;
use mongolock_examples::print;
use mongolock_examples::turns::Hold;
use reqwest::StatusCode;
use reqwest::header::RETRY_AFTER;
use tokio::task::{AbortHandle, JoinSet};

use crate::error::Problem;
use crate::reports::Changed;
use crate::service::{Content, Request};

/// The report whose lock one request holds for long. Meanwhile other requests change the two reports after it.
pub(crate) const SLOW: u32 = 1;

/// Twice the time that a request waits: a request during this work is refused, and succeeds when it is sent again.
const SLOW_WORK: u16 = 4_000;

const WORK: u16 = 20;

/// Requests for other reports: enough to have to wait for each other, and few enough to end long before the slow one.
pub(crate) const OTHERS: u32 = 12;

/// Longer than any request of the demonstration takes.
const LIMIT: Duration = Duration::from_secs(30);

/// A client of one instance.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    instance: u32,
    pub(crate) url: String,
    http: reqwest::Client,
}

/// The answer to a request to change a report.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) instance: u32,
    pub(crate) id: u32,
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) answer: Result<Changed, Problem>,
    /// The request was sent again, after the time of `retry_after`.
    pub(crate) again: bool,
}

/// Sends requests to both instances, and prints the answers as they come. Returns them in that order.
pub(crate) async fn send(first: &Client, second: &Client) -> anyhow::Result<Vec<Reply>> {
    let mut traffic = Traffic::default();

    // Each instance makes a change, and then the first one holds the lock.
    traffic.add(first.change(SLOW, waiting(WORK)).await?)?;
    traffic.add(second.change(SLOW, waiting(WORK)).await?)?;
    let slow = traffic.send(first, SLOW, SLOW_WORK);
    // While the second instance gets the lock at once, the slow request has not arrived yet.
    while traffic.add(second.change(SLOW, not_waiting()).await?)? && !slow.is_finished() {}

    traffic.send(first, SLOW, WORK);
    traffic.send(second, SLOW, WORK);
    for number in 0..OTHERS {
        // Each report at each instance.
        let instance = if number % 2 == 0 { first } else { second };
        traffic.send(instance, SLOW + 1 + number / 2 % 2, WORK);
    }

    while let Some(reply) = traffic.pending.join_next().await {
        let reply = reply??;
        if let (Some(pause), false) = (reply.retry_after, reply.again) {
            // As a load balancer does: the next attempt goes to the other instance.
            let other = if reply.instance == first.instance {
                second
            } else {
                first
            };
            traffic.send_again(other, reply.id, pause);
        }
        traffic.add(reply)?;
    }
    Ok(traffic.replies)
}

/// The reports that the requests have changed.
pub(crate) async fn reports(from: &Client) -> anyhow::Result<Vec<Content>> {
    let mut reports = Vec::new();
    for id in SLOW..=SLOW + 2 {
        let report = from.read(id).await;
        reports.push(report.with_context(|| format!("cannot read report {id}"))?);
    }
    Ok(reports)
}

#[derive(Default)]
struct Traffic {
    replies: Vec<Reply>,
    pending: JoinSet<anyhow::Result<Reply>>,
}

impl Traffic {
    fn send(&mut self, to: &Client, id: u32, work_ms: u16) -> AbortHandle {
        let to = to.clone();
        self.pending
            .spawn(async move { to.change(id, waiting(work_ms)).await })
    }

    fn send_again(&mut self, to: &Client, id: u32, pause: Duration) {
        let to = to.clone();
        self.pending.spawn(async move {
            tokio::time::sleep(pause).await;
            let reply = to.change(id, waiting(WORK)).await?;
            Ok(Reply { again: true, ..reply })
        });
    }

    /// Prints an answer, and returns whether the report was changed.
    fn add(&mut self, reply: Reply) -> anyhow::Result<bool> {
        print(&reply)?;
        let is_changed = reply.answer.is_ok();
        self.replies.push(reply);
        Ok(is_changed)
    }
}

fn waiting(work_ms: u16) -> Request {
    Request { work_ms, wait: true }
}

fn not_waiting() -> Request {
    Request {
        work_ms: 0,
        wait: false,
    }
}

impl Client {
    pub(crate) fn new(instance: u32, url: String) -> anyhow::Result<Self> {
        // The instances are on this machine: a proxy of the environment does not apply.
        let http = reqwest::Client::builder().timeout(LIMIT).no_proxy().build()?;
        Ok(Self { instance, url, http })
    }

    async fn change(&self, id: u32, request: Request) -> anyhow::Result<Reply> {
        let reply = self.post(id, request).await;
        reply.with_context(|| {
            format!(
                "instance {} did not answer to a change of report {id}",
                self.instance
            )
        })
    }

    async fn post(&self, id: u32, request: Request) -> reqwest::Result<Reply> {
        let response = self.http.post(self.report(id)).json(&request).send().await?;
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|seconds| seconds.to_str().ok()?.parse().ok());
        let answer = if status.is_success() {
            Ok(response.json().await?)
        } else {
            Err(response.json().await?)
        };
        Ok(Reply {
            instance: self.instance,
            id,
            status,
            retry_after: retry_after.map(Duration::from_secs),
            answer,
            again: false,
        })
    }

    async fn read(&self, id: u32) -> reqwest::Result<Content> {
        let response = self.http.get(self.report(id)).send().await?;
        response.error_for_status()?.json().await
    }

    fn report(&self, id: u32) -> String {
        format!("{}/reports/{id}", self.url)
    }
}

/// The line of an answer.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (token, waited, held) = match &self.answer {
            Ok(changed) => (Some(changed.token), changed.waited_ms, changed.held_ms),
            Err(problem) => (None, problem.waited_ms.unwrap_or_default(), 0),
        };
        let [waited, held] = [waited, held].map(Duration::from_millis);
        let columns = Hold { token, waited, held };
        write!(
            f,
            "{:>8}  {:>6}  {columns}  {}",
            self.instance,
            self.id,
            self.status.as_u16()
        )?;
        match self.retry_after {
            Some(pause) => write!(f, ", retry after {} s", pause.as_secs()),
            None => Ok(()),
        }
    }
}
