//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::duration;
use crate::top::Column;

/// Distributed locks on MongoDB at the shell: who holds them, who waits, run a command under one, free one.
#[derive(Debug, Parser)]
#[command(name = "mongolock", version, after_help = TABLE, after_long_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
    /// Show all that the driver says about an error
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Whether a command line, which may be wrong, names the command `run`: with its first argument that is neither an option
/// nor the value of one.
pub(crate) fn is_run(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let program = Cli::command();
    let takes_value = |option: &str| {
        let known = program
            .get_arguments()
            .filter(|known| known.get_action().takes_values());
        known
            .filter_map(Arg::get_long)
            .any(|long| option.strip_prefix("--") == Some(long))
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

const TABLE: &str = "\
Exit codes: 0 done; 1 no such lock, nothing released, or something is wrong; \
2 wrong command line; 125 failed. `run` has codes of its own: see `mongolock run --help`.";

const EXAMPLES: &str = "\
Examples:
  export MONGODB_URI=mongodb://db.example.com/app
  mongolock ls --held                          who holds what
  mongolock show report:42                     holder, since when, who waits
  mongolock release report:42                  free it; the holder learns of it at its next renewal
  mongolock run nightly -- ./nightly.sh        a command under a lock

Exit codes: 0 done; 1 no such lock, nothing released, or something is wrong; \
2 wrong command line; 125 failed. `run` has codes of its own: see `mongolock run --help`.";

/// The collection of the locks, unless another one is named.
pub(crate) const COLLECTION: &str = "distributed_locks";

/// Where the locks are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArguments {
    /// The connection string; the environment variable `MONGODB_URI` by default. It must not have a password, since
    /// every user of the machine can read it with `ps`. Commands other than `run` look for a server for 5s, or for its
    /// `serverSelectionTimeoutMS`
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

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a command under a lock
    #[command(after_long_help = RUN_HELP)]
    Run(RunArguments),
    /// Lists the locks in the order of their names
    #[command(after_long_help = LS_HELP)]
    Ls(ListArguments),
    /// Shows one lock: holder, since when, the time left, the token, permits, and the waiters in their order
    #[command(after_long_help = SHOW_HELP)]
    Show(ShowArguments),
    /// Frees a lock whose holder is stuck, or clears the mark of finished work
    #[command(after_long_help = RELEASE_HELP)]
    Release(ReleaseArguments),
    /// Shows what happens to locks, live, one line for each change
    #[command(after_long_help = WATCH_HELP)]
    Watch(WatchArguments),
    /// Shows the locks that are held on a live screen: name, holder, age, remaining time, waiters; q quits
    #[command(after_long_help = TOP_HELP)]
    Top(TopArguments),
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

/// What `run` runs, and under which lock.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The lock; several names are acquired all or none
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    /// Hold one of N permits of the name instead of the lock
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "once_per")]
    pub(crate) permits: Option<u32>,
    /// Run the command once in each period, such as `1d`: when it has exited with 0, no other run of it starts before the
    /// next period. Periods are multiples of this time since 1970 in UTC
    #[arg(long, value_name = "PERIOD", value_parser = duration::parse)]
    pub(crate) once_per: Option<Duration>,
    /// Wait this long while others hold the lock
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "10s", conflicts_with = "no_wait")]
    pub(crate) wait: Duration,
    /// Do not wait: one attempt
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// How long the lock outlives this machine; it is renewed as long as the command runs. 5s at least
    #[arg(long, value_name = "TIME", value_parser = expiry, default_value = "30s")]
    pub(crate) expiry: Duration,
    /// The exit code if others hold the lock
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = crate::exit::BUSY)]
    pub(crate) busy_code: u8,
}

/// The shortest expiry of a lock: the command is ended some time before, and needs the rest to end.
const MIN_EXPIRY: Duration = Duration::from_secs(5);

fn expiry(text: &str) -> Result<Duration, String> {
    let expiry = duration::parse(text)?;
    if expiry < MIN_EXPIRY {
        return Err("it must be 5s or longer: a shorter lease leaves no time to end the command".to_owned());
    }
    Ok(expiry)
}

const RUN_HELP: &str = "\
The command runs in a process group of its own, under the watch of a second process, the guardian. No process of that \
group is alive when the lock is lost, also if `mongolock run` is killed or stopped, or the network is cut:
  - SIGTERM (and SIGCONT) to the group at the end of the lease less 5s or a sixth of the expiry, whichever is less; with \
    an expiry of 50s or longer, 5s before SIGKILL; after it a late renewal changes nothing
  - SIGKILL at the end of the lease less 100ms or a twentieth of the expiry, whichever is more; at once if `run` has \
    ended or the lock was released by force

