//! Many held names with one waiter each, all in one process: what the waiters cost while nothing happens, how soon one of them
//! gets a name that has become free, and what becomes of leases when all names become free at once.
//!
//! The names are held by this process, with an expiry so long that no renewal is sent meanwhile. The server's load is
//! measured before there are waiters and when they are at rest.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use mongolock::{LockGuard, LockProvider};
use mongolock_tests::Actor;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::held::acquire;
use crate::memory::{each, resident};
use crate::report::Report;
use crate::samples::{Samples, Turns, number};
use crate::server::{Load, Server};
use crate::setting::{Access, Setting};
use crate::worker::{Job, print, ready, warm_up};
use crate::{child, clock};

/// The goals of commands a second, of the server's cores, and of bytes of each waiter.
const COMMANDS: f64 = 12.0;
const CORES: f64 = 0.04;
const BYTES: f64 = 2048.0;
/// The goal of the time in which a free name is acquired, in seconds.
const FREE: f64 = 2.0;
/// The goal of the latest renewal, in milliseconds after it was due.
const RENEWAL: f64 = 300.0;

const EXPIRY: Duration = Duration::from_secs(3_600);
/// The expiry of the waiting process, which renews its leases after a third of it.
const LEASE: Duration = Duration::from_secs(3);
/// The number of leases beside names that are all released at once.
const LEASES: usize = 1_000;
/// The number of names that are released one after the other.
const SINGLY: usize = 20;

/// The names that a process waits for.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Waiting {
    names: usize,
    /// The number of leases that it holds meanwhile.
    leases: usize,
    wake_up: bool,
    settle: Duration,
}

/// What the waiting process says when its waiters have all had their names.
#[derive(Serialize, Deserialize)]
struct Served {
    /// When each name was acquired.
    acquired: Vec<Duration>,
    lost: usize,
    /// How much later than due the latest renewal was confirmed.
    latest: Duration,
}

/// The holder of the names, and the process that waits for them.
struct Scene {
    holder: LockProvider,
    guards: Vec<LockGuard>,
    process: Actor,
    server: Server,
}

impl Scene {
    async fn start(waiting: Waiting, setting: &Setting) -> anyhow::Result<Self> {
        let holder = setting.access().builder().await?.expiry(EXPIRY).build()?;
        let mut guards = acquire(&holder, "awaited", waiting.names).await?;
        guards.sort_unstable_by_key(|guard| number_of(guard.name()));
        Ok(Self {
            guards,
            process: child::start(setting.access(), Job::Await(waiting)).await?,
            server: Server::of(setting.database().await?.client()).await?,
            holder,
        })
    }

    /// Lets the process wait; returns the memory of a waiter in bytes, and the server's load until all are at rest.
    async fn settle(&mut self) -> anyhow::Result<(f64, Load)> {
        self.process.send("go").await;
        self.server.during(child::result(&mut self.process)).await
    }

    /// Releases some names one after the other; returns when.
    async fn release_singly(&mut self) -> anyhow::Result<Vec<Duration>> {
        let mut released = Vec::new();
        for guard in self.guards.drain(..SINGLY) {
            released.push(clock::now());
            guard.release().await?;
            sleep(Duration::from_millis(fastrand::u64(100..500))).await;
        }
        Ok(released)
    }

    /// Releases all names that are held; returns when, and what the process has seen at the end.
    async fn release_all(mut self) -> anyhow::Result<(Duration, Served)> {
        let released = clock::now();
        drop(self.guards);
        let served = child::result(&mut self.process).await?;
        self.process.end().await;
        self.holder.shutdown().await;
        Ok((released, served))
    }
}

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let time = setting.pick(Duration::from_secs(20), Duration::from_secs(6));
    for wake_up in [true, false] {
        let waiting = Waiting {
            names: setting.pick(10_000, 1_000),
            leases: 0,
            wake_up,
            settle: setting.pick(Duration::from_secs(30), Duration::from_secs(10)),
        };
        let (names, settle) = (waiting.names, waiting.settle);
        let who = format!(
            "{names} waiters{}",
            if wake_up { "" } else { " without a stream" }
        );
        let mut scene = Scene::start(waiting, setting).await?;
        let without = scene.server.for_some_time(time).await?;
        let (bytes, first) = scene.settle().await?;
        let with = scene.server.for_some_time(time).await?;
        let at_first = first.all_commands() / number(names);
        let name = format!("{who}: commands of each in the first {settle:?}");
        report.figure(name, at_first, "commands");
        let name = format!("{who}: the server's cores in the first {settle:?}");
        report.figure(name, first.cores - without.cores, "cores");
        let name = format!("{who} at rest: commands");
        let goal = wake_up.then_some(COMMANDS);
        report.at_most(goal, name, with.commands - without.commands, "/s");
        let name = format!("{who} at rest: the server's cores above those without");
        let goal = wake_up.then_some(CORES);
        report.at_most(goal, name, with.cores - without.cores, "cores");
        let name = format!("{who} at rest: memory of each, with its task");
        report.at_most(BYTES, name, bytes, "bytes");

        let singly = scene.release_singly().await?;
        let (_, served) = scene.release_all().await?;
        let acquired = served.acquired.into_iter();
        let waits = acquired
            .zip(singly)
            .map(|(acquired, released)| acquired.saturating_sub(released));
        let waits: Samples = waits.collect();
        let name = format!("{who}: a free name is acquired after, at most");
        report.at_most(FREE, name, waits.max().as_secs_f64(), "s");
    }
    Ok(())
}

