//! The command line.

mod acquiring;
mod help;
mod log;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use self::acquiring::{
    AcquireArguments, ExtendArguments, HoldArguments, RunArguments, WantedLocks,
};
use self::help::{
    ACQUIRE_HELP, DOCTOR_HELP, EXAMPLES, EXTEND_HELP, HOLD_HELP, LOG_HELP, LS_HELP, RELEASE_HELP, RUN_HELP,
    SHOW_HELP, TABLE, WATCH_HELP,
};
pub(crate) use self::log::LogArguments;
use crate::duration;

/// Distributed locks on MongoDB at the shell: who holds them, run a command under one, free one.
#[derive(Debug, Parser)]
#[command(name = "mongolock", version, after_help = TABLE, after_long_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
    /// Show all that the driver says about an error
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

impl CliCommand {
    /// Puts all names of a command that acquires into one list.
    pub(crate) fn gather_names(&mut self) {
        if let Self::Run(RunArguments { wanted, .. })
        | Self::Acquire(AcquireArguments { wanted, .. })
        | Self::Hold(HoldArguments { wanted, .. }) = self
        {
            wanted.names.append(&mut wanted.dashed);
        }
    }
}

/// Whether a command line, which may be wrong, names the command `run`: with its first argument that is neither an option
/// nor the value of one.
pub(crate) fn is_run(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let program = Cli::command();
    let takes_value = |option: &str| {
        let mut known = program
            .get_arguments()
            .filter(|known| known.get_action().takes_values());
        known.any(|known| known.get_long().is_some() && option.strip_prefix("--") == known.get_long())
    };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let argument = argument.to_string_lossy();
        if !argument.starts_with('-') {
            return argument == "run";
        }
        if takes_value(&argument) {
            arguments.next();
        }
    }
    false
}

/// The collection of the locks, unless another one is named.
pub(crate) const COLLECTION: &str = "distributed_locks";

/// Where the locks are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArguments {
    /// The connection string; the environment variable `MONGODB_URI` by default. It must not have a password, since
    /// every user of the machine can read it with `ps`. If no server answers, commands that acquire or resume end
    /// within 4s after the time of --wait (6s for --no-wait, 14s for --resume), `extend` and `release --handle` after 6s, and
    /// the others after 5s, or after its `serverSelectionTimeoutMS`
    #[arg(long, global = true, value_name = "URI", conflicts_with = "uri_file")]
    pub(crate) uri: Option<String>,
    /// A file with the connection string, which may have a password; `-` reads standard input, which `run`
    /// leaves to its command
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) uri_file: Option<PathBuf>,
    /// The database of the locks; that of the connection string by default, or else `mongolock`
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) database: Option<String>,
    /// The collection of the locks
    #[arg(long, global = true, value_name = "NAME", default_value = COLLECTION)]
    pub(crate) collection: String,
}

/// A command of the program, with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Runs a command under a lock
    #[command(after_long_help = RUN_HELP)]
    Run(RunArguments),
    /// Lists the locks in the order of their names
    #[command(after_long_help = LS_HELP)]
    Ls(ListArguments),
    /// Shows one lock: holder, since when, the time left, the token and the permits
    #[command(after_long_help = SHOW_HELP)]
    Show(ShowArguments),
    /// Acquires a lock, and leaves its lease to those who have its handle
    #[command(after_long_help = ACQUIRE_HELP)]
    Acquire(AcquireArguments),
    /// Extends the lease of a handle, and prints its new end
    #[command(after_long_help = EXTEND_HELP)]
    Extend(ExtendArguments),
    /// Holds a lock for a person, for a while or until `release`
    #[command(after_long_help = HOLD_HELP)]
    Hold(HoldArguments),
    /// Frees a lock whose holder is stuck, or the lock of a handle, or clears the mark of finished work
    #[command(after_long_help = RELEASE_HELP)]
    Release(ReleaseArguments),
    /// Shows who had which lock, from when to when, the latest first
    #[command(after_long_help = LOG_HELP)]
    Log(LogArguments),
    /// Shows what happens to locks, live, one line for each change
    #[command(after_long_help = WATCH_HELP)]
    Watch(WatchArguments),
    /// Checks the connection, the deployment, the rights, the indexes, the documents and the clocks; changes nothing
    #[command(after_long_help = DOCTOR_HELP)]
    Doctor(DoctorArguments),
    /// Prints the completions of a shell
    #[command(
        after_help = "Example: mongolock completions bash > ~/.local/share/bash-completion/completions/mongolock"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
    #[command(name = "guard-command", hide = true)]
    Guard(GuardArguments),
    #[command(name = "exec-command", hide = true)]
    Exec(ExecArguments),
}