If a renewal fails, a line on standard error says why and how much time is left; another one comes before SIGTERM.

When the command has ended, the rest of its group gets SIGTERM, and SIGKILL after 5s. The lock is released when the last \
process of the group has ended.

HUP, INT, QUIT, TERM, USR1 and USR2 are passed on to the group, unless they are ignored at the start (nohup). A stopped \
command is continued for the first four, which it could not get otherwise. Ctrl-Z stops `run`, too; the lock cannot be \
renewed then, so a longer stop costs it. At a terminal the command is in the foreground if standard input and standard \
output are that terminal.

The command gets MONGOLOCK_NAME and MONGOLOCK_TOKEN (the fencing token; both separated by commas for several names; no \
token with --permits). Standard input and output belong to the command; messages of `run` go to standard error.

Exit codes:
  that of CMD, and 128 + n if signal n has ended it (by INT or QUIT `run` ends itself)
  0     the period is already done (--once-per); a line on standard error says so
  75    others hold the lock, or its work is marked as done (-E sets another code)
  124   the lock was lost, and CMD was ended
  125   `mongolock run` failed, or could not mark the period as done
  126   CMD cannot be executed
  127   CMD was not found
  128+n signal n has ended the wait

Not covered:
  - a child that leaves the process group (setsid, `timeout` without --foreground, a shell with job control)
  - a process in an uninterruptible system call: if it is still there at the end, the lock is not released
  - a CMD that is setuid, which the guardian may not end
  - a forced release: CMD is ended at the next renewal only, while others may have the lock
  - `run` and its guardian stopped (SIGSTOP) at the same time: CMD outlives the lock until one of them continues, which \
    kills it at once; or a whole machine that is frozen and continues later
  - the guardian killed while `run` is stopped: CMD outlives the lock until `run` continues, which kills it at once
  - `kill -9` of `run` and its guardian at once, for the children of CMD; CMD itself ends
  - systems other than Linux: CMD outlives a `run` and guardian that are killed together, and the time in which the \
    machine is suspended may not count

Where a late write would do harm, give it MONGOLOCK_TOKEN, and let the store refuse smaller tokens.

Examples:
  mongolock run nightly -- ./nightly.sh
  mongolock run deploy:web deploy:db --wait 5m -- make deploy
  mongolock run report --once-per 1d -- ./report.sh        each host may start it; one run a day succeeds
  mongolock run export --permits 3 -- ./export.sh          three at a time";

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
    /// Only locks that processes wait for
    #[arg(long, group = "state")]
    pub(crate) waiting: bool,
    /// Only locks whose holder has not released them in time
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

const LS_HELP: &str = "\
The columns are name, state, remaining time, waiters and owner, each as wide as its content. At a terminal a line that is \
too long is cut in the middle of its name or owner. A permit of a semaphore is shown as `name #number`. A \
document that cannot be read as a lock is a line with the state `damaged`. Without locks there are no lines; at a terminal \
one says in which database and collection there are none.

Fields of --json:
  name                        text
  permit                      number of the permit; only for permits
  state                       held, expired, released, done or damaged
  owner                       text; null once released, and for holders that write none
  fencing_token               number; not for permits, which have none
  acquired_at, expires_at     RFC 3339, UTC
  held_ms                     time since the acquisition; null unless held
  remaining_ms                time until the lock is free
  waiters                     array of {owner, since, waiting_ms}, in their order
  problem                     text; only for damaged documents, which have name, state and problem

Examples:
  mongolock ls report: --held
  mongolock ls --waiting --json | jq -r .name";

/// Which lock `show` shows.
#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// The name of the lock or semaphore
    pub(crate) name: String,
    /// One JSON object a line: that of `ls`, for the lock and for each permit
    #[arg(long)]
    pub(crate) json: bool,
}

const SHOW_HELP: &str = "\
A semaphore is shown as its permits. The exit code is 1 if there is no lock of this name.

Examples:
  mongolock show report:42
  mongolock show export --json | jq 'select(.state == \"held\") | .owner'";

