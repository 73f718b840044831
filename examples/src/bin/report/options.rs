//! The command line, the same for the program and the processes that it starts.

use std::time::Duration;

use clap::{Parser, value_parser};
use mongolock_examples::processes::Worker;

const ABOUT: &str = "\
Several processes rebuild the same reports under distributed locks, and the program checks that no work was lost.

It starts a MongoDB of its own, which is gone when the program ends. With MONGODB_URI it uses that one instead, in a \
database of its own, which it drops at the end.";

const STATUS: &str = "Exit status: 0 if nothing went wrong, 1 if something did, 2 for a wrong command line.";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "report", about = ABOUT, after_help = STATUS)]
pub(crate) struct Options {
    /// Processes to start
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,

    /// Calls of `rebuild_report` in each process, made by up to four tasks at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 12, value_parser = value_parser!(u32).range(1..=100_000))]
    pub(crate) calls: u32,

    /// Reports that the calls are spread over
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(1..=10_000))]
    pub(crate) ids: u32,

    /// Pause between reading and writing a report, under the lock
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = mongolock_examples::duration::parse)]
    pub(crate) hold: Duration,

    /// Rebuild without the lock, to see what it prevents; fails when updates are lost
    #[arg(long)]
    pub(crate) without_lock: bool,

    #[command(flatten)]
    pub(crate) worker: Option<Worker>,
}
