//! Several worker processes append the messages of a queue to one file for each data type, and `#[distributed_lock]`
//! gives each type to one of them at a time.
//!
//! ```text
//! cargo run --bin queue_workers
//! cargo run --bin queue_workers -- --processes 5 --types 6 --messages 100
//! cargo run --bin queue_workers -- --kill
//! cargo run --bin queue_workers -- --without-lock
//! ```
//!
//! Every process has a worker for every type. A worker appends a record in four small writes, so two writers at the same
//! time tear each other's records apart, and both append the same messages; `--without-lock` shows that. With the lock
//! `file:<data_type>`, a type has one writer across all processes, while the workers of different types run in parallel.
//! After a batch of messages, another process gets its turn. `--kill` kills a process in the middle of its records: the
//! others wait until its leases expire, remove its incomplete records, and continue.
//!
//! The program starts further processes of itself, prints a line for each batch, and checks the files at the end.

mod check;
mod fenced_file;
mod queue;
mod record;
mod worker;

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Parser, value_parser};
use mongolock_examples::demo::{self, AFTER_HELP, Stage};
use mongolock_examples::duration::{parse, parse_expiry, show};
use mongolock_examples::print;
use mongolock_examples::summary::Summary;
use mongolock_examples::turns::Turns;
use mongolock_examples::worker::Worker;
use mongolock_examples::workers::{Processes, START_LIMIT};
use mongolock_tests::eventually;

use crate::queue::Queue;
use crate::worker::{BATCH, Event};

/// The data types, of which `--types` takes the first ones.
const TYPES: [&str; 6] = [
    "orders",
    "invoices",
    "payments",
    "returns",
    "customers",
    "articles",
];

/// A process with this pause is killed during its first record.
const LONGEST_PAUSE: &str = "60m";

/// Several worker processes append the messages of a queue to one file for each data type, under a distributed lock for
/// each type. The program checks that every message is in its file once, complete and in order.
#[derive(Debug, Clone, Parser)]
#[command(name = "queue_workers", after_help = AFTER_HELP, args_override_self = true)]
struct Options {
    /// Processes to start, each with a worker for each type
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(2..=64))]
    processes: u32,

    /// Messages of each type
    #[arg(long, value_name = "NUMBER", default_value_t = 40, value_parser = value_parser!(u32).range(20..=5_000))]
    messages: u32,

    /// Data types
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(2..=6))]
    types: u32,

    /// Pause after each of the four small writes of a record
    #[arg(long, value_name = "DURATION", default_value = "5ms", value_parser = parse)]
    pause: Duration,

    /// How long a lease lasts without a renewal, and so how long the others wait for a killed process
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = parse_expiry)]
    expiry: Duration,

    /// Kill a process while it is in the middle of a record of each type
    #[arg(long, conflicts_with = "without_lock")]
    kill: bool,

    /// Append without the lock, to see what it prevents; fails because the files are damaged
    #[arg(long)]
    without_lock: bool,

    /// Directory for the files, empty or new, which is kept [default: a temporary one]
    #[arg(long, value_name = "PATH")]
    directory: Option<PathBuf>,

    #[command(flatten)]
    worker: Option<Worker>,
}

impl Options {
    fn types(&self) -> &'static [&'static str] {
        &TYPES[..self.types as usize]
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match &options.worker {
        Some(process) => demo::run(worker::run(process, &options)),
        None => demo::demonstrate("queue_workers", async |stage| demonstrate(&options, stage).await),
    }
}

