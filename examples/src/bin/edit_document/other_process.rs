//! A session in a process of its own, which can be killed.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use anyhow::Context;
use mongolock_examples::processes::{Processes, again};

use crate::command::USAGE;

/// Starts this program for a person who opens some items, and returns when they have: with the process and its answers.
/// It ends with its standard input.
pub(crate) async fn opens(
    uri: &str,
    database: &str,
    person: &str,
    items: &[u32],
) -> anyhow::Result<(Processes, Vec<String>)> {
    let mut command = again(uri)?;
    command
        .args(["--database", database, "--editor", person])
        .stdout(Stdio::piped());
    let mut processes = Processes::default();
    let process = processes.start(command)?;
    let input = process.stdin.as_mut().context("it is piped")?;
    for item in items {
        writeln!(input, "open {item}").context("cannot tell the process what to do")?;
    }
    let output = BufReader::new(process.stdout.take().context("it is piped")?);
    let greeting = 1 + USAGE.lines().count();
    let answers = output.lines().skip(greeting).take(items.len());
    let answers = tokio::task::spawn_blocking(|| answers.collect::<Result<_, _>>()).await?;
    Ok((processes, answers.context("cannot hear the process")?))
}
