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

    let mut first = Processes::default();
    let mut command = start(STOPPED.id.process)?;
    command.stdout(Stdio::piped());
    let child = first.start(command)?;
    let says = child.stdout.take().context("its output is a pipe")?;
    let says = tokio::task::spawn_blocking(|| first_line(BufReader::new(says))).await??;
    let paused = Paused::stop(child)?;
    println("Process 1 is stopped. Its lease ends, and the others go on.")?;

    let failed = others(options, start).await?;
    anyhow::ensure!(failed.is_empty(), "{}", failed.join(", "));

    println("Process 1 goes on.")?;
    drop(paused);
    tokio::task::spawn_blocking(|| all_lines(says)).await??;
    let failed = first.failures()?;

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

/// Runs all processes but the first to their end, and says which failed.
async fn others(
    options: &Options,
    start: impl Fn(u32) -> anyhow::Result<Command>,
) -> anyhow::Result<Vec<String>> {
    let (say, writer) = io::pipe().context("cannot make a pipe")?;
    let mut others = Processes::default();
    for number in STOPPED.id.process + 1..=options.processes {
        let mut command = start(number)?;
        command.stdout(writer.try_clone()?);
        others.start(command)?;
    }
    // The pipe ends when the last process does, if nobody else could write to it.
    drop(writer);
    tokio::task::spawn_blocking(|| all_lines(BufReader::new(say))).await??;
    others.failures()
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
