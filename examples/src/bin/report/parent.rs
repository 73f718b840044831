//! Starts the processes, prints what they say, and judges the outcome.

use std::io::{self, BufRead, BufReader, PipeReader};
use std::process::Command;
use std::time::Instant;

use anyhow::Context;
use mongodb::Database;
use mongolock_examples::output::println;
use mongolock_examples::processes::{self, Processes};
use mongolock_tests::Deployment;

use crate::event::{Event, Kind};
use crate::options::Options;
use crate::store::Store;
use crate::summary::{Summary, heading, line};
use crate::tally::Tally;

/// Whether everything was right.
pub(crate) async fn work(
    options: &Options,
    deployment: &Deployment,
    database: &Database,
) -> anyhow::Result<bool> {
    let store = Store::new(database);
    store.create(options.ids).await?;
    println(&heading(options))?;
    let begun = Instant::now();
    let (events, writer) = io::pipe().context("cannot make a pipe")?;
    let mut workers = Processes::default();
    for number in 1..=options.processes {
        let mut command = worker(number, options, deployment.uri(), database.name())?;
        command.stdout(writer.try_clone()?);
        workers.start(command)?;
    }
    // The pipe ends when the last process does, if nobody else could write to it.
    drop(writer);
    let tally = tokio::task::spawn_blocking(|| follow(events)).await??;
    let took = begun.elapsed();
    let failed = workers.failures()?;
    let reports = store.all().await.context("cannot read the reports")?;
    let summary = Summary {
        options,
        took,
        verdicts: reports.iter().map(|report| tally.judge(report)).collect(),
        failed,
    };
    println(&summary.to_string())?;
    Ok(summary.is_right())
}

fn worker(number: u32, options: &Options, uri: &str, database: &str) -> anyhow::Result<Command> {
    let mut command = processes::again(uri)?;
    command
        .args(["--worker", &number.to_string(), "--database", database])
        .args(["--processes", &options.processes.to_string()])
        .args(["--calls", &options.calls.to_string()])
        .args(["--ids", &options.ids.to_string()])
        .args(["--hold", &format!("{}ms", options.hold.as_millis())])
        .args(options.without_lock.then_some("--without-lock"));
    Ok(command)
}

/// Prints the calls as they end, until no process can say anything any more.
fn follow(events: PipeReader) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for said in BufReader::new(events).lines() {
        let event: Event = said.context("cannot hear the processes")?.parse()?;
        tally.count(&event);
        if let Kind::End(end) = &event.kind {
            println(&line(&event, end))?;
        }
    }
    Ok(tally)
}
