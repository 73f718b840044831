//! Thousands of locks held at the same time: what renewing them costs, whether any is lost, and how much memory they take.
//!
//! Each number of locks is held by a process of its own, so that no memory of earlier work is used again. The server's commands
//! are counted after the last acquire. Connections are opened before the memory is measured.

use std::time::{Duration, Instant};

use mongolock::{LockGuard, LockProvider};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::child;
use crate::memory::{each, resident};
use crate::report::Report;
use crate::samples::{number, per_second};
use crate::server::Server;
use crate::setting::{Access, Setting};
use crate::worker::{Job, print, ready, warm_up};

/// The goals of commands a second, of 1,000 locks with a short expiry and of 10,000 with the default one, and of the bytes of a
/// lock.
const COMMANDS: [(usize, f64); 2] = [(1_000, 3.0), (10_000, 2.4)];
const BYTES: f64 = 1024.0;
/// The number of acquires that run at the same time.
const AT_ONCE: usize = 64;

/// The locks that a process holds.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Holding {
    count: usize,
    expiry: Duration,
    /// The time for which renewals are counted.
    time: Duration,
}

/// What the process has measured.
#[derive(Serialize, Deserialize)]
struct Held {
    acquiring: Duration,
    /// The commands of the counted time.
    commands: f64,
    lost: usize,
    /// The memory of each lock after the last acquire, and after renewals.
    bytes: [f64; 2],
}

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let runs = [
        (1_000, 3, setting.pick(15, 6)),
        (10_000, 30, setting.pick(61, 21)),
        (setting.pick(100_000, 20_000), 60, setting.pick(121, 41)),
    ];
    for (count, expiry, time) in runs {
        let [expiry, time] = [expiry, time].map(Duration::from_secs);
        many(setting, Holding { count, expiry, time }, report).await?;
    }
    one_arena(setting, report).await
}

async fn many(setting: &Setting, holding: Holding, report: &mut Report) -> anyhow::Result<()> {
    let Holding { count, expiry, time } = holding;
    let held = hold_with(setting, holding, &[]).await?;
    let who = format!("{count} locks, expiry {expiry:?}");
    let rate = held.commands / time.as_secs_f64();
    let goal = COMMANDS.iter().find(|(locks, _)| *locks == count);
    let goal = goal.map(|(_, goal)| *goal);
    report.at_most(goal, format!("{who}: commands"), rate, "/s");
    let renewals = held.commands / number(count) / (time.as_secs_f64() / expiry.as_secs_f64() * 3.0);
    report.figure(
        format!("{who}: commands of each renewal of 1,000 locks"),
        renewals * 1e3,
        "commands",
    );
    report.at_most(0.0, format!("{who}: lost"), held.lost, "locks");
    let name = format!("{who}: acquired");
    report.figure(name, per_second(count, held.acquiring), "/s");
    if count >= 10_000 {
        report.at_most(BYTES, format!("{who}: memory of each"), held.bytes[0], "bytes");
        // It has what the allocator keeps of the largest commands.
        let name = format!("{who}: memory of each after renewals");
        report.figure(name, held.bytes[1], "bytes");
    }
    Ok(())
}

/// The memory of each lock without the holes that the C library's allocator leaves when several threads allocate: each of
/// them has an arena of its own by default.
async fn one_arena(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let holding = Holding {
        count: 10_000,
        expiry: Duration::from_secs(300),
        time: Duration::ZERO,
    };
    let held = hold_with(setting, holding, &[("MALLOC_ARENA_MAX", "1")]).await?;
    let name = "10000 locks, one arena of the allocator: memory of each";
    report.at_most(BYTES, name, held.bytes[0], "bytes");
    Ok(())
}

/// Has a process hold locks, with these variables in its environment.
async fn hold_with(setting: &Setting, holding: Holding, variables: &[(&str, &str)]) -> anyhow::Result<Held> {
    let job = Job::Hold(holding);
    let mut process = [child::start_with(setting.access(), job, variables).await?];
    child::go(&mut process).await;
    Ok(child::last_results(process.into()).await?.remove(0))
}

/// The job of the process that holds locks.
pub(crate) async fn hold(access: &Access, holding: Holding) -> anyhow::Result<()> {
    let Holding { count, expiry, time } = holding;
    let provider = access.builder().await?.expiry(expiry).build()?;
    let server = Server::of(access.database().await?.client()).await?;
    for _ in 0..4 {
        warm_up(&provider, AT_ONCE).await?;
    }
    ready().await;
    let (before, begun) = (resident()?, Instant::now());
    let guards = acquire(&provider, "held", count).await?;
    let (acquired, acquiring) = (resident()?, begun.elapsed());
    let load = server.for_some_time(time).await?;
    let renewed = resident()?;
    print(&Held {
        acquiring,
        commands: load.all_commands(),
        lost: guards.iter().filter(|guard| guard.is_lost()).count(),
        bytes: [each(before, acquired, count), each(before, renewed, count)],
    })?;
    drop(guards);
    provider.shutdown().await;
    Ok(())
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
