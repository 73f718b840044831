//! The command line, the same for the program and the instances that it starts.

use std::time::Duration;

use clap::{Args, Parser, value_parser};

use crate::schedule::{Schedule, Tick};

const ABOUT: &str = "\
Three instances have the same scheduled job under a distributed lock, and the program checks that it runs once per tick.

It starts a MongoDB of its own, which is gone when the program ends. With MONGODB_URI it uses that one instead, in a \
database of its own, which it drops at the end.";

const STATUS: &str = "Exit status: 0 if each tick ran once, 1 if one did not, 2 for a wrong command line.";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "nightly_job", about = ABOUT, after_help = STATUS)]
pub(crate) struct Options {
    /// Ticks of the schedule to run
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = value_parser!(u16).range(1..=1_000))]
    pub(crate) ticks: u16,

    /// When the job is due, in UTC: second, minute, hour, day, month, day of the week (SUN to SAT)
    #[arg(long, value_name = "CRON", default_value = "*/2 * * * * *")]
    pub(crate) schedule: Schedule,

    /// How long the job takes
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = mongolock_examples::duration::parse)]
    pub(crate) work: Duration,

    /// How late an instance comes at the most, at random, as when clocks differ
    #[arg(long, value_name = "DURATION", default_value = "200ms", value_parser = mongolock_examples::duration::parse)]
    pub(crate) late: Duration,

    /// Kill an instance half-way, to see that the others go on
    #[arg(long)]
    pub(crate) kill: bool,

    /// Run the job without the lock, to see what it prevents; fails because each tick runs three times
    #[arg(long)]
    pub(crate) without_lock: bool,

    #[command(flatten)]
    pub(crate) instance: Option<Instance>,
}

/// What the program tells the instances that it starts; the connection string may hold a password and travels in the
/// environment.
#[derive(Debug, Args)]
#[group(requires_all = ["instance", "first", "database"], multiple = true)]
pub(crate) struct Instance {
    /// The number of this instance.
    #[arg(long = "instance", id = "instance", hide = true, required = false)]
    pub(crate) number: u32,

    /// The first tick.
    #[arg(long, hide = true, required = false)]
    pub(crate) first: Tick,

    /// The database to work in.
    #[arg(long, hide = true, required = false)]
    pub(crate) database: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_started_processes_are_instances() {
        let own = Options::try_parse_from(["nightly_job"]).unwrap();
        assert!(own.instance.is_none());
        let first = ["nightly_job", "--instance", "2", "--first", "1763700000"];
        assert!(Options::try_parse_from(first).is_err());
        let started = Options::try_parse_from(first.into_iter().chain(["--database", "d"])).unwrap();
        assert_eq!(started.instance.unwrap().number, 2);
    }
}
