//! Several instances of a service have the same scheduled job, and `#[distributed_lock]` makes it run once per tick.
//!
//! ```text
//! cargo run --bin nightly_job
//! cargo run --bin nightly_job -- --ticks 10 --schedule "* * * * * *" --late 400ms
//! cargo run --bin nightly_job -- --kill
//! cargo run --bin nightly_job -- --without-lock
//! ```
//!
//! In each instance a scheduler, apalis, calls the job at each tick of a cron expression. One instance gets the lock of the
//! tick and runs the job; the others wait for its end. If it succeeds, the lock is marked as done (`once`), and their calls
//! return at once, however late they are. If it fails or dies, one of them runs the job. `--without-lock` shows the job as it
//! was with one instance.
//!
//! A job for every night at three o'clock UTC has the schedule `0 0 3 * * *` and the same attribute. The name has the
//! *scheduled* time, which all instances have in common, and not the time at which an instance wakes up.
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

/// The whole use of mongolock: runs the job of a tick, unless it is done. `None` means that another instance has done it.
///
/// The mark stays for the provider's `retention`, a day by default. After an instance has died in the job, another one runs
/// it as soon as its lease has ended, which is after `expiry`. `max_hold` ends a run that hangs, which would otherwise never
/// release the lock.
///
/// What it does not do: an instance that dies after its work and before the mark is confirmed leaves work that is done
/// again. Either a second run must do no harm, or the mark is written in the transaction of the work
/// (`LockContext::commit_done`).
#[distributed_lock(
    name = "nightly-report:<tick.timestamp()>",
    once = true,
    expiry = "5s",
    max_hold = "1m"
)]
async fn nightly_report(tick: Tick, instance: &Instance) -> anyhow::Result<Option<()>> {
    instance.build_report(tick).await?;
    Ok(Some(()))
}

fn heading(options: &Options) -> String {
    let lock = if options.without_lock {
        "WITHOUT the lock"
    } else {
        "under the lock of their tick"
    };
    format!(
        "{INSTANCES} instances with the schedule `{}` and a job that takes {}, {lock}.\n\n\
         tick       ran on     fencing token  found done by",
        options.schedule,
        show(options.work)
    )
}
