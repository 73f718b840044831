//! A load-balanced web service: two instances change the same reports, and `#[distributed_lock]` lets one request at a
//! time change a report, whichever instance gets it.
//!
//! ```text
//! cargo run --bin report_service
//! ```
//!
//! This starts two instances, sends requests to both, prints a line for each answer, and checks the reports at the end.
//! With `--keep-running` the instances stay until Ctrl-C.
//!
//! The following starts one instance on a MongoDB server of your own; a second one on another port makes two:
//!
//! ```text
//! MONGODB_URI=mongodb://localhost cargo run --bin report_service -- serve --port 8081
//!
//! curl -i -X POST localhost:8081/reports/7                          # change it: answers with the token and the times
//! curl -i localhost:8081/reports/7 --json '{"work_ms": 5000}' &     # hold its lock for 5 s
//! curl -i -X POST localhost:8081/reports/7                          # waits for 2 s: 503 with Retry-After
//! curl -i localhost:8081/reports/7 --json '{"wait": false}'         # does not wait: 409
//! curl -i -X POST localhost:8081/reports/8                          # another report does not wait
//! curl -i localhost:8081/reports/7                                  # reading needs no lock
//! ```
//!
//! The files `service`, `reports` and `error` are the service. The others are the demonstration.

mod check;
mod error;
mod reports;
mod service;
mod traffic;

use std::future;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use mongolock_examples::demo::{self, AFTER_HELP, Stage};
use mongolock_examples::duration::parse;
use mongolock_examples::print;
use mongolock_examples::summary::Summary;
use mongolock_examples::workers::Processes;

use crate::service::LISTENING;
use crate::traffic::Client;

/// How long a request of the demonstration waits for its report.
const ACQUIRE_TIMEOUT: &str = "2s";

const SERVE: &str = "\
Run one instance on the MongoDB server of MONGODB_URI (mongodb://localhost if not set), until Ctrl-C or SIGTERM.

POST /reports/<id> changes a report under its lock, GET /reports/<id> reads it. The POST takes a JSON body; all of it is \
optional: \"work_ms\", how long the work takes (100, at most 65535), and \"wait\", whether to wait for the lock (true).";

/// Two instances of a web service change the same reports under distributed locks. Without a command, the program sends
/// requests to both and checks that no update is lost.
#[derive(Debug, Parser)]
#[command(
    name = "report_service", after_help = AFTER_HELP,
    args_conflicts_with_subcommands = true, disable_help_subcommand = true
)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,

    /// Keep the instances running after the checks, until Ctrl-C
    #[arg(long)]
    keep_running: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(about = "Run one instance", long_about = SERVE)]
    Serve(Serve),
}

/// The options of an instance.
#[derive(Debug, Args)]
struct Serve {
    /// Port of 127.0.0.1 to listen on; 0 takes a free one, which is printed
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,

    /// Database of the reports and of their locks
    #[arg(long, value_name = "NAME", default_value = "report_service")]
    database: String,

    /// How long a request waits for the lock of its report
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse)]
    acquire_timeout: Duration,

    /// How long requests may take to finish after Ctrl-C or SIGTERM
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse)]
    grace: Duration,

    /// The number of an instance that another process has started, and that ends with that process.
    #[arg(long, hide = true)]
    instance: Option<u32>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match &options.command {
        Some(Command::Serve(serve)) => demo::run(service::run(serve)),
        None => demo::demonstrate("report_service", async |stage| demonstrate(&options, stage).await),
    }
}

/// Starts two instances, sends requests to both, and checks the answers and the reports.
async fn demonstrate(options: &Options, stage: &Stage) -> anyhow::Result<Summary> {
    let (_first, first) = start(1, stage).await?;
    let (_second, second) = start(2, stage).await?;
    print(format!("Two instances, {} and {}.\n", first.url, second.url))?;
    print("instance  report     fencing token      waited        held  status")?;
    let replies = traffic::send(&first, &second).await?;
    let summary = check::check(&replies, &traffic::reports(&first).await?);
    if options.keep_running {
        print(&summary)?;
        print(format!(
            "\nTry `curl -i -X POST {}/reports/7`. Ctrl-C ends the program.",
            first.url
        ))?;
        future::pending::<()>().await;
    }
    Ok(summary)
}

async fn start(number: u32, stage: &Stage) -> anyhow::Result<(Processes, Client)> {
    let mut instance = Processes::start(number..=number, |number| {
        let mut command = stage.program()?;
        command
            .args(["serve", "--instance", &number.to_string()])
            .args(["--database", stage.database().name()])
            .args(["--acquire-timeout", ACQUIRE_TIMEOUT]);
        Ok(command)
    })?;
    let line = instance.next_line().await?;
    let url = line.as_deref().and_then(|line| line.strip_prefix(LISTENING));
    let url = url.with_context(|| format!("instance {number} does not listen"))?;
    let client = Client::new(number, url.to_owned())?;
    Ok((instance, client))
}
