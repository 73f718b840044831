//! Several instances of a service have the same scheduled job, and `#[distributed_lock]` makes it run once per tick.
//!
//! ```text
//! cargo run --bin nightly_job
//! cargo run --bin nightly_job -- --ticks 10 --schedule "* * * * * *" --late 400ms
//! cargo run --bin nightly_job -- --kill
//! cargo run --bin nightly_job -- --without-lock
//! ```
//!
//! In each instance a scheduler, apalis, calls the job at each tick of a cron expression. One instance gets the lock and
//! runs the job; for the others the call returns at once (`on_busy = "skip"`). A job often ends before the last instance
//! calls it, because clocks differ and machines are busy. `min_hold` keeps the lock until then, and a record of the runs
//! decides where time alone proves nothing. `--without-lock` shows the job as it was with one instance.
//!
//! A job for every night at three o'clock UTC has the schedule `0 0 3 * * *` and this attribute:
//!
//! ```text
//! #[distributed_lock(name = "nightly-report", on_busy = "skip", min_hold = "5m", max_hold = "2h")]
//! ```
//!
//! The program starts three instances of itself, prints a line for each tick, and checks that each tick ran once.

mod instance;
mod journal;
mod schedule;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use chrono::Utc;
use clap::{Parser, value_parser};
use mongodb::bson::doc;
use mongolock::distributed_lock;
use mongolock_examples::demo::{self, AFTER_HELP, Stage};
use mongolock_examples::duration::{parse, show};
use mongolock_examples::summary::Summary;
use mongolock_examples::worker::Worker;
use mongolock_examples::workers::Processes;
use mongolock_examples::{all, print};

use crate::instance::{Instance, RUNS, Run};
use crate::journal::Journal;
use crate::schedule::{Schedule, Tick};

const INSTANCES: u32 = 3;

/// The time for the start of the instances. One that takes longer leaves the first ticks to the others.
const START: Duration = Duration::from_millis(500);

/// Three instances have the same scheduled job under a distributed lock. The program checks that the job runs once per
/// tick.
#[derive(Debug, Clone, Parser)]
#[command(name = "nightly_job", after_help = AFTER_HELP)]
struct Options {
    /// Ticks of the schedule to run
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = value_parser!(u16).range(1..=1_000))]
    ticks: u16,

    /// When the job is due, in UTC: second, minute, hour, day, month, day of the week (SUN to SAT)
    #[arg(long, value_name = "CRON", default_value = "*/2 * * * * *")]
    schedule: Schedule,

    /// How long the job takes
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = parse)]
    work: Duration,

    /// The greatest delay of an instance, which is random, as if clocks differed
    #[arg(long, value_name = "DURATION", default_value = "200ms", value_parser = parse)]
    late: Duration,

    /// Kill an instance after half of the ticks, to see that the others continue
    #[arg(long)]
    kill: bool,

    /// Run the job without the lock, to see what it prevents; fails because each tick runs three times
    #[arg(long)]
    without_lock: bool,

    /// The first tick of the demonstration.
    #[arg(long, hide = true, requires = "worker")]
    first: Option<Tick>,

    #[command(flatten)]
    worker: Option<Worker>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match &options.worker {
        Some(worker) => demo::run(instance::run(worker, &options)),
        None => demo::demonstrate("nightly_job", async |stage| demonstrate(&options, stage).await),
    }
}

/// Starts the instances, prints the ticks when all instances have called the job, kills an instance if the options say
/// so, and checks the runs.
async fn demonstrate(options: &Options, stage: &Stage) -> anyhow::Result<Summary> {
    let ticks = options.schedule.after(Utc::now() + START);
    let ticks: Vec<Tick> = ticks.take(options.ticks.into()).collect();
    let first = ticks.first().context("the schedule has no tick in the future")?;
    let runs = stage.database().collection::<Run>(RUNS);
    let half = ticks.len().div_ceil(2);

    print(heading(options))?;
    let mut instances = Processes::start(1..=INSTANCES, |number| {
        let mut command = stage.worker(number)?;
        command.args(["--first", &first.timestamp().to_string()]);
        Ok(command)
    })?;
    let mut journal = Journal {
        ticks: ticks.clone(),
        runs: Vec::new(),
        calls: Vec::new(),
        alive: (1..=INSTANCES).collect(),
    };
    let mut shown = 0;
    while shown < ticks.len() && !instances.has_one_ended() {
        let Some(call) = instances.next().await? else {
            break;
        };
        journal.calls.push(call);
        journal.runs = all(&runs, doc! { "tick": 1 }).await?;
        while let Some(tick) = ticks.get(shown).filter(|tick| journal.is_complete(**tick)) {
            print(journal.line(*tick))?;
            shown += 1;
            if let (Some(run), true) = (journal.first_run(*tick), options.kill && shown == half) {
                let number = run.instance;
                instances.kill(number)?;
                print(format!("          instance {number} is killed"))?;
                journal.alive.retain(|alive| *alive != number);
            }
        }
    }

    instances.stop();
    while let Some(call) = instances.next().await? {
        journal.calls.push(call);
    }
    journal.runs = all(&runs, doc! { "tick": 1 }).await?;
    for tick in &ticks[shown..] {
        print(journal.line(*tick))?;
    }
    let mut summary = journal.check(options);
    summary.fail(instances.failures().await?);
    Ok(summary)
}

/// The whole use of mongolock: runs what is due, unless another instance runs it. The value is the ticks that were run;
/// `None` means skipped.
///
/// How long `min_hold` should be: longer than the differences between the calls of the instances (by their clocks and
/// their load), so that the last one still finds the lock held; and shorter than the time between two ticks less these
/// differences, so that the first one at the next tick finds the lock free. The ticks of a cron expression are at least a
/// second apart, so half a second is in the middle.
///
/// What it does not do: an instance that is later than `min_hold` gets the lock. It finds in the record that nothing is
/// due. That is certain, because no other instance writes there while this one holds the lock. And a tick is left out if
/// the instance that runs it dies, or if a run lasts until the next tick. The next run makes up for it, because it runs
/// everything that is due.
///
/// After an instance has died in the job, the job can run again after `expiry`. `max_hold` ends a run that hangs, which
/// would otherwise never release the lock.
#[distributed_lock(
    name = "nightly-report",
    on_busy = "skip",
    min_hold = "500ms",
    expiry = "5s",
    max_hold = "1m"
)]
async fn nightly_report(tick: Tick, instance: &Instance) -> anyhow::Result<Option<Vec<Tick>>> {
    let due = instance.due(tick).await?;
    for tick in &due {
        instance.build_report(*tick).await?;
    }
    Ok(Some(due))
}

fn heading(options: &Options) -> String {
    let lock = if options.without_lock {
        "WITHOUT the lock"
    } else {
        "under the lock `nightly-report`"
    };
    format!(
        "{INSTANCES} instances with the schedule `{}` and a job that takes {}, {lock}.\n\n\
         tick       ran on     fencing token  skipped by",
        options.schedule,
        show(options.work)
    )
}
