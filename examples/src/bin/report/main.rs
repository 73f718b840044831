//! Several processes rebuild the same reports, and `#[distributed_lock]` prevents lost updates.
//!
//! ```text
//! cargo run --bin report
//! cargo run --bin report -- --processes 5 --calls 20 --ids 2 --hold 20
//! cargo run --bin report -- --without-lock
//! ```
//!
//! **Scene.** A report is one document. Rebuilding it means to read the document, to work for a while, and to write the
//! whole document back. The program starts further processes of itself, and each makes calls in several tasks.
//!
//! **What it proves.** Two rebuilds at the same time start from the same revision, and one of them is lost. With the lock
//! `report:<id>`, one call at a time rebuilds a report, in all processes, and no update is lost.
//!
//! **How it is checked.** Each call reports its begin and its end through one pipe, whose order shows whether two calls
//! overlap ([`turns`](mongolock_examples::turns)). Each call adds its revision to the report, so a missing one is a lost
//! update. The fencing tokens rise in the order of the writes. `--without-lock` makes the same calls, and fails.

use std::collections::HashSet;
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
use mongolock_examples::summary::Summary;
use mongolock_examples::turns::{Event, Step, Turns, turn};
use mongolock_examples::worker::{Worker, exit_with_parent, set_global};
use mongolock_examples::{all, join, print};
use serde::{Deserialize, Serialize};

/// Tasks of a process that make calls at the same time.
const TASKS: u32 = 4;

/// The whole use of mongolock: across all processes, one rebuild of a report at a time.
#[distributed_lock(name = "report:<id>", expiry = "30s")]
async fn rebuild_report(id: u32, call: Call, called: Instant, process: &Process) -> anyhow::Result<()> {
    turn((id, call), called, process.read_work_write(id, call)).await
}

impl Process {
    /// Loses updates if two of these run at the same time for one report.
    async fn read_work_write(&self, id: u32, call: Call) -> anyhow::Result<()> {
        let report = self.reports.find_one(doc! { "_id": id }).await;
        let report = report.with_context(|| format!("cannot read report {id}"))?;
        let mut report = report.with_context(|| format!("report {id} does not exist"))?;
        tokio::time::sleep(Duration::from_millis(self.options.hold)).await;
        let token = LockContext::current().map(|lock| lock.fencing_token());
        report.revisions.push(Revision { call, token });
        let written = self.reports.replace_one(doc! { "_id": id }, report).await;
        written.with_context(|| format!("cannot write report {id}"))?;
        Ok(())
    }

    /// A task: takes the next call until none is left.
    async fn make_calls(self: Arc<Self>) -> anyhow::Result<()> {
        loop {
            let number = self.next_call.fetch_add(1, Ordering::Relaxed);
            if number > self.options.calls {
                return Ok(());
            }
            // The processes begin with different reports, and each of them rebuilds all reports in turn.
            let id = (self.number + number) % self.options.ids + 1;
            let (call, called) = ((self.number, number), Instant::now());
            let rebuilt = if self.options.without_lock {
                turn((id, call), called, self.read_work_write(id, call)).await
            } else {
                rebuild_report(id, call, called, &self).await
            };
            rebuilt.with_context(|| format!("call {number}, report {id}"))?;
        }
    }
}

/// A worker process: makes its calls in a few tasks.
async fn make_calls(worker: &Worker, options: &Options) -> anyhow::Result<()> {
    exit_with_parent();
    let database = worker.database().await?;
    // A call may have to wait for all others.
    let locks = LockProvider::builder(&database).acquire_timeout(None);
    let locks = set_global(worker.number, locks)?;
    let process = Arc::new(Process {
        number: worker.number,
        options: options.clone(),
        reports: database.collection("reports"),
        next_call: AtomicU32::new(1),
    });
    let tasks = (0..TASKS).map(|_| Arc::clone(&process).make_calls());
    join(tasks)
        .await
        .with_context(|| format!("process {}", worker.number))?;
    locks.shutdown().await;
    Ok(())
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
    let mut processes = stage.start_workers(1..=options.processes, &[])?;
    let mut turns = Turns::default();
    while let Some(event) = processes.next::<Event<u32, Call>>().await? {
        turns.add(&event);
        if let Step::Ended(hold) = &event.step {
            print(format!("{:>7}  {:>6}  {hold}", event.body.0, event.resource))?;
        }
    }
    let failed = processes.failures().await?;
    let reports: Vec<Report> = all(&reports, doc! { "_id": 1 }).await?;
    let mut summary = check(&turns, &reports, options);
    summary.fail(failed);
    Ok(summary)
}

