//! Many held names with one waiter each, all in one process: what the waiters cost while nothing happens.
//!
//! The names are held by this process, with an expiry so long that no renewal is sent meanwhile. The server's load is
//! measured before there are waiters and when they are at rest.

use std::time::Duration;

use mongolock::LockProvider;
use mongolock_tests::order;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::child;
use crate::held::acquire;
use crate::memory::{each, resident};
use crate::report::Report;
use crate::samples::{number, per_second};
use crate::server::Server;
use crate::setting::{self, Setting};
use crate::worker::{Job, print, ready, warm_up};

/// The goals of commands a second, of the server's cores, and of bytes of each waiter.
const COMMANDS: f64 = 10.0;
const CORES: f64 = 0.04;
const BYTES: f64 = 2048.0;

const EXPIRY: Duration = Duration::from_secs(3_600);

/// The names that a process waits for.
#[derive(Serialize, Deserialize)]
pub(crate) struct Waiting {
    names: usize,
    settle: Duration,
}

/// What the waiting process says when its waiters are at rest.
#[derive(Serialize, Deserialize)]
struct Settled {
    commands: u64,
    bytes: f64,
}

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let names = setting.pick(10_000, 1_000);
    let time = setting.pick(Duration::from_secs(20), Duration::from_secs(6));
    let settle = setting.pick(Duration::from_secs(30), Duration::from_secs(10));
    let database = setting.database().await?;
    let holder = LockProvider::builder(&database).expiry(EXPIRY).build()?;
    let guards = acquire(&holder, "awaited", names).await?;
    let mut process = child::start(setting, Job::Await(Waiting { names, settle })).await?;
    let server = Server::of(database.client()).await?;
    let without = server.for_some_time(time).await?;

    process.send("go").await;
    let (settled, first) = server.during(child::result::<Settled>(&mut process)).await?;
    let with = server.for_some_time(time).await?;
    process.send("go").await;
    let commands = child::result::<u64>(&mut process).await? - settled.commands;
    process.end().await;

    let who = format!("{names} waiters");
    let at_first = number(settled.commands) / number(names);
    let name = format!("{who}: commands of each in the first {settle:?}");
    report.figure(name, at_first, "commands");
    let name = format!("{who}: the server's cores in the first {settle:?}");
    report.figure(name, first.cores - without.cores, "cores");
    let rate = per_second(commands, with.time);
    report.at_most(COMMANDS, format!("{who} at rest: commands"), rate, "/s");
    let name = format!("{who} at rest: commands by the server's count");
    report.figure(name, with.commands - without.commands, "/s");
    let name = format!("{who} at rest: the server's cores above those without");
    report.at_most(CORES, name, with.cores - without.cores, "cores");
    let name = format!("{who} at rest: memory of each, with its task");
    report.at_most(BYTES, name, settled.bytes, "bytes");
    drop(guards);
    holder.shutdown().await;
    Ok(())
}

/// The job of the process that waits.
pub(crate) async fn wait(uri: &str, database: &str, waiting: Waiting) -> anyhow::Result<()> {
    let (database, sent) = setting::counted(uri, database).await?;
    let provider = LockProvider::builder(&database).acquire_timeout(None).build()?;
    // Connections, and what the driver keeps of earlier commands, are there before the memory is measured.
    warm_up(&provider, 64).await?;
    ready().await;
    let (before, commands) = (resident()?, sent.so_far());
    let mut waiters = JoinSet::new();
    for index in 0..waiting.names {
        waiters.spawn(provider.lock(format_args!("awaited:{index}")).acquire());
    }
    sleep(waiting.settle).await;
    print(&Settled {
        commands: sent.so_far() - commands,
        bytes: each(before, resident()?, waiting.names),
    })?;
    order().await;
    print(&(sent.so_far() - commands))?;
    waiters.shutdown().await;
    provider.shutdown().await;
    Ok(())
}
