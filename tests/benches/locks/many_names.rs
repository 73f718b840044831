//! Thousands of names in one process, held or awaited: what renewals and waiters cost, whether a lease is lost, how much memory
//! each takes, and what becomes of leases when all awaited names become free at once.
//!
//! Each number of names has a process of its own, so that no memory of earlier work is used again. Connections are opened
//! before the memory is measured. The names that a process waits for are held by this program, with an expiry so long that
//! no renewal is sent meanwhile.

use std::sync::Arc;
use std::time::Duration;

use mongolock::{LockGuard, LockProvider};
use mongolock_tests::{Actor, monotonic_now, order};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::child::{self, Job, print, ready};
use crate::report::Goal::AtMost;
use crate::report::Report;
use crate::samples::{Samples, millis};
use crate::server::{Server, each, resident};
use crate::setting::{Access, Setting, warm_up};

/// The goals of commands a second, and of bytes of each waiter.
const COMMANDS: f64 = 12.0;
const WAITER: f64 = 2048.0;
/// The goal of the bytes of each held lock.
const HELD: f64 = 1024.0;
/// The goal of the latest renewal, in milliseconds after it was due.
const RENEWAL: f64 = 300.0;

const LONG: Duration = Duration::from_secs(3_600);
const SHORT: Duration = Duration::from_secs(3);
/// The number of leases beside names that are all released at once.
const LEASES: usize = 1_000;
/// The number of acquires that run at the same time.
const AT_ONCE: usize = 64;

/// The names of a process.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Names {
    /// The number of names that it holds.
    held: usize,
    expiry: Duration,
    /// The number of names that it waits for.
    awaited: usize,
    /// The time after which waiters are at rest.
    settle: Duration,
}

/// What a process says when its waiters have all had their names.
#[derive(Serialize, Deserialize)]
struct Served {
    /// When the last name was acquired.
    last: Duration,
    lost: usize,
    /// How much later than due the latest renewal was confirmed.
    latest: Duration,
}

/// The holder of the names, and the process that waits for them or holds others.
struct Scene {
    holder: LockProvider,
    guards: Vec<LockGuard>,
    process: Actor,
    server: Server,
}

impl Scene {
    async fn start(names: Names, setting: &Setting) -> anyhow::Result<Self> {
        let holder = setting.access().builder().await?.expiry(LONG).build()?;
        Ok(Self {
            guards: acquire(&holder, "awaited", names.awaited).await?,
            process: child::start(setting.access(), Job::Names(names)).await?,
            server: Server::of(setting.access()).await?,
            holder,
        })
    }

    /// Lets the process begin, until all is at rest; returns the memory of a held name and of a waiter in bytes.
    async fn settle(&mut self) -> anyhow::Result<[f64; 2]> {
        self.process.send("go").await;
        child::result(&mut self.process).await
    }

    /// Releases all names that are held here; returns when, and what the process has seen at the end.
    async fn end(mut self) -> anyhow::Result<(Duration, Served)> {
        let released = monotonic_now();
        drop(self.guards);
        self.process.send("end").await;
        let served = child::last_result(self.process).await?;
        self.holder.shutdown().await;
        Ok((released, served))
    }
}

pub(crate) async fn held(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    for (held, expiry, time, goal) in [
        (1_000, SHORT, setting.seconds(15, 6), 3.0),
        (10_000, Duration::from_secs(30), setting.seconds(61, 21), 2.4),
    ] {
        let names = Names {
            held,
            expiry,
            awaited: 0,
            settle: Duration::ZERO,
        };
        let mut scene = Scene::start(names, setting).await?;
        let [bytes, _] = scene.settle().await?;
        let load = scene.server.for_some_time(time).await?;
        let (_, served) = scene.end().await?;
        report.about(format!("{held} locks, expiry {expiry:?}"));
        report.figure("commands", load.commands, "/s", AtMost(goal));
        report.figure("lost", served.lost, "locks", AtMost(0.0));
        // The allocator's pages are too coarse for fewer locks.
        if held == 10_000 {
            report.figure("memory of each", bytes, "bytes", AtMost(HELD));
        }
    }
    Ok(())
}

