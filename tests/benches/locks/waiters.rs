//! Fifty callers of one process that wait for a lock which another process holds.
//!
//! All commands of the waiting process are counted, those of its change stream among them, first while the stream is opened
//! and then while nothing happens. With wake-ups switched off the group measures polling. The other process is a provider
//! with a client of its own, which is the same to mongolock and to the server.

use std::time::{Duration, Instant};

use mongolock::{LockError, LockGuard, LockProvider};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use crate::report::Report;
use crate::samples::{Samples, number, per_second};
use crate::setting::{Sent, Setting};

const WAITERS: usize = 50;
const GOAL: f64 = 2.0;
/// The time in which the stream is opened and the pauses reach their full length.
const SETTLE: Duration = Duration::from_secs(3);

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    for (kind, wake_up) in [("woken", true), ("polling", false)] {
        let costs = quiet(setting, kind, wake_up).await?;
        report.figure(
            format!("{kind}: commands of the first 3 s"),
            costs.at_first,
            "commands",
        );
        let name = format!("{kind}: commands while 50 wait");
        report.at_most(wake_up.then_some(GOAL), name, costs.per_second, "/s");
        let served = served(setting, kind, wake_up).await?;
        for (until, samples) in [
            ("to first hold", served.first),
            ("until all 50 had it", served.all),
        ] {
            report.millis(format!("{kind}: release {until}, p50"), samples.p50());
            report.millis(format!("{kind}: release {until}, max"), samples.max());
        }
    }
    Ok(())
}

struct Costs {
    at_first: f64,
    per_second: f64,
}

/// How many commands are sent while nothing happens.
async fn quiet(setting: &Setting, kind: &str, wake_up: bool) -> anyhow::Result<Costs> {
    let room = Room::open(setting, format!("waiters:quiet:{kind}"), wake_up).await?;
    let guard = room.other.lock(&room.name).acquire().await?;
    let before = room.sent.so_far();
    let mut held = room.wait_together();
    sleep(SETTLE).await;
    let settled = room.sent.so_far();
    let time = setting.pick(Duration::from_secs(20), Duration::from_secs(5));
    sleep(time).await;
    let quiet = room.sent.so_far() - settled;
    guard.release().await?;
    drain(&mut held).await?;
    Ok(Costs {
        at_first: number(settled - before),
        per_second: per_second(quiet, time),
    })
}

struct Served {
    first: Samples,
    all: Samples,
}

/// How long it takes from a release to the first hold, and until all have had the lock.
async fn served(setting: &Setting, kind: &str, wake_up: bool) -> anyhow::Result<Served> {
    let room = Room::open(setting, format!("waiters:served:{kind}"), wake_up).await?;
    let mut served = Served {
        first: Samples::default(),
        all: Samples::default(),
    };
    for round in 0..setting.pick(15, 4) {
        let guard = room.other.lock(&room.name).acquire().await?;
        let mut held = room.wait_together();
        // The pause varies, so that the release meets different phases of the waiters' pauses.
        sleep(Duration::from_millis(1500 + round * 37 % 700)).await;
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

/// The provider that waits, and the other one.
struct Room {
    name: String,
    waiting: LockProvider,
    other: LockProvider,
    sent: Sent,
}

impl Room {
    async fn open(setting: &Setting, name: String, wake_up: bool) -> anyhow::Result<Self> {
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

    /// Starts the waiters; each of them sends the time at which it has the lock.
    fn wait_together(&self) -> UnboundedReceiver<Result<Instant, LockError>> {
        let (times, held) = unbounded_channel();
        for _ in 0..WAITERS {
            tokio::spawn(wait_once(self.waiting.clone(), self.name.clone(), times.clone()));
        }
        held
    }
}

async fn wait_once(provider: LockProvider, name: String, times: UnboundedSender<Result<Instant, LockError>>) {
    let outcome = provider.lock(name).acquire().await;
    let held = outcome.as_ref().map(|_| Instant::now());
    // The receiver is gone only if another waiter has failed.
    let _ = times.send(held.map_err(Clone::clone));
    if let Ok(guard) = outcome {
        let _ = LockGuard::release(guard).await;
    }
}

/// The times at which the waiters had the lock.
async fn drain(held: &mut UnboundedReceiver<Result<Instant, LockError>>) -> anyhow::Result<Vec<Instant>> {
    let mut times = Vec::new();
    while let Some(time) = held.recv().await {
        times.push(time?);
    }
    Ok(times)
}
