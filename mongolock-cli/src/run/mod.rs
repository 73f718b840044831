//! `run`: a command under a lock.
//!
//! There are three processes. `run` holds the lock and renews it. The guardian leads the process group of the command
//! and ends the group when its time limits pass or when `run` ends. The command starts as this same program, which ties
//! itself to `run` and then executes the command.

mod children;
mod deadline;
mod ending;
mod events;
mod exec;
mod group;
mod guardian;
mod messages;
#[cfg(target_os = "linux")]
mod namespace;
mod notices;
mod renewals;
mod resumed;
mod supervisor;
mod terminal;
mod timer;

use std::ffi::OsString;

use rustix::process::{Signal, kill_current_process_group};

pub(crate) use self::exec::exec;

use self::children::Status;
use self::deadline::LeaseClock;
use self::ending::CommandLease;
use self::events::Failures;
use self::resumed::Resumed;
use self::supervisor::Supervisor;
use crate::acquire::{self, PASSED_ON, Signals, close, inside, unless_interrupted};
use crate::cli::{ConnectionArguments, GuardArguments, RunArguments};
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::input;

/// The command that is to be run.
struct Errand<'a> {
    command: &'a [OsString],
    /// The variables that the command gets, or does not get.
    environment: Vec<(&'static str, Option<String>)>,
}

/// How the command has ended.
struct CommandEnd {
    /// `None` if it could not be killed, or was not started.
    status: Option<Status>,
    verdict: Verdict,
    /// The signals that were passed on to it.
    received: Vec<Signal>,
    /// The signals that arrive after its end.
    signals: Signals,
}

/// Why the command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// By itself, or by the signal of another process.
    Own,
    /// Its lock was lost, or its lease was about to end.
    Lost,
    /// This program has failed.
    Failed(&'static str),
    /// The number of processes that SIGKILL has not ended.
    Unkillable(usize),
}

/// The guardian of a command; it ends by killing its group.
pub(crate) fn guard(arguments: &GuardArguments) -> Result<Exit, Failure> {
    match guardian::guard(arguments)? {}
}

/// Runs a command under a lock.
pub(crate) fn run(arguments: &RunArguments, connection: &ConnectionArguments) -> Result<Exit, Failure> {
    if connection.uri_file.as_deref().is_some_and(input::is_standard) {
        return Err(
            Failure::new("--uri-file - is refused: standard input belongs to the command")
                .help("Put the connection string into MONGODB_URI, or name a file."),
        );
    }
    acquire::in_runtime(run_under_lock(arguments, connection))
}

async fn run_under_lock(arguments: &RunArguments, connection: &ConnectionArguments) -> Result<Exit, Failure> {
    let resumed = Resumed::read(arguments)?;
    let mut signals = Signals::new(&PASSED_ON).map_err(Failure::io("cannot receive signals"))?;
    let provider = connection.builder().await?.expiry(arguments.expiry).build()?;
    let clock = LeaseClock::new(arguments.expiry);
    let failures = Failures::listen();
    let acquired = unless_interrupted(&mut signals, async {
        match &resumed {
            Some(resumed) => resumed.resume(&provider).await,
            None => acquire::acquire(&provider, &arguments.wanted, arguments.once_per, connection).await,
        }
    });
    let ending = match acquired.await {
        Ok(hold) => {
            let names = resumed.as_ref().map(Resumed::names);
            let lease = CommandLease {
                hold,
                names: names.unwrap_or_else(|| arguments.wanted.names.clone()),
                resumed,
                provider: provider.clone(),
                failures: failures.clone(),
                expiry: arguments.expiry,
            };
            run_with(lease, clock, failures, signals, &arguments.command).await
        }
        Err(failure) => Err(failure),
    };
    close(&provider).await;
    ending
}

async fn run_with(
    lease: CommandLease,
    clock: LeaseClock,
    failures: Failures,
    signals: Signals,
    command: &[OsString],
) -> Result<Exit, Failure> {
    become_subreaper();
    let errand = Errand {
        command,
        environment: vec![
            inside::variable(&lease.hold, &lease.names),
            ("MONGOLOCK_NAME", Some(lease.names.join(","))),
            ("MONGOLOCK_TOKEN", tokens(&lease)),
        ],
    };
    let ran = match Supervisor::start(&lease.hold, clock, failures, signals) {
        Ok(supervisor) => supervisor
            .run(&errand)
            .await
            .map_err(Failure::io("cannot start the command")),
        Err(error) => Err(Failure::new(format!("cannot start the guardian: {error}"))),
    };
    let outcome = match ran {
        Ok(outcome) => outcome,
        Err(failure) => {
            // Nothing has run.
            let mut signals = Signals::new(&PASSED_ON).map_err(Failure::io("cannot receive signals"))?;
            lease.end_after_failure(&mut signals).await;
            return Err(failure);
        }
    };
    finish(lease, outcome).await
}

/// The fencing tokens in the order of the names; `None` for a permit.
fn tokens(lease: &CommandLease) -> Option<String> {
    let tokens: Option<Vec<String>> = lease
        .names
        .iter()
        .map(|name| Some(lease.hold.context.fencing_token_of(name)?.to_string()))
        .collect();
    Some(tokens?.join(","))
}

/// Ends the hold as the outcome says, and finds the exit code.
async fn finish(lease: CommandLease, mut outcome: CommandEnd) -> Result<Exit, Failure> {
    let has_succeeded = outcome.status == Some(Status::Exited(0)) && outcome.verdict == Verdict::Own;
    match outcome.verdict {
        Verdict::Unkillable(number) => {
            let failure = Failure::new(format!(
                "{number} of the command's processes cannot be killed; the lock is not released, and expires by itself"
            ));
            failure.print();
            // Dropping the hold or its provider would release the lock.
            std::process::exit(exit::FAILED.into());
        }
        Verdict::Lost => {
            let reason = lease.hold.context.ensure_held().err();
            let reason = reason.map(|error| format!(": {error}"));
            let end = match outcome.status {
                Some(_) => "and the command was ended",
                None => "and the command was not started",
            };
            let lost = format!("the lock was lost, {end}{}", reason.unwrap_or_default());
            return Err(Failure::new(lost).code(exit::LOST));
        }
        Verdict::Failed(reason) => {
            lease.end_after_failure(&mut outcome.signals).await;
            return Err(Failure::new(reason));
        }
        Verdict::Own => {}
    }
    let ending = own_ending(&outcome);
    match lease.end(has_succeeded, &mut outcome.signals).await {
        Err(failure) if has_succeeded => Err(failure),
        // The caller has to know the exit code of the command.
        Err(failure) => {
            failure.print();
            Ok(ending)
        }
        Ok(()) => Ok(ending),
    }
}

/// The exit code of a command that has ended by itself.
fn own_ending(outcome: &CommandEnd) -> Exit {
    let number = match outcome.status {
        Some(Status::Exited(code)) => return Exit::Code(code),
        Some(Status::Killed(number)) => number,
        None => return Exit::Code(exit::FAILED),
    };
    let interrupt = [Signal::INT, Signal::QUIT]
        .into_iter()
        .find(|signal| signal.as_raw() == number);
    let Some(signal) = interrupt else {
        return Exit::of_signal(number);
    };
    // At a terminal only the group of the command has got the signal. A shell ends its loop if it gets the signal, too,
    // and sees that the signal has ended its child.
    if !outcome.received.contains(&signal) {
        let _ = kill_current_process_group(signal);
    }
    Exit::Signal(signal)
}

/// Orphans of the command become children of this process, which reaps them, so that zombies do not accumulate if the
/// first process of a container does not reap them.
fn become_subreaper() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}
