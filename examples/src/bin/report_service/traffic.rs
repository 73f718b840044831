//! The requests of the demonstration.

use std::time::Duration;

use mongolock_examples::output::println;
use tokio::task::{AbortHandle, JoinSet};

use crate::answer::{Content, Request};
use crate::client::{Client, Reply};
use crate::outcome::line;

/// The report that one request keeps for long. The two after it are changed by others meanwhile.
pub(crate) const SLOW: u32 = 1;

/// Twice as long as anybody waits: a request that comes while this one is at work is refused, and succeeds when it
/// comes again.
const SLOW_WORK: u16 = 2_000;

const WORK: u16 = 20;

/// Requests for other reports: many enough to meet, few enough to be done long before the slow one.
pub(crate) const OTHERS: u32 = 12;

#[derive(Default)]
struct Traffic {
    /// In the order in which they came.
    replies: Vec<Reply>,
    under_way: JoinSet<anyhow::Result<Reply>>,
}

/// Sends requests to both instances and prints each answer as it comes.
pub(crate) async fn send(first: &Client, second: &Client) -> anyhow::Result<Vec<Reply>> {
    let mut traffic = Traffic::default();

    // Each instance makes a change, and then the first one keeps the report.
    traffic.note(first.change(SLOW, &waiting(WORK)).await?)?;
    traffic.note(second.change(SLOW, &waiting(WORK)).await?)?;
    let slow = traffic.send(first, SLOW, SLOW_WORK);
    // While the second instance can have the report, the slow request is still on its way.
    while traffic.note(second.change(SLOW, &not_waiting()).await?)? && !slow.is_finished() {}

    traffic.send(first, SLOW, WORK);
    traffic.send(second, SLOW, WORK);
    for number in 0..OTHERS {
        // Each report at each instance.
        let instance = if number % 2 == 0 { first } else { second };
        traffic.send(instance, SLOW + 1 + number / 2 % 2, WORK);
    }

    while let Some(reply) = traffic.under_way.join_next().await {
        let reply = reply??;
        if let (Some(pause), false) = (reply.retry_after, reply.again) {
            // A load balancer would do this as well: next time it is the other's turn.
            let other = if reply.instance == first.instance {
                second
            } else {
                first
            };
            traffic.send_again(other, reply.id, pause);
        }
        traffic.note(reply)?;
    }
    Ok(traffic.replies)
}

/// The reports that the requests are about.
pub(crate) async fn reports(from: &Client) -> anyhow::Result<Vec<Content>> {
    let mut reports = Vec::new();
    for id in SLOW..=SLOW + 2 {
        reports.push(from.read(id).await?);
    }
    Ok(reports)
}

impl Traffic {
    fn send(&mut self, to: &Client, id: u32, work_ms: u16) -> AbortHandle {
        let to = to.clone();
        self.under_way
            .spawn(async move { to.change(id, &waiting(work_ms)).await })
    }

    fn send_again(&mut self, to: &Client, id: u32, pause: Duration) {
        let to = to.clone();
        self.under_way.spawn(async move {
            tokio::time::sleep(pause).await;
            let reply = to.change(id, &waiting(WORK)).await?;
            Ok(Reply { again: true, ..reply })
        });
    }

    /// Whether it says that the report was changed.
    fn note(&mut self, reply: Reply) -> anyhow::Result<bool> {
        println(&line(&reply))?;
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