pub(crate) async fn awaited(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let time = setting.seconds(20, 6);
    let (awaited, settle) = (setting.pick(10_000, 1_000), setting.seconds(30, 10));
    let names = Names {
        held: 0,
        expiry: SHORT,
        awaited,
        settle,
    };
    report.about(format!("{awaited} waiters at rest"));
    let mut scene = Scene::start(names, setting).await?;
    let without = scene.server.for_some_time(time).await?;
    let [_, bytes] = scene.settle().await?;
    let with = scene.server.for_some_time(time).await?;
    scene.end().await?;
    let commands = with.commands - without.commands;
    report.figure("commands", commands, "/s", AtMost(COMMANDS));
    report.figure("memory of each, with its task", bytes, "bytes", AtMost(WAITER));
    Ok(())
}

/// All names become free at once, while the process renews leases.
pub(crate) async fn released(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let awaited = setting.pick(10_000, 3_000);
    let (mut renewals, mut ends, mut lost) = (Samples::default(), Samples::default(), 0);
    for _ in 0..setting.turns(3, 1) {
        let names = Names {
            held: LEASES,
            expiry: SHORT,
            awaited,
            settle: Duration::from_secs(8),
        };
        let mut scene = Scene::start(names, setting).await?;
        scene.settle().await?;
        let (released, served) = scene.end().await?;
        lost += served.lost;
        renewals.add(millis(served.latest));
        ends.add(served.last.saturating_sub(released).as_secs_f64());
    }
    let who = format!("{awaited} names at once beside {LEASES} leases of {SHORT:?}");
    report.about(who);
    report.figure("lost", lost, "locks", AtMost(0.0));
    report.figure("latest renewal after it was due", renewals, "ms", AtMost(RENEWAL));
    report.figure("the last name acquired after", ends, "s", None);
    Ok(())
}

/// The job of the process that holds names and waits for others.
pub(crate) async fn hold_and_wait(access: &Access, names: Names) -> anyhow::Result<()> {
    let builder = access.builder().await?.acquire_timeout(None).expiry(names.expiry);
    let provider = builder.build()?;
    for _ in 0..4 {
        warm_up(&provider, AT_ONCE).await?;
    }
    ready().await;
    let before = resident()?;
    let leases = Arc::new(acquire(&provider, "held", names.held).await?);
    let between = resident()?;
    let mut waiters = JoinSet::new();
    for index in 0..names.awaited {
        waiters.spawn(provider.lock(format_args!("awaited:{index}")).acquire());
    }
    // Each short lease has been renewed then.
    sleep(names.settle).await;
    let after = resident()?;
    print(&[
        each(before, between, names.held),
        each(between, after, names.awaited),
    ])?;
    let (ends, until) = oneshot::channel();
    let watching = tokio::spawn(latest_renewal(Arc::clone(&leases), names.expiry, until));
    let mut last = Duration::ZERO;
    while let Some(guard) = waiters.join_next().await {
        drop(guard??);
        last = monotonic_now();
    }
    order().await;
    // The task waits for the end of this value.
    drop(ends);
    let latest = watching.await?;
    print(&Served {
        last,
        lost: leases.iter().filter(|guard| guard.is_lost()).count(),
        latest,
    })?;
    drop(leases);
    provider.shutdown().await;
    Ok(())
}

/// How much later than due the latest renewal of these leases is confirmed, until the sender is dropped. A renewal is due when a
/// third of the lease is over.
async fn latest_renewal(
    leases: Arc<Vec<LockGuard>>,
    expiry: Duration,
    mut until: oneshot::Receiver<()>,
) -> Duration {
    let (mut least, mut greatest) = (expiry, Duration::ZERO);
    while let Err(TryRecvError::Empty) = until.try_recv() {
        for lease in leases.iter() {
            let remaining = lease.remaining();
            (least, greatest) = (least.min(remaining), greatest.max(remaining));
        }
        sleep(Duration::from_millis(2)).await;
    }
    // What is left directly after a renewal is a little less than the whole lease.
    greatest.saturating_sub(least + expiry / 3)
}

/// Acquires this number of locks, some of them at the same time.
pub(crate) async fn acquire(
    provider: &LockProvider,
    prefix: &str,
    count: usize,
) -> anyhow::Result<Vec<LockGuard>> {
    let mut acquiring = JoinSet::new();
    let mut guards = Vec::with_capacity(count);
    for index in 0..count {
        if acquiring.len() == AT_ONCE
            && let Some(guard) = acquiring.join_next().await
        {
            guards.push(guard??);
        }
        acquiring.spawn(provider.lock(format_args!("{prefix}:{index}")).acquire());
    }
    while let Some(guard) = acquiring.join_next().await {
        guards.push(guard??);
    }
    Ok(guards)
}