/// What `release` frees.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["name", "owner"]))]
pub(crate) struct ReleaseArguments {
    /// The name of the lock or semaphore
    pub(crate) name: Option<String>,
    /// Release all locks of this owner
    #[arg(long, value_name = "OWNER", conflicts_with_all = ["token", "permit", "all", "done"])]
    pub(crate) owner: Option<String>,
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
    /// Do not ask; needed if there is no terminal to ask at
    #[arg(long, short)]
    pub(crate) yes: bool,
}

const RELEASE_HELP: &str = "\
The hold that is seen is released, and no later one. Its holder goes on until its next renewal (a third of its expiry): \
until then two may work under the lock. Setting `expiresAt` by hand would be undone by that renewal.

--token compares the token in the document. A process whose waiters hand the lock over among themselves leaves that token \
unchanged, so the token also fits the next holder in the same process.

At a terminal the command asks first, and --yes answers. Without a terminal it needs --yes.

Exit codes: 0 all that was asked for is released; 1 nothing released (no such lock, not held, another token, the answer is \
no), or not all of it, as a line says; 2 wrong command line; 125 failed, also if nobody can be asked.

Examples:
  mongolock release report:42
  mongolock release report:42 --token 1763764800123000
  mongolock release export --permit 2
  mongolock release nightly --done
  mongolock release --owner web-3:4711 --yes              in a script";

/// What `watch` shows.
#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    /// Only names that begin with this text
    pub(crate) prefix: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

const WATCH_HELP: &str = "\
The changes are acquired, released, taken over, expired, deleted, damaged, done and waiting. It needs a replica set and the \
right to open change streams, on the collection of the locks and on that of the waiters.

  - The server tells no expiry: it is computed with the server's clock, which is read every 10s, and checked by a read \
    of the lock.
  - A forced release looks like a release.
  - A document that cannot be read as a lock any more is `damaged`; that is noticed when its lease would end.
  - The changes of locks and those of waiters have no common order.
  - Waiters of one process that hand a lock over among themselves do not appear: the document stays as it is.
  - If events are missed, a line says so (`gap`), and the locks are read again.
  - A line says when no primary answers any more (`gone`), and another one when one answers again (`back`).

Fields of --json:
  at               RFC 3339, UTC, by the server's clock, when the change was seen
  event            acquired, released, taken_over, expired, deleted, damaged, done, waiting, gap, gone or back
  name             text; not for gap, gone and back
  permit           number of the permit; only for permits
  owner            text; the owner that has the lock, or had it last, or waits; left out if unknown
  previous_owner   text; only for taken_over, if known
  fencing_token    number; left out for permits, and if unknown
  problem          text; only for gone

Examples:
  mongolock watch report:
  mongolock watch --json | jq -r 'select(.event == \"expired\") | .name'";

/// What `top` shows.
#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// Only names that begin with this text
    pub(crate) prefix: Option<String>,
    /// Only locks of this owner
    #[arg(long, value_name = "OWNER")]
    pub(crate) owner: Option<String>,
    /// The order at the start
    #[arg(long, value_name = "COLUMN", default_value = "waiters")]
    pub(crate) sort: Column,
}

const TOP_HELP: &str = "\
The locks that are held are read once a second, 10,000 at most. The waiters are listed in their order.

Keys:
  q, Ctrl-C    quit
  s, r         the next column decides the order; the other direction
  arrows       the cursor; also Page Up, Page Down, Home and End
  Enter        details of the lock at the cursor; Enter or Esc goes back
  /            filter: the text that follows is part of the name, the holder or a waiter; Enter keeps it, Esc clears it

It needs a terminal for its input and its output.

Examples:
  mongolock top
  mongolock top report: --sort age";

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

const DOCTOR_HELP: &str = "\
Each finding is ok, wrong, or unknown (this user has no right to see it), with the command that mends it. The command only \
reads. The exit code is 1 if a finding is wrong.

Fields of --json:
  check     text, such as `privileges`
  state     ok, wrong or unknown
  finding   text
  mend      text: a command, for mongosh unless it says otherwise; left out if there is nothing to mend. A standalone \
    server is ok, with the command that makes it a replica set

Example:
  mongolock doctor --json | jq 'select(.state != \"ok\")'";

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

    /// Clap breaks the lines where the terminal ends; a break inside a paragraph would come on top of that.
    #[test]
    fn no_paragraph_of_a_help_has_line_breaks() {
        let texts = [
            TABLE,
            EXAMPLES,
            RUN_HELP,
            LS_HELP,
            SHOW_HELP,
            RELEASE_HELP,
            WATCH_HELP,
            TOP_HELP,
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
