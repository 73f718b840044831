//! The command line, the same for the program and the processes that it starts.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, value_parser};
use mongolock_examples::duration;

const ABOUT: &str = "\
Several worker processes append the messages of a queue to one file for each data type, under a distributed lock for \
each type, and the program checks that every message is in its file once, whole and in order.

It starts a MongoDB of its own, which is gone when the program ends. With MONGODB_URI it uses that one instead, in a \
database of its own, which it drops at the end.";

const STATUS: &str = "Exit status: 0 if nothing went wrong, 1 if something did, 2 for a wrong command line.";

/// The data types, of which `--types` takes the first few.
const TYPES: [&str; 6] = [
    "orders",
    "invoices",
    "payments",
    "returns",
    "customers",
    "articles",
];

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "queue_workers", about = ABOUT, after_help = STATUS)]
pub(crate) struct Options {
    /// Processes to start, each with a worker for each type
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(2..=64))]
    pub(crate) processes: u32,

    /// Messages of each type
    #[arg(long, value_name = "NUMBER", default_value_t = 40, value_parser = value_parser!(u32).range(20..=5_000))]
    pub(crate) messages: u32,

    /// Data types
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(2..=6))]
    types: u32,

    /// Pause after each of the four small writes of a record
    #[arg(long, value_name = "DURATION", default_value = "5ms", value_parser = duration::parse)]
    pub(crate) pause: Duration,

    /// How long a lease lasts without a renewal: what a killed process keeps the others waiting
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration::parse_expiry)]
    pub(crate) expiry: Duration,

    /// Kill a process while it is in the middle of a record of each type
    #[arg(long, conflicts_with = "without_lock")]
    pub(crate) kill: bool,

    /// Append without the lock, to see what it prevents; fails when the files are damaged
    #[arg(long)]
    pub(crate) without_lock: bool,

    /// Directory to write the files into, empty or new, and kept [default: a temporary one]
    #[arg(long, value_name = "PATH")]
    pub(crate) directory: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) worker: Option<Worker>,
}

/// What the program tells the processes that it starts; the connection string may hold a password and travels in the
/// environment.
#[derive(Debug, Args)]
#[group(requires_all = ["worker", "database", "gather", "directory"], multiple = true)]
pub(crate) struct Worker {
    /// The number of this process.
    #[arg(long = "worker", id = "worker", hide = true, required = false)]
    pub(crate) number: u32,

    /// The database to work in.
    #[arg(long, hide = true, required = false)]
    pub(crate) database: String,

    /// How many processes must be there before this one begins.
    #[arg(long, hide = true, required = false)]
    pub(crate) gather: u32,
}

impl Options {
    pub(crate) fn types(&self) -> &'static [&'static str] {
        &TYPES[..self.types as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_started_processes_are_workers() {
        let own = Options::try_parse_from(["queue_workers"]).unwrap();
        assert!(own.worker.is_none() && own.types() == ["orders", "invoices", "payments"]);
        let started = [
            "queue_workers",
            "--worker=2",
            "--database=d",
            "--gather=3",
            "--directory=x",
        ];
        let worker = Options::try_parse_from(started).unwrap().worker.unwrap();
        assert_eq!((worker.number, worker.gather), (2, 3));
        assert!(Options::try_parse_from(&started[..3]).is_err());
    }
}
