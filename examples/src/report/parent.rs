//! Starts the server and the processes, prints what the processes say, and judges the outcome.

use std::env;
use std::future::Future;
use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::process::{self, Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use mongodb::Database;
use mongolock_tests::{Deployment, MongodSource};

use crate::event::{Event, Kind};
use crate::options::Options;
use crate::store::Store;
use crate::summary::{Summary, heading, line};
use crate::tally::Tally;

/// Where an interrupted program ends, by the custom of shells.
const INTERRUPTED: u8 = 130;

/// Finding a `mongod` that is there takes less; past it one is being fetched.
const FETCHING: Duration = Duration::from_secs(2);

/// A server that is gone must not keep the program from ending.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// The whole program.
pub(crate) async fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let Some(deployment) = unless_interrupted(start_server()).await.transpose()? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let name = format!("mongolock_report_{}_{}", process::id(), seconds());
    let database = deployment.client().await?.database(&name);
    let outcome = unless_interrupted(work(options, &deployment, &database)).await;
    if deployment.server().is_none() {
        // The work is done: that a database stays behind on a server that has gone is no failure of it.
        let _ = tokio::time::timeout(DROP_LIMIT, database.drop()).await;
    }
    match outcome {
        None => Ok(ExitCode::from(INTERRUPTED)),
        Some(Ok(true)) => Ok(ExitCode::SUCCESS),
        Some(Ok(false)) => Ok(ExitCode::FAILURE),
        Some(Err(error)) => Err(error),
    }
}

/// `None` on Ctrl-C; the future is dropped then, and whatever it has started ends.
async fn unless_interrupted<F: Future>(future: F) -> Option<F::Output> {
    tokio::select! {
        // Ctrl-C ends the processes as well: that is no outcome to report.
        biased;
        Ok(()) = tokio::signal::ctrl_c() => None,
        output = future => Some(output),
    }
}

async fn start_server() -> anyhow::Result<Deployment> {
    if env::var_os("MONGODB_URI").is_some_and(|uri| !uri.is_empty()) {
        eprintln!("Using the MongoDB of MONGODB_URI ..");
    } else {
        let finding = MongodSource::from_env().find();
        tokio::pin!(finding);
        if let Ok(found) = tokio::time::timeout(FETCHING, &mut finding).await {
            found?;
        } else {
            eprintln!("Fetching mongod, which is kept for the next time ..");
            finding.await?;
        }
        eprintln!("Starting a MongoDB ..");
    }
    Ok(Deployment::from_env_or_start().await?)
}

/// Whether everything was right.
async fn work(options: &Options, deployment: &Deployment, database: &Database) -> anyhow::Result<bool> {
    let store = Store::new(database);
    store.create(options.ids).await?;
    println(&heading(options))?;
    let begun = Instant::now();
    let (events, writer) = io::pipe().context("cannot make a pipe")?;
    let mut workers = Workers::default();
    for number in 1..=options.processes {
        let mut command = worker(number, options, deployment.uri(), database.name())?;
        command.stdout(writer.try_clone()?);
        workers.0.push(command.spawn().context("cannot start a process")?);
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
    let program = env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command
        .args(["--worker", &number.to_string(), "--database", database])
        .args(["--processes", &options.processes.to_string()])
        .args(["--calls", &options.calls.to_string()])
        .args(["--ids", &options.ids.to_string()])
        .args(["--hold", &format!("{}ms", options.hold.as_millis())])
        .args(options.without_lock.then_some("--without-lock"))
        .env("MONGODB_URI", uri)
        .stdin(Stdio::piped());
    Ok(command)
}

/// The processes. Each ends when its standard input does, at the latest when this process is gone.
#[derive(Default)]
struct Workers(Vec<Child>);

impl Workers {
    /// Waits for all of them, and says which failed.
    fn failures(&mut self) -> anyhow::Result<Vec<String>> {
        let mut failures = Vec::new();
        for (index, child) in self.0.iter_mut().enumerate() {
            let status = child.wait().context("cannot wait for a process")?;
            if !status.success() {
                failures.push(format!("process {}: {status}", index + 1));
            }
        }
        Ok(failures)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|child| drop(child.stdin.take()));
        for child in &mut self.0 {
            // It ends by itself; waiting only keeps the server up until then.
            let _ = child.wait();
        }
    }
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

/// Unlike the macro, it does not panic when nobody reads on.
fn println(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").context("cannot write to standard output")
}

fn seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
