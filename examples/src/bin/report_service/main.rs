//! A load-balanced web service: two instances change the same reports, and `#[distributed_lock]` lets one request at
//! a time change a report, whichever instance it reaches.
//!
//! ```text
//! cargo run --bin report_service
//! ```
//!
//! starts a MongoDB (or uses the one of `MONGODB_URI`, in a database of its own) and two instances, sends requests to
//! both, prints a line for each answer, and checks at the end that nothing went wrong. It exits with status 1 if
//! something did. With `--keep-running` the instances stay, to be tried by hand.
//!
//! One instance on a MongoDB of your own; start a second one on another port to have two:
//!
//! ```text
//! MONGODB_URI=mongodb://localhost cargo run --bin report_service -- serve --port 8081
//!
//! curl -i -X POST localhost:8081/reports/7                          # change it: answers with the token and the times
//! curl -i localhost:8081/reports/7 --json '{"work_ms": 5000}' &     # keep it for 5 s
//! curl -i -X POST localhost:8081/reports/7                          # waits for 2 s: 503 with Retry-After
//! curl -i localhost:8081/reports/7 --json '{"wait": false}'         # does not wait: 409
//! curl -i -X POST localhost:8081/reports/8                          # another report is not held up
//! curl -i localhost:8081/reports/7                                  # read it: needs no lock
//! ```
//!
//! A service is what `reports`, `error`, `answer` and `service` are. The other files are the demonstration.

mod answer;
mod client;
mod demonstration;
mod error;
mod options;
mod outcome;
mod reports;
mod service;
mod traffic;

use std::process::ExitCode;

use clap::Parser;
use mongolock_examples::program;

use crate::options::{Command, Options};

fn main() -> ExitCode {
    let options = Options::parse();
    program::run(async {
        match &options.command {
            Some(Command::Serve(serve)) => service::run(serve).await,
            None => {
                program::with_database("report_service", async |deployment, database| {
                    demonstration::run(&options, deployment, database).await
                })
                .await
            }
        }
    })
}