/// Fills the queue, starts the processes, kills one of them if the options say so, and checks the files.
async fn demonstrate(options: &Options, stage: &Stage) -> anyhow::Result<Summary> {
    let temporary = tempfile::tempdir().context("cannot create a temporary directory")?;
    let directory = options.directory.as_deref().unwrap_or(temporary.path());
    prepare(directory)?;
    let queue = Queue::new(stage.database());
    queue.fill(options.types(), options.messages).await?;

    print(heading(options))?;
    let mut workers = start_all(options, stage, directory).await?;
    workers.go()?;
    let mut turns = Turns::default();
    while let Some(event) = workers.next::<Event>().await? {
        if let Some(line) = event.line() {
            print(line)?;
        }
        if let Event::Turn(event) = event {
            turns.add(event);
        }
    }

    let mut summary = Summary::default();
    summary.fail(workers.failures().await?);
    for data_type in options.types() {
        let messages = queue.after(data_type, 0, 0).await?;
        let name = format!("{data_type}.log");
        let file = fs::read(directory.join(&name)).with_context(|| format!("cannot read {name}"))?;
        // A damaged file need not be text.
        let file = String::from_utf8_lossy(&file);
        let processes = check::processes(data_type, &turns);
        let passed = format!(
            "{} messages once and in order, by {processes} processes",
            messages.len()
        );
        summary.finding(
            data_type,
            &passed,
            check::check(data_type, &messages, &file, &turns),
        );
    }
    let parallel = turns.in_parallel();
    summary.row(
        "in parallel",
        format!("{parallel} pairs of batches of different types"),
    );
    summary.check(parallel > 0, "different types never ran in parallel");
    if let Some(directory) = &options.directory {
        summary.row("files", directory.display());
    }
    Ok(summary)
}

/// Starts the processes; one of them is killed before, if the options say so.
async fn start_all(options: &Options, stage: &Stage, directory: &Path) -> anyhow::Result<Processes> {
    let last = options.processes;
    if options.kill {
        // This one starts alone and takes its time, so that it holds the locks of all types when it is killed.
        let mut killed = start(last..=last, stage, directory, Some(LONGEST_PAUSE))?;
        killed.ready().await?;
        killed.go()?;
        all_files_have_an_incomplete_record(directory, options.types()).await?;
        let mut others = start(1..=last - 1, stage, directory, None)?;
        others.ready().await?;
        print(format!(
            "{last:>7}  is killed in the middle of a record of each type"
        ))?;
        killed.kill(last)?;
        Ok(others)
    } else {
        let mut all = start(1..=last, stage, directory, None)?;
        all.ready().await?;
        Ok(all)
    }
}

/// The files of an earlier run have numbers and tokens of their own.
fn prepare(directory: &Path) -> anyhow::Result<()> {
    let shown = directory.display();
    let first = fs::create_dir_all(directory).and_then(|()| Ok(fs::read_dir(directory)?.next()));
    let first = first.with_context(|| format!("cannot use the directory {shown}"))?;
    ensure!(
        first.is_none(),
        "the directory {shown} is not empty: name an empty or a new one"
    );
    Ok(())
}

fn start(
    numbers: RangeInclusive<u32>,
    stage: &Stage,
    directory: &Path,
    pause: Option<&str>,
) -> anyhow::Result<Processes> {
    Processes::start(numbers, |number| {
        let mut command = stage.worker(number)?;
        command.arg("--directory").arg(directory);
        if let Some(pause) = pause {
            command.args(["--pause", pause]);
        }
        Ok(command)
    })
}

async fn all_files_have_an_incomplete_record(directory: &Path, types: &[&str]) -> anyhow::Result<()> {
    for data_type in types {
        let begun = || async {
            let incomplete = fenced_file::has_uncommitted(directory, data_type);
            incomplete.map(|incomplete| incomplete.then_some(())).transpose()
        };
        let what = format!("first part of a record in {data_type}.log");
        eventually(START_LIMIT, &what, begun).await??;
    }
    Ok(())
}

fn heading(options: &Options) -> String {
    let lock = if options.without_lock {
        "WITHOUT the lock"
    } else {
        "under the lock `file:<data_type>`"
    };
    format!(
        "{} processes append {} messages of each of {} types, {BATCH} in a batch, in small writes\n\
         with a pause of {} after each, {lock}.\n\n\
         process  type       messages     fencing token      waited        held",
        options.processes,
        options.messages,
        options.types().len(),
        show(options.pause),
    )
}
