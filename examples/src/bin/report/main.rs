//! Several processes rebuild the same reports, and `#[distributed_lock]` prevents lost updates.
//!
//! ```text
//! cargo run --bin report
//! cargo run --bin report -- --processes 5 --calls 20 --ids 2 --hold 20ms
//! cargo run --bin report -- --without-lock
//! ```
//!
//! A report is one document. Rebuilding it means to read the document, to work for a while, and to write the whole
//! document back. Two rebuilds at the same time start from the same revision, and one of them is lost; `--without-lock`
//! shows that. With the lock `report:<id>`, one process at a time rebuilds a report.
//!
//! The program starts further processes of itself, prints a line for each call, and checks the reports at the end.

mod check;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Parser, value_parser};
use mongodb::Collection;
use mongodb::bson::doc;
use mongolock::{FencingToken, LockContext, LockProvider, distributed_lock};
use mongolock_examples::demo::{self, AFTER_HELP, Stage};
use mongolock_examples::duration::{parse, show};
use mongolock_examples::summary::{Summary, count};
use mongolock_examples::turns::{Event, Hold, Turns};
use mongolock_examples::worker::{Worker, exit_with_parent, send};
use mongolock_examples::{all, join, print};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

/// Tasks of a process that make calls at the same time.
const TASKS: u32 = 4;

/// Several processes rebuild the same reports under distributed locks. The program checks that no update is lost.
#[derive(Debug, Clone, Parser)]
#[command(name = "report", after_help = AFTER_HELP)]
struct Options {
    /// Processes to start
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(1..=64))]
    processes: u32,

    /// Calls of `rebuild_report` in each process, made by up to four tasks at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = 12, value_parser = value_parser!(u32).range(1..=100_000))]
    calls: u32,

    /// Reports to rebuild
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(1..=10_000))]
    ids: u32,

    /// Pause between reading and writing a report, under the lock
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = parse)]
    hold: Duration,

    /// Rebuild without the lock, to see what it prevents; fails because updates are lost
    #[arg(long)]
    without_lock: bool,

    #[command(flatten)]
    worker: Option<Worker>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match &options.worker {
        Some(worker) => demo::run(make_calls(worker, &options)),
        None => demo::demonstrate("report", async |stage| demonstrate(&options, stage).await),
    }
}

/// Starts the processes, prints their calls as they end, and checks the reports.
async fn demonstrate(options: &Options, stage: &Stage) -> anyhow::Result<Summary> {
    let reports = stage.database().collection::<Report>("reports");
    let empty = |id| Report {
        id,
        revisions: Vec::new(),
    };
    let created = reports.insert_many((1..=options.ids).map(empty)).await;
    created.context("cannot create the reports")?;

    print(heading(options))?;
    let mut processes = stage.start_workers(1..=options.processes)?;
    let mut turns = Turns::default();
    while let Some(event) = processes.next::<Event<u32, Call>>().await? {
        if let Some(hold) = &event.end {
            print(format!(
                "{:>7}  {:>6}  {hold}",
                event.body.process, event.resource
            ))?;
        }
        turns.add(event);
    }

    let failed = processes.failures().await?;
    let reports: Vec<Report> = all(&reports, doc! { "_id": 1 }).await?;
    let mut summary = check::check(&turns, &reports, options);
    summary.fail(failed);
    Ok(summary)
}

/// A call: its process, and its number there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Call {
    process: u32,
    number: u32,
}

/// One report. Its content is the list of its rebuilds, in the order of their writes.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    #[serde(rename = "_id")]
    id: u32,
    revisions: Vec<Revision>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Revision {
    call: Call,
    token: Option<FencingToken>,
}

/// What the tasks of a process share.
struct Process {
    number: u32,
    options: Options,
    reports: Collection<Report>,
    next_call: AtomicU32,
}

/// A worker process: makes its calls in a few tasks.
async fn make_calls(worker: &Worker, options: &Options) -> anyhow::Result<()> {
    exit_with_parent();
    let database = worker.database().await?;
    LockProvider::builder(&database)
        // A call may have to wait for all others.
        .acquire_timeout(None)
        .owner(format!("process {}", worker.number))
        .build()?
        .set_global()?;

    let process = Arc::new(Process {
        number: worker.number,
        options: options.clone(),
        reports: database.collection("reports"),
        next_call: AtomicU32::new(1),
    });
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS.min(options.calls) {
        tasks.spawn(Arc::clone(&process).make_calls());
    }
    join(tasks)
        .await
        .with_context(|| format!("process {}", worker.number))?;
    LockProvider::global()?.shutdown().await;
    Ok(())
}

impl Process {
    /// A task: takes the next call until none is left.
    async fn make_calls(self: Arc<Self>) -> anyhow::Result<()> {
        loop {
            let number = self.next_call.fetch_add(1, Ordering::Relaxed);
            if number > self.options.calls {
                return Ok(());
            }
            let call = Call {
                process: self.number,
                number,
            };
            // The processes begin with different reports, and each of them rebuilds all reports in turn.
            let id = (self.number + number) % self.options.ids + 1;
            let made = Instant::now();
            let rebuilt = if self.options.without_lock {
                self.read_work_write(id, call, made).await
            } else {
                rebuild_report(id, call, made, &self).await
            };
            rebuilt.with_context(|| format!("call {number}, report {id}"))?;
        }
    }

    /// Loses updates if two of these run at the same time for one report.
    async fn read_work_write(&self, id: u32, call: Call, made: Instant) -> anyhow::Result<()> {
        let token = LockContext::current().map(|lock| lock.fencing_token());
        let (waited, begun) = (made.elapsed(), Instant::now());
        let event = |end| Event {
            resource: id,
            body: call,
            end,
        };
        send(&event(None))?;

        let report = self.reports.find_one(doc! { "_id": id }).await;
        let report = report.with_context(|| format!("cannot read report {id}"))?;
        let mut report = report.with_context(|| format!("report {id} does not exist"))?;
        tokio::time::sleep(self.options.hold).await;
        report.revisions.push(Revision { call, token });
        let written = self.reports.replace_one(doc! { "_id": id }, report).await;
        written.with_context(|| format!("cannot write report {id}"))?;

        let held = begun.elapsed();
        send(&event(Some(Hold { token, waited, held })))
    }
}

/// The whole use of mongolock: across all processes, one rebuild of a report at a time.
#[distributed_lock(name = "report:<id>", expiry = "30s")]
async fn rebuild_report(id: u32, call: Call, made: Instant, process: &Process) -> anyhow::Result<()> {
    process.read_work_write(id, call, made).await
}

fn heading(options: &Options) -> String {
    let lock = if options.without_lock {
        "WITHOUT the lock"
    } else {
        "under the lock `report:<id>`"
    };
    format!(
        "{}, each with {} on {}: read, pause for {}, write back, {lock}.\n\n\
         process  report     fencing token      waited        held",
        count(options.processes as usize, "process", "processes"),
        count(options.calls as usize, "call", "calls"),
        count(options.ids as usize, "report", "reports"),
        show(options.hold)
    )
}
