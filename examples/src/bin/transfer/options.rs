//! The command line, the same for the program and the processes that it starts.

use std::time::Duration;

use clap::{Parser, value_parser};
use mongolock_examples::processes::Worker;

const ABOUT: &str = "\
Several processes transfer money between the same accounts under distributed locks. One of them is stopped in the \
middle until others have its lock; its commit is refused, and the program checks that the books are right.

It starts a MongoDB of its own, which is gone when the program ends. With MONGODB_URI it uses that one instead, in a \
database of its own, which it drops at the end. Transactions take a replica set or a sharded cluster.";

const STATUS: &str = "Exit status: 0 if nothing went wrong, 1 if something did, 2 for a wrong command line.";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "transfer", about = ABOUT, after_help = STATUS)]
pub(crate) struct Options {
    /// Processes to start, with the one that is stopped
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = value_parser!(u32).range(2..=64))]
    pub(crate) processes: u32,

    /// Transfers that each of the others is to make, one after the other
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = value_parser!(u32).range(1..=10_000))]
    pub(crate) transfers: u32,

    /// Accounts that the transfers go between
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(2..=20))]
    pub(crate) accounts: u32,

    /// How long a transfer waits for its approval, under the lock
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = mongolock_examples::duration::parse)]
    pub(crate) approval: Duration,

    /// Commit without asking for the lock, to see what the guard prevents; fails when the limit is broken
    #[arg(long)]
    pub(crate) without_guard: bool,

    #[command(flatten)]
    pub(crate) worker: Option<Worker>,
}