/// All names become free at once, while the process renews leases.
pub(crate) async fn at_once(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let names = setting.pick(10_000, 3_000);
    let (mut renewals, mut ends, mut lost) = (Turns::default(), Turns::default(), 0);
    for _ in 0..setting.turns(3, 1) {
        let waiting = Waiting {
            names,
            leases: LEASES,
            wake_up: true,
            settle: Duration::from_secs(8),
        };
        let mut scene = Scene::start(waiting, setting).await?;
        scene.settle().await?;
        let (released, served) = scene.release_all().await?;
        lost += served.lost;
        renewals.add(served.latest.as_secs_f64() * 1e3);
        let end = served.acquired.iter().max().copied().unwrap_or_default();
        ends.add(end.saturating_sub(released).as_secs_f64());
    }
    let who = format!("{names} names at once beside {LEASES} leases of {LEASE:?}");
    report.at_most(0.0, format!("{who}: lost"), lost, "locks");
    let name = format!("{who}: latest renewal after it was due");
    report.at_most(RENEWAL, name, &renewals, "ms");
    report.figure(format!("{who}: the last name acquired after"), &ends, "s");
    Ok(())
}

/// The number at the end of a name.
fn number_of(name: &str) -> Option<usize> {
    name.rsplit_once(':')?.1.parse().ok()
}

/// The job of the process that waits.
pub(crate) async fn wait(access: &Access, waiting: Waiting) -> anyhow::Result<()> {
    let builder = access.builder().await?.acquire_timeout(None).expiry(LEASE);
    let provider = builder.wake_up(waiting.wake_up).build()?;
    // Connections, and what the driver keeps of earlier commands, are there before the memory is measured.
    warm_up(&provider, 64).await?;
    ready().await;
    let before = resident()?;
    let mut waiters = JoinSet::new();
    for index in 0..waiting.names {
        waiters.spawn(provider.lock(format_args!("awaited:{index}")).acquire());
    }
    sleep(waiting.settle).await;
    let bytes = each(before, resident()?, waiting.names);
    let leases = Arc::new(acquire(&provider, "lease", waiting.leases).await?);
    let (ends, until) = oneshot::channel();
    let watching = tokio::spawn(latest_renewal(Arc::clone(&leases), until));
    // Each lease has been renewed when the names become free.
    sleep(if waiting.leases == 0 {
        Duration::ZERO
    } else {
        LEASE
    })
    .await;
    print(&bytes)?;
    let mut acquired = vec![Duration::ZERO; waiting.names];
    while let Some(guard) = waiters.join_next().await {
        let guard = guard??;
        let index = number_of(guard.name()).context("a number at the end of the name")?;
        acquired[index] = clock::now();
    }
    // The task waits for the end of this value.
    drop(ends);
    let latest = watching.await?;
    print(&Served {
        acquired,
        lost: leases.iter().filter(|guard| guard.is_lost()).count(),
        latest,
    })?;
    drop(leases);
    provider.shutdown().await;
    Ok(())
}

/// How much later than due the latest renewal of these leases is confirmed, until the sender is dropped. A renewal is due when a
/// third of the lease is over.
async fn latest_renewal(leases: Arc<Vec<LockGuard>>, mut until: oneshot::Receiver<()>) -> Duration {
    let (mut least, mut greatest) = (LEASE, Duration::ZERO);
    while let Err(TryRecvError::Empty) = until.try_recv() {
        for lease in leases.iter() {
            let remaining = lease.remaining();
            (least, greatest) = (least.min(remaining), greatest.max(remaining));
        }
        sleep(Duration::from_millis(2)).await;
    }
    // What is left directly after a renewal is a little less than the whole lease.
    greatest.saturating_sub(least + LEASE / 3)
}
