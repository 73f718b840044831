//! Starts the instances, prints what they report, stops them, and judges the outcome.

use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use chrono::Utc;
use mongodb::Database;
use mongolock_examples::output::println;
use mongolock_examples::processes::{self, Processes};
use mongolock_tests::Deployment;

use crate::journal::Journal;
use crate::options::Options;
use crate::schedule::Tick;
use crate::store::Store;
use crate::summary::{Summary, heading, line};

const INSTANCES: u32 = 3;

/// What the instances need to start. One that needs longer leaves the first ticks to the others.
const START: Duration = Duration::from_millis(500);

/// How often the reports are read.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Whether everything was right.
pub(crate) async fn work(
    options: &Options,
    deployment: &Deployment,
    database: &Database,
) -> anyhow::Result<bool> {
    let ticks = options.schedule.after(Utc::now() + START);
    let ticks: Vec<_> = ticks.take(options.ticks.into()).collect();
    let first = *ticks
        .first()
        .context("the schedule has no time that is to come")?;
    println(&heading(options, INSTANCES))?;
    let mut instances = Processes::default();
    for number in 1..=INSTANCES {
        instances.start(instance(
            number,
            first,
            options,
            deployment.uri(),
            database.name(),
        )?)?;
    }
    let mut watch = Watch {
        store: Store::new(database),
        journal: Journal::new(&ticks, INSTANCES),
        shown: 0,
        kill_after: options.kill.then_some(ticks.len().div_ceil(2)),
        killed: None,
    };
    while watch.shown < ticks.len() && !instances.has_one_ended()? {
        tokio::time::sleep(LOOK_AGAIN).await;
        watch.look(&mut instances).await?;
    }
    instances.stop();
    let failed = instances.failures()?;
    watch.end().await?;
    let summary = Summary {
        journal: &watch.journal,
        killed: watch.killed,
        failed,
    };
    println(&summary.to_string())?;
    Ok(summary.is_right())
}

fn instance(
    number: u32,
    first: Tick,
    options: &Options,
    uri: &str,
    database: &str,
) -> anyhow::Result<Command> {
    let mut command = processes::again(uri)?;
    command
        .args(["--instance", &number.to_string(), "--database", database])
        .args(["--first", &first.timestamp().to_string()])
        .args(["--schedule", &options.schedule.to_string()])
        .args(["--work", &format!("{}ms", options.work.as_millis())])
        .args(["--late", &format!("{}ms", options.late.as_millis())])
        .args(options.without_lock.then_some("--without-lock"));
    Ok(command)
}

/// Follows the reports.
struct Watch {
    store: Store,
    journal: Journal,
    /// Ticks that have been printed.
    shown: usize,
    /// Ticks after which an instance is killed.
    kill_after: Option<usize>,
    killed: Option<u32>,
}

impl Watch {
    /// Prints the ticks that have become complete, in their order, and kills when it is time.
    async fn look(&mut self, instances: &mut Processes) -> anyhow::Result<()> {
        self.read().await?;
        let mut last = None;
        for (tick, entry) in self.journal.entries().skip(self.shown) {
            if !self.journal.is_complete(tick) {
                break;
            }
            println(&line(tick, entry))?;
            self.shown += 1;
            if self.kill_after == Some(self.shown) {
                last = entry.runs.first().map(|run| run.instance);
            }
        }
        if let Some(instance) = last {
            instances.kill(instance.try_into()?)?;
            println(&format!("          instance {instance} is killed"))?;
            self.journal.forget(instance);
            self.killed = Some(instance);
        }
        Ok(())
    }

    /// Prints what is known about the other ticks, now that nobody says any more.
    async fn end(&mut self) -> anyhow::Result<()> {
        self.read().await?;
        for (tick, entry) in self.journal.entries().skip(self.shown) {
            println(&line(tick, entry))?;
        }
        Ok(())
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        // In this order: a run that has been reported is there.
        let calls = self.store.calls().await.context("cannot read the calls")?;
        let runs = self.store.runs().await.context("cannot read the runs")?;
        self.journal.replace(runs, calls);
        Ok(())
    }
}
