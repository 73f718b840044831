//! Three instances of a service have the same scheduled job, and `#[distributed_lock]` makes it run once per tick.
//!
//! **Scene** (`cargo run --bin nightly_job`). Each instance calls the job at each tick of a cron expression, here every second; a
//! job for every night at three o'clock UTC has `0 0 3 * * *` and the same attribute. All instances are stopped while two ticks
//! pass, and one is killed in the middle of the job. `mongolock/examples/cron.rs` has the same with a scheduler.
//!
//! **What it proves.** One instance gets the lock of a tick and runs the job; the others wait for its end, and find it done
//! (`once`), however late they are. If it dies, another one runs the job when the lease has ended. Ticks that were missed are
//! made up for, once.
//!
//! **How it is checked.** Each run is a document, and there is one for each tick. Every instance that is alive has called the
//! job for every tick. `--without-lock` shows the job as it was with one instance, and fails.

use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::Parser;
use cron::Schedule;
use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongolock::{LockProvider, distributed_lock};
use mongolock_examples::demo::{self, AFTER_HELP, Stage};
use mongolock_examples::turns::{Event, Step, Turns, note, turn};
use mongolock_examples::worker::{Signal, Worker, go, set_global};
use mongolock_examples::{all, print, summary::Summary};
use tokio::time::sleep;

/// In UTC: in local time, one night of the year has an hour twice.
static SCHEDULE: LazyLock<Schedule> = LazyLock::new(|| "* * * * * *".parse().expect("it is valid"));
const INSTANCES: u32 = 3;
const TICKS: i64 = 6;
/// The tick in whose run an instance is killed.
const KILL: i64 = 3;

/// Runs the job of a tick, unless it is done. `None` means that another instance has done it.
///
/// The name has the *scheduled* time, which all instances have in common, and not the time at which one wakes up. `max_hold`
/// ends a run that hangs. An instance that dies after its work and before the mark is confirmed leaves work that is done again:
/// a second run must do no harm, or the mark is written in the transaction of the work (`LockContext::commit_done`).
#[distributed_lock(name = "nightly-report:<tick>", once = true, expiry = "4s", max_hold = "1m")]
async fn nightly_report(tick: i64, called: Instant, instance: &Instance) -> anyhow::Result<Option<()>> {
    instance.build_report(tick, called).await.map(Some)
}

impl Instance {
    /// The work itself. In a real job the document is the report; with the tick as `_id` the server would reject a second one.
    async fn build_report(&self, tick: i64, called: Instant) -> anyhow::Result<()> {
        let work = async {
            if tick == self.options.first + KILL {
                // The first instance that comes here is killed.
                self.go.wait().await;
            }
            sleep(Duration::from_millis(50)).await;
            let written = self.runs.insert_one(doc! { "tick": tick }).await;
            written.map(drop).context("cannot write the report")
        };
        turn((tick, self.number), called, work).await
    }

    /// Calls the job, and tells the program if another instance has done it.
    async fn call(&self, tick: i64) -> anyhow::Result<()> {
        // The instances come at different times, as if their clocks differed.
        sleep(Duration::from_millis(fastrand::u64(..200))).await;
        let called = Instant::now();
        let done = if self.options.without_lock {
            self.build_report(tick, called).await.map(Some)
        } else {
            nightly_report(tick, called, self).await
        };
        match done {
            Ok(Some(())) => Ok(()),
            Ok(None) => note((tick, self.number), DONE),
            // A failed run does not end the service: another instance runs the job.
            Err(error) => note((tick, self.number), &format!("failed: {error:#}")),
        }
    }
}

/// The ticks after this one, in seconds since 1970.
fn after(tick: i64) -> impl Iterator<Item = i64> {
    let time = DateTime::from_timestamp(tick, 0).unwrap_or_default();
    SCHEDULE.after_owned(time).map(|tick| tick.timestamp())
}

/// Runs an instance until it has called the job for the last tick.
async fn run(worker: &Worker, options: &Options) -> anyhow::Result<()> {
    let database = worker.database().await?;
    let locks = set_global(worker.number, LockProvider::builder(&database))?;
    let instance = Instance {
        number: worker.number,
        go: go(),
        options: options.clone(),
        runs: database.collection("runs"),
    };
    // One run at a time, so that the instance that is killed leaves only one. The ticks that pass meanwhile are made up for.
    for due in after(options.first - 1).take_while(|due| *due < options.first + TICKS) {
        let early = due * 1000 - Utc::now().timestamp_millis();
        sleep(Duration::from_millis(early.try_into().unwrap_or_default())).await;
        if instance.call(due).await.is_err() {
            break;
        }
    }
    locks.shutdown().await;
    Ok(())
}

