//! Starts the processes, stops one of them in the middle of its transfer, and judges the books.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;
use mongodb::Database;
use mongolock_examples::output::println;
use mongolock_examples::paused::Paused;
use mongolock_examples::processes::{self, Processes};
use mongolock_tests::Deployment;
use tokio::task::spawn_blocking;

use crate::approval::Approval;
use crate::bank::Bank;
use crate::options::Options;
use crate::summary::{Summary, heading};
use crate::verdict::judge;
use crate::worker::STOPPED;

/// Whether everything was right.
pub(crate) async fn work(
    options: &Options,
    deployment: &Deployment,
    database: &Database,
) -> anyhow::Result<bool> {
    // Only to open the accounts and to read the books: it approves nothing.
    let bank = Bank::new(database, Approval::Takes(options.approval), true);
    bank.open(database, options.accounts).await?;
    println(&heading(options))?;
    let begun = Instant::now();
    let start = |number| worker(number, options, deployment.uri(), database.name());

    let mut processes = Processes::default();
    let mut command = start(STOPPED.id.process)?;
    command.stdout(Stdio::piped());
    let first = processes.start(command)?;
    let says = first.stdout.take().context("its output is a pipe")?;
    let says = spawn_blocking(|| first_line(BufReader::new(says))).await??;
    // Dropped before the processes, which are waited for.
    let paused = Paused::stop(first)?;
    println("Process 1 is stopped. Its lease ends, and the others go on.")?;

    let (others, writer) = io::pipe().context("cannot make a pipe")?;
    for number in STOPPED.id.process + 1..=options.processes {
        let mut command = start(number)?;
        command.stdout(writer.try_clone()?);
        processes.start(command)?;
    }
    // The pipe ends when the last of them does, if nobody else could write to it.
    drop(writer);
    spawn_blocking(|| all_lines(BufReader::new(others))).await??;

    println("Process 1 goes on.")?;
    drop(paused);
    spawn_blocking(|| all_lines(says)).await??;

    let failed = processes.failures()?;
    let books = bank.books().await?;
    let summary = Summary {
        entries: books.journal.len(),
        findings: judge(&books, options.accounts, STOPPED.id),
        failed,
        took: begun.elapsed(),
    };
    println(&summary.to_string())?;
    Ok(summary.is_right())
}

fn worker(number: u32, options: &Options, uri: &str, database: &str) -> anyhow::Result<Command> {
    let mut command = processes::again(uri)?;
    command
        .args(["--worker", &number.to_string(), "--database", database])
        .args(["--transfers", &options.transfers.to_string()])
        .args(["--accounts", &options.accounts.to_string()])
        .args(["--approval", &format!("{}ms", options.approval.as_millis())])
        .args(options.without_guard.then_some("--without-guard"));
    Ok(command)
}

/// Prints the first line, and gives back the rest.
fn first_line<R: Read>(mut says: BufReader<R>) -> anyhow::Result<BufReader<R>> {
    let mut line = String::new();
    let length = says.read_line(&mut line).context(NOT_HEARD)?;
    anyhow::ensure!(length > 0, "process 1 has ended before its transfer");
    println(line.trim_end())?;
    Ok(says)
}

/// Prints the lines as they come, until no process can say anything any more.
fn all_lines(says: impl BufRead) -> anyhow::Result<()> {
    for line in says.lines() {
        println(&line.context(NOT_HEARD)?)?;
    }
    Ok(())
}

const NOT_HEARD: &str = "cannot hear the processes";
