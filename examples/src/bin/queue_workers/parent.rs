//! Fills the queue, starts the processes, kills one if asked to, and judges the outcome.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use mongodb::Database;
use mongolock_examples::output::println;
use mongolock_examples::processes::{self, Processes};
use mongolock_tests::{Deployment, eventually};

use crate::batches::Batches;
use crate::check::{Verdict, side_by_side};
use crate::fenced_file::FencedFile;
use crate::gathering;
use crate::open_file::blocking;
use crate::options::Options;
use crate::queue::Queue;
use crate::summary::{Summary, heading, killed_line};

/// A process with this pause is still at its first record when it is killed.
const VERY_SLOW: Duration = Duration::from_secs(60 * 60);

/// The directory of this run, its MongoDB and its options.
struct Run<'a> {
    options: &'a Options,
    uri: &'a str,
    database: &'a Database,
    directory: &'a Path,
}

/// Whether everything was right.
pub(crate) async fn work(
    options: &Options,
    deployment: &Deployment,
    database: &Database,
) -> anyhow::Result<bool> {
    let temporary = blocking(|| Ok(tempfile::tempdir()?))
        .await
        .context("cannot make a temporary directory")?;
    let directory = options.directory.as_deref().unwrap_or(temporary.path());
    prepare(directory).await?;
    let run = Run {
        options,
        uri: deployment.uri(),
        database,
        directory,
    };
    Queue::new(database)
        .fill(options.types(), options.messages)
        .await?;
    println(&heading(options))?;
    let begun = Instant::now();
    let failed = run.processes().await?;
    let took = begun.elapsed();
    let batches = Batches::new(database).all().await?;
    let mut verdicts = Vec::new();
    for data_type in options.types() {
        let messages = Queue::new(database).after(data_type, 0, 0).await?;
        let file = read(directory, data_type).await?;
        verdicts.push(Verdict::new(data_type, &messages, &file, &batches));
    }
    let summary = Summary {
        options,
        took,
        verdicts,
        side_by_side: side_by_side(&batches),
        failed,
    };
    println(&summary.to_string())?;
    Ok(summary.is_right())
}

/// Files of an earlier run have numbers and tokens of their own.
async fn prepare(directory: &Path) -> anyhow::Result<()> {
    let shown = directory.display().to_string();
    let directory = directory.to_owned();
    let first = blocking(move || {
        fs::create_dir_all(&directory)?;
        Ok(fs::read_dir(&directory)?.next())
    });
    let first = first
        .await
        .with_context(|| format!("cannot use the directory {shown}"))?;
    anyhow::ensure!(
        first.is_none(),
        "the directory {shown} is not empty: name an empty or a new one"
    );
    Ok(())
}

/// The whole file; a damaged one need not be text.
async fn read(directory: &Path, data_type: &str) -> anyhow::Result<String> {
    let name = format!("{data_type}.log");
    let path = directory.join(&name);
    let bytes = blocking(move || Ok(fs::read(path)?)).await;
    Ok(String::from_utf8_lossy(&bytes.with_context(|| format!("cannot read {name}"))?).into_owned())
}

impl Run<'_> {
    /// Runs the processes to their ends, and says which failed.
    async fn processes(&self) -> anyhow::Result<Vec<String>> {
        let all = self.options.processes;
        let mut workers = if self.options.kill {
            self.start_all_and_kill_the_last().await?
        } else {
            self.start(1..=all)?
        };
        workers.all_ended().await?;
        workers.failures()
    }

    /// The one that is killed begins alone and takes its time, so that it holds the locks of all types when it dies.
    async fn start_all_and_kill_the_last(&self) -> anyhow::Result<Processes> {
        let last = self.options.processes;
        let mut victim = Processes::default();
        victim.start(self.worker(last, 1, VERY_SLOW)?)?;
        self.all_have_begun().await?;
        let others = self.start(1..=last - 1)?;
        gathering::complete(self.database, last).await?;
        println(&killed_line(last))?;
        victim.kill(1)?;
        Ok(others)
    }

    /// Starts processes that begin when all are there.
    fn start(&self, numbers: RangeInclusive<u32>) -> anyhow::Result<Processes> {
        let mut started = Processes::default();
        for number in numbers {
            started.start(self.worker(number, self.options.processes, self.options.pause)?)?;
        }
        Ok(started)
    }

    /// A process that begins when so many are there.
    fn worker(&self, number: u32, gather: u32, pause: Duration) -> anyhow::Result<Command> {
        let mut command = processes::again(self.uri)?;
        command
            .arg(format!("--worker={number}"))
            .arg(format!("--database={}", self.database.name()))
            .arg(format!("--gather={gather}"))
            .arg(format!("--types={}", self.options.types().len()))
            .arg(format!("--pause={}ms", pause.as_millis()))
            .arg(format!("--expiry={}ms", self.options.expiry.as_millis()))
            .args(self.options.without_lock.then_some("--without-lock"))
            .arg("--directory")
            .arg(self.directory);
        Ok(command)
    }

    /// Waits until somebody is in the middle of a record of each type.
    async fn all_have_begun(&self) -> anyhow::Result<()> {
        for data_type in self.options.types() {
            let begun = || async {
                let directory = self.directory.to_owned();
                let unfinished = blocking(move || FencedFile::has_unfinished(&directory, data_type)).await;
                unfinished.map(|unfinished| unfinished.then_some(())).transpose()
            };
            let what = format!("beginning of a record in {data_type}.log");
            eventually(gathering::LIMIT, &what, begun).await??;
        }
        Ok(())
    }
}