/// Starts the instances, prints what they do at each tick, stops all of them and kills one, and checks the runs.
async fn demonstrate(options: &Options, stage: &Stage) -> anyhow::Result<Summary> {
    let first = Utc::now().timestamp() + 2;
    let ticks: Vec<i64> = (first..first + TICKS).collect();
    print(HEADING)?;
    let mut instances = stage.start_workers(1..=INSTANCES, &["--first", &first.to_string()])?;
    let (mut turns, mut calls, mut killed) = (Turns::default(), Vec::new(), None);
    if options.without_lock {
        instances.go()?;
    }
    while let Some(event) = instances.next::<Event<i64, u32>>().await? {
        turns.add(&event);
        let (tick, instance) = (event.resource, event.body);
        let what = match event.step {
            Step::Begun if !options.without_lock && killed.is_none() && tick == first + KILL => {
                instances.kill(instance)?;
                killed = Some(instance);
                instances.go()?;
                "is killed in the middle of the job".to_owned()
            }
            Step::Begun => continue,
            Step::Ended(hold) => hold.to_string(),
            Step::Note(text) => text,
        };
        let time = DateTime::from_timestamp(tick, 0).unwrap_or_default().time();
        print(format!("{time}  {instance:>8}  {what}"))?;
        calls.push((tick, instance, what));
        if !options.without_lock && calls.len() == INSTANCES as usize {
            let stopped = [1, 2, 3].map(|instance| instances.pause(instance));
            print("          all instances are stopped while two ticks pass")?;
            while Utc::now().timestamp() <= first + 2 {
                sleep(Duration::from_millis(50)).await;
            }
            drop(stopped);
        }
    }
    let runs: Vec<Document> = all(&stage.database().collection("runs"), doc! {}).await?;
    let runs: Vec<i64> = runs.iter().filter_map(|run| run.get_i64("tick").ok()).collect();
    let alive: Vec<u32> = (1..=INSTANCES).filter(|it| Some(*it) != killed).collect();
    let mut summary = check(&ticks, &runs, &calls, &alive);
    let overlaps: usize = turns.overlaps().map(|(_, pairs)| pairs).sum();
    summary.check("at the same time", overlaps, overlaps == 0);
    summary.fail(instances.failures().await?);
    Ok(summary)
}

/// The end of a call: its tick and its instance, and what it has done.
type Call = (i64, u32, String);

/// Checks that each tick has one run, and that every instance that is `alive` has called the job for every tick.
fn check(ticks: &[i64], runs: &[i64], calls: &[Call], alive: &[u32]) -> Summary {
    let runs = |tick: &i64| runs.iter().filter(|run| *run == tick).count();
    let (once, all) = (ticks.iter().filter(|tick| runs(tick) == 1).count(), ticks.len());
    let calls_of = |tick: &i64| {
        alive
            .iter()
            .map(|instance| (*tick, *instance))
            .collect::<Vec<_>>()
    };
    let is_missing = |call: &(i64, u32)| !calls.iter().any(|it| (it.0, it.1) == *call);
    let missing = ticks.iter().flat_map(calls_of).filter(is_missing).count();
    let of = |text: &str| calls.iter().filter(|call| call.2.starts_with(text)).count();
    let mut summary = Summary::default();
    summary.check("ran once", format!("{once} of {all} ticks"), once == all);
    summary.row("found it done", of(DONE));
    summary.check("failed", of("failed"), of("failed") == 0);
    summary.check("not called", missing, missing == 0);
    summary
}

const DONE: &str = "found it done";
const HEADING: &str = "\
To be proved: the job runs once at each tick, although all instances are stopped while two ticks pass, and one is killed
in the middle of the job.

    tick  instance     fencing token      waited        held";

struct Instance {
    number: u32,
    go: Signal,
    options: Options,
    runs: Collection<Document>,
}

/// Three instances have the same scheduled job under a distributed lock. The program checks that the job runs once per tick.
#[derive(Debug, Clone, Parser)]
#[command(name = "nightly_job", after_help = AFTER_HELP)]
struct Options {
    /// Run the job without the lock, to see what it prevents; fails because each tick runs three times
    #[arg(long)]
    without_lock: bool,
    #[arg(long, hide = true, default_value_t = 0)]
    first: i64,
    #[command(flatten)]
    worker: Option<Worker>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match &options.worker {
        Some(worker) => demo::run(run(worker, &options)),
        None => demo::demonstrate("nightly_job", async |stage| demonstrate(&options, stage).await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_found() {
        // Two ticks and two instances: the runs, and the calls without this one.
        let failures = |runs: &[i64], without: Option<(i64, u32)>, last: &str| {
            let calls = [(1, 1, "5"), (1, 2, DONE), (2, 1, DONE), (2, 2, last)];
            let calls = calls.map(|(tick, instance, what)| (tick, instance, what.to_owned()));
            let is_there = |call: &Call| Some((call.0, call.1)) != without;
            let calls: Vec<Call> = calls.into_iter().filter(is_there).collect();
            check(&[1, 2], runs, &calls, &[1, 2]).failures().join("; ")
        };
        assert_eq!(failures(&[1, 2, 3], None, "9"), "");
        assert_eq!(failures(&[2], None, "9"), "ran once: 1 of 2 ticks");
        assert_eq!(failures(&[1, 2, 2], None, "9"), "ran once: 1 of 2 ticks");
        assert_eq!(failures(&[1, 2], Some((2, 1)), "9"), "not called: 1");
        assert_eq!(failures(&[1, 2], None, "failed: lost"), "failed: 1");
    }
}
