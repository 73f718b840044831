//! The cost of waiting: fifty callers of one process wait for a lock that another process holds.
//!
//! The number of waiters must hardly matter. All commands of the waiting process are counted, including those of the
//! change stream, first while the stream opens and then while the lock stays held. Runs without wake-ups measure the
//! same for polling. "Another process" is a provider with a client of its own, which is the same for mongolock and the
//! server.

use std::time::{Duration, Instant};

use mongolock::{LockError, LockGuard, LockProvider};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use crate::report::Report;
use crate::samples::Samples;
use crate::setting::{Sent, Setting};

/// The number of callers that wait for the lock.
const WAITERS: usize = 50;
/// The goal for the commands per second of all waiters together.
const GOAL: f64 = 2.0;
/// The time in which the stream opens and the pauses of the waiters reach their maximum.
const SETTLE: Duration = Duration::from_secs(3);

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    for (kind, wake_up) in [("woken", true), ("polling", false)] {
        let costs = quiet(setting, kind, wake_up).await?;
        report.figure(
            format!("{kind}: commands in the first 3 s"),
            costs.at_first,
            "commands",
        );
        let name = format!("{kind}: commands of 50 waiters");
        if wake_up {
            report.at_most(GOAL, name, costs.per_second, "/s");
        } else {
            report.figure(name, costs.per_second, "/s");
        }
        let served = served(setting, kind, wake_up).await?;
        report.millis(format!("{kind}: release to first hold, p50"), served.first.p50());
        report.millis(format!("{kind}: release to first hold, max"), served.first.max());
        report.millis(
            format!("{kind}: release to the last of 50 holds, p50"),
            served.all.p50(),
        );
        report.millis(
            format!("{kind}: release to the last of 50 holds, max"),
            served.all.max(),
        );
    }
    Ok(())
}

struct Costs {
    at_first: f64,
    per_second: f64,
}

/// Counts the commands that are sent while the lock stays held.
async fn quiet(setting: &Setting, kind: &str, wake_up: bool) -> anyhow::Result<Costs> {
    let pair = Pair::connect(setting, format!("waiters:quiet:{kind}"), wake_up).await?;
    let guard = pair.other.lock(&pair.name).acquire().await?;
    let before = pair.sent.so_far();
    let mut held = pair.wait_together();
    sleep(SETTLE).await;
    let settled = pair.sent.so_far();
    let time = setting.pick(Duration::from_secs(20), Duration::from_secs(5));
    sleep(time).await;
    let quiet = pair.sent.so_far() - settled;
    guard.release().await?;
    drain(&mut held).await?;
    Ok(Costs {
        at_first: as_f64(settled - before),
        per_second: as_f64(quiet) / time.as_secs_f64(),
    })
}

struct Served {
    first: Samples,
    all: Samples,
}

/// Measures the time from a release to the first hold of a waiter, and to the last one.
async fn served(setting: &Setting, kind: &str, wake_up: bool) -> anyhow::Result<Served> {
    let pair = Pair::connect(setting, format!("waiters:served:{kind}"), wake_up).await?;
    let mut served = Served {
        first: Samples::default(),
        all: Samples::default(),
    };
    for _ in 0..setting.pick(15, 4) {
        let guard = pair.other.lock(&pair.name).acquire().await?;
        let mut held = pair.wait_together();
        // The release must not always fall into the same phase of the waiters' pauses.
        sleep(Duration::from_millis(
            1500 + as_millis(served.all.len()) * 37 % 700,
        ))
        .await;
        let released = Instant::now();
        guard.release().await?;
        let times = drain(&mut held).await?;
        served
            .first
            .add(*times.iter().min().unwrap_or(&released) - released);
        served
            .all
            .add(*times.iter().max().unwrap_or(&released) - released);
    }
    Ok(served)
}

/// The process that waits, and the process that holds the lock first.
struct Pair {
    name: String,
    waiting: LockProvider,
    other: LockProvider,
    sent: Sent,
}

impl Pair {
    async fn connect(setting: &Setting, name: String, wake_up: bool) -> anyhow::Result<Self> {
        let (database, sent) = setting.counted().await?;
        let waiting = LockProvider::builder(&database)
            .wake_up(wake_up)
            .acquire_timeout(None);
        let other = LockProvider::new(&setting.database().await?);
        Ok(Self {
            name,
            waiting: waiting.build()?,
            other,
            sent,
        })
    }

    /// Starts the waiters; the receiver gets the time at which each of them acquires the lock.
    fn wait_together(&self) -> UnboundedReceiver<Result<Instant, LockError>> {
        let (sender, held) = unbounded_channel();
        for _ in 0..WAITERS {
            tokio::spawn(wait_once(self.waiting.clone(), self.name.clone(), sender.clone()));
        }
        held
    }
}

async fn wait_once(
    provider: LockProvider,
    name: String,
    sender: UnboundedSender<Result<Instant, LockError>>,
) {
    let outcome = provider.lock(name).acquire().await;
    let held = outcome.as_ref().map(|_| Instant::now());
    // The receiver is dropped early only if another waiter has failed.
    let _ = sender.send(held.map_err(Clone::clone));
    if let Ok(guard) = outcome {
        let _ = LockGuard::release(guard).await;
    }
}

/// The times at which the waiters acquired the lock.
async fn drain(held: &mut UnboundedReceiver<Result<Instant, LockError>>) -> anyhow::Result<Vec<Instant>> {
    let mut times = Vec::new();
    while let Some(time) = held.recv().await {
        times.push(time?);
    }
    Ok(times)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

fn as_millis(count: usize) -> u64 {
    u64::try_from(count).unwrap_or_default()
}