/// Checks that every call has ended, that each has left its revision, that no two of them overlap, and that the tokens
/// rise strictly in each report.
fn check(turns: &Turns<u32, Call>, reports: &[Report], options: &Options) -> Summary {
    let mut summary = Summary::default();
    let expected = options.processes as usize * options.calls as usize;
    let calls = turns.ended().len();
    summary.check("calls", format!("{calls} of {expected}"), calls == expected);

    let revisions = |report: &Report| {
        let calls = report.revisions.iter().map(|revision| (report.id, revision.call));
        calls.collect::<Vec<_>>()
    };
    let written: HashSet<(u32, Call)> = reports.iter().flat_map(revisions).collect();
    let lost = turns.ended().iter().filter(|call| !written.contains(*call));
    let lost = lost.count();
    summary.check("lost updates", format!("{lost} of {calls}"), lost == 0);

    let overlaps: usize = turns.overlaps().map(|(_, pairs)| pairs).sum();
    summary.check("overlaps", overlaps, overlaps == 0);

    if options.without_lock {
        summary.row("tokens", "none");
    } else {
        let tokens = |report: &Report| report.revisions.iter().map(|it| it.token).collect::<Vec<_>>();
        let rise = |tokens: Vec<_>| !tokens.contains(&None) && tokens.is_sorted_by(|one, next| one < next);
        let wrong = reports.iter().filter(|report| !rise(tokens(report)));
        let wrong = wrong.map(|report| format!("tokens do not rise in report {}", report.id));
        let passed = "rise strictly in every report, in the order of the writes";
        summary.finding("tokens", passed, wrong);
    }
    summary
}

fn heading(options: &Options) -> String {
    let (processes, calls, ids) = (options.processes, options.calls, options.ids);
    let (hold, all) = (options.hold, processes * calls);
    let (claim, lock) = if options.without_lock {
        (
            "To be shown: without the lock, updates are lost. The program ends with FAILED.",
            "WITHOUT",
        )
    } else {
        (
            "To be proved: with #[distributed_lock(name = \"report:<id>\")], one call at a time rebuilds a report, in all\n\
             processes, and no update is lost. With --without-lock updates are lost.",
            "under",
        )
    };
    format!(
        "{claim}\n\n\
         Scene: {processes} processes make {calls} calls each for {ids} reports, {lock} the lock `report:<id>`:\n\
         read the report, work for {hold} ms, write all of it back.\n\
         Check: no two calls for a report overlap, the revisions of all {all} calls are there, the tokens rise.\n\n\
         process  report     fencing token      waited        held"
    )
}

/// A call: its process, and its number there.
type Call = (u32, u32);

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

    /// Pause between reading and writing a report, under the lock, in milliseconds
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = value_parser!(u64).range(..=3_600_000))]
    hold: u64,

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

#[cfg(test)]
mod tests {
    use mongolock_examples::turns::Hold;

    use super::*;

    #[test]
    fn each_problem_is_found() {
        // Two processes make one call each: a positive number is the begin of the call of that process, a negative one its
        // end. The report has revisions of these processes with these tokens.
        let failures = |events: &[i32], revisions: &[(u32, i64)]| {
            let mut turns = Turns::default();
            for number in events {
                let step = if *number > 0 {
                    Step::Begun
                } else {
                    Step::Ended(Hold::default())
                };
                turns.add(&Event {
                    resource: 1,
                    body: (number.unsigned_abs(), 1),
                    step,
                });
            }
            let revisions = revisions.iter().map(|(process, token)| Revision {
                call: (*process, 1),
                token: Some(FencingToken::from(*token)),
            });
            let report = Report {
                id: 1,
                revisions: revisions.collect(),
            };
            let options = Options::parse_from(["report", "--processes=2", "--calls=1", "--ids=1"]);
            check(&turns, &[report], &options).failures().join("; ")
        };
        let (in_turn, written) = ([1, -1, 2, -2], [(1, 5), (2, 9)]);
        assert_eq!(failures(&in_turn, &written), "");
        assert_eq!(failures(&in_turn, &[(1, 5)]), "lost updates: 1 of 2");
        let falling = failures(&in_turn, &[(1, 5), (2, 5)]);
        assert_eq!(falling, "tokens do not rise in report 1");
        assert_eq!(failures(&[1, 2, -1, -2], &written), "overlaps: 1");
        assert_eq!(failures(&[1, 2, -2], &written), "calls: 1 of 2");
    }
}
