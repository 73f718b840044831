//! Starts two instances, has requests sent to both, and judges the answers.

use std::future;
use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Stdio};

use anyhow::Context;
use mongodb::Database;
use mongolock_examples::output::println;
use mongolock_examples::processes::{self, Processes};
use mongolock_tests::Deployment;

use crate::client::Client;
use crate::options::Options;
use crate::outcome::{HEADING, Outcome};
use crate::service::LISTENING;
use crate::traffic;

/// How long a request waits for its report.
const ACQUIRE_TIMEOUT: &str = "1s";

/// Whether everything was right.
pub(crate) async fn run(
    options: &Options,
    deployment: &Deployment,
    database: &Database,
) -> anyhow::Result<bool> {
    let mut processes = Processes::default();
    let first = start(1, &mut processes, deployment, database).await?;
    let second = start(2, &mut processes, deployment, database).await?;
    println(&format!("Two instances, {} and {}.\n", first.url, second.url))?;
    println(HEADING)?;
    let outcome = Outcome {
        replies: traffic::send(&first, &second).await?,
        reports: traffic::reports(&first).await?,
    };
    println(&outcome.to_string())?;
    if options.keep_running {
        println(&format!(
            "\nTry `curl -i -X POST {}/reports/7`. Ctrl-C ends it.",
            first.url
        ))?;
        future::pending::<()>().await;
    }
    Ok(outcome.is_right())
}

async fn start(
    number: u32,
    processes: &mut Processes,
    deployment: &Deployment,
    database: &Database,
) -> anyhow::Result<Client> {
    let mut command = processes::again(deployment.uri())?;
    command
        .args(["serve", "--instance", &number.to_string()])
        .args(["--database", database.name()])
        .args(["--acquire-timeout", ACQUIRE_TIMEOUT])
        .stdout(Stdio::piped());
    let output = processes.start(command)?.stdout.take();
    let output = output.context("the output of an instance is piped")?;
    let url = tokio::task::spawn_blocking(|| address(output)).await?;
    Client::new(
        number,
        url.with_context(|| format!("instance {number} does not listen"))?,
    )
}

/// Where an instance listens is the first thing that it says, and the only one.
fn address(output: ChildStdout) -> Option<String> {
    let first = BufReader::new(output).lines().next()?.ok()?;
    first.strip_prefix(LISTENING).map(str::to_owned)
}