/// Which locks `ls` lists.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own at the shell"
)]
pub(crate) struct ListArguments {
    /// Only names that begin with this text
    pub(crate) prefix: Option<String>,
    /// Only locks that are held
    #[arg(long, group = "state")]
    pub(crate) held: bool,
    /// Only locks whose last lease has ended without a release, as a detached one does when its time is over
    #[arg(long, group = "state")]
    pub(crate) expired: bool,
    /// Only locks whose work is marked as done
    #[arg(long, group = "state")]
    pub(crate) done: bool,
    /// Only locks of this owner
    #[arg(long, value_name = "OWNER")]
    pub(crate) owner: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which lock `show` shows.
#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// The name of the lock or semaphore
    pub(crate) name: String,
    /// One JSON object a line: that of `ls`, for the lock and for each permit
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `release` frees.
#[derive(Debug, Args)]
#[command(group = acquiring::what(["name", "owner", "handle"]))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own at the shell"
)]
pub(crate) struct ReleaseArguments {
    /// The name of the lock or semaphore
    pub(crate) name: Option<String>,
    /// Release all locks of this owner
    #[arg(long, value_name = "OWNER", conflicts_with_all = ["token", "permit", "all", "done"])]
    pub(crate) owner: Option<String>,
    /// Release the detached lease whose handle is in this file, and delete the file; `-` reads standard input. It does not ask
    #[arg(long, value_name = "FILE", conflicts_with_all = ["token", "permit", "all", "done"])]
    pub(crate) handle: Option<PathBuf>,
    /// Release only the hold with this fencing token, as `show` and `ls` print it
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["all", "permit"])]
    pub(crate) token: Option<i64>,
    /// Release this permit of the semaphore
    #[arg(long, value_name = "K", conflicts_with = "all")]
    pub(crate) permit: Option<u32>,
    /// Release all permits of the semaphore
    #[arg(long)]
    pub(crate) all: bool,
    /// Clear the mark of finished work, so that it runs again
    #[arg(long, conflicts_with_all = ["permit", "all"])]
    pub(crate) done: bool,
    /// Wait until the lock has another holder or none, and say which
    #[arg(long, conflicts_with_all = ["owner", "handle", "done"])]
    pub(crate) wait: bool,
    /// Do not ask; needed if there is no terminal to ask at
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// What `watch` shows.
#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    /// Only names that begin with this text
    pub(crate) prefix: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `doctor` expects and prints.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// The `retention` of the providers, which the TTL index must have
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "1d")]
    pub(crate) retention: Duration,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the guardian needs to know.
#[derive(Debug, Args)]
pub(crate) struct GuardArguments {
    /// The group that the terminal is given back to when `run` has ended.
    #[arg(long)]
    pub(crate) terminal: Option<i32>,
}

/// What is executed, and by whom.
#[derive(Debug, Args)]
pub(crate) struct ExecArguments {
    /// The process that must still be the parent.
    pub(crate) parent: i32,
    /// The moment of the boot clock, in nanoseconds, at which the lock is nearly over.
    pub(crate) kill_at: u64,
    /// The command and its arguments.
    #[arg(required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clap breaks the lines at the width of the terminal, so a paragraph must not contain line breaks of its own.
    #[test]
    fn no_paragraph_of_a_help_has_line_breaks() {
        let texts = [
            TABLE,
            EXAMPLES,
            RUN_HELP,
            ACQUIRE_HELP,
            EXTEND_HELP,
            HOLD_HELP,
            LS_HELP,
            LOG_HELP,
            SHOW_HELP,
            RELEASE_HELP,
            WATCH_HELP,
            DOCTOR_HELP,
        ];
        let indent = |line: &str| line.len() - line.trim_start().len();
        for text in texts {
            for pair in text.lines().collect::<Vec<_>>().windows(2) {
                let goes_on = indent(pair[1]) == 0 && !pair[0].is_empty() && !pair[1].is_empty();
                assert!(!goes_on && indent(pair[1]) <= 2, "{pair:#?}");
            }
        }
    }

    #[test]
    fn run_is_found_behind_options_and_their_values() {
        let is_run = |line: &str| is_run(line.split(' ').map(OsString::from));
        for line in [
            "run --bogus",
            "--database run run a",
            "--database=a run a",
            "--bogus run a",
        ] {
            assert!(is_run(line), "{line}");
        }
        for line in [
            "show run --bogus",
            "--database run show a",
            "--uri-file run",
            "--bogus",
            "help run --bogus",
        ] {
            assert!(!is_run(line), "{line}");
        }
    }
}
