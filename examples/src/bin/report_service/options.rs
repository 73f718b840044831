//! The command line.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use mongolock_examples::duration;

const ABOUT: &str = "\
Two instances of a web service change the same reports under distributed locks.

Without a command, a demonstration: it starts a MongoDB and two instances, sends requests to both, and checks that no \
work was lost. All of it is gone at the end. With MONGODB_URI it uses that MongoDB instead, in a database of its own, \
which it drops at the end.";

const STATUS: &str = "Exit status: 0 if nothing went wrong, 1 if something did, 2 for a wrong command line.";

const SERVE: &str = "\
Run one instance, on the MongoDB of MONGODB_URI (mongodb://localhost if not set), until Ctrl-C or SIGTERM.

POST /reports/<id> changes a report under its lock, GET /reports/<id> reads it. The POST takes a JSON body, all of it \
optional: \"work_ms\", how long the work takes (100, at most 65535), and \"wait\", whether to wait for the lock (true).";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "report_service", about = ABOUT, after_help = STATUS,
    args_conflicts_with_subcommands = true, disable_help_subcommand = true
)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Keep the instances running after the checks, until Ctrl-C
    #[arg(long)]
    pub(crate) keep_running: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(about = "Run one instance", long_about = SERVE)]
    Serve(Serve),
}

/// The options of an instance.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Port of 127.0.0.1 to listen on; 0 takes a free one and says which
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,

    /// Database of the reports and of their locks
    #[arg(long, value_name = "NAME", default_value = "report_service")]
    pub(crate) database: String,

    /// How long a request waits for a report that others change
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub(crate) acquire_timeout: Duration,

    /// How long requests may take to finish after Ctrl-C or SIGTERM
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration::parse)]
    pub(crate) grace: Duration,

    /// The number of this instance: it was started by another process and ends with that one.
    #[arg(long, hide = true)]
    pub(crate) instance: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_command_it_is_the_demonstration() {
        let options = Options::try_parse_from(["report_service"]).unwrap();
        assert!(options.command.is_none());
    }

    #[test]
    fn the_options_of_the_demonstration_are_not_those_of_an_instance() {
        assert!(Options::try_parse_from(["report_service", "--keep-running", "serve"]).is_err());
        assert!(Options::try_parse_from(["report_service", "serve", "--keep-running"]).is_err());
    }
}
