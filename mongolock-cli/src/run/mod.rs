//! `run`: a command under a lock.
//!
//! Three processes take part. `run` holds the lock and renews it. The guardian leads the process group of the command and
//! ends it when its limits pass or when `run` ends. The command starts as this same program, which ties it to `run` and then
//! becomes the command.

mod busy;
mod children;
mod deadline;
mod exec;
mod group;
mod guardian;
mod hold;
mod messages;
#[cfg(target_os = "linux")]
mod namespace;
mod notices;
mod progress;
mod renewals;
mod signals;
mod supervisor;
mod terminal;
mod timer;

use std::ffi::OsString;
use std::path::Path;

use mongolock::{LockError, LockProvider};
use rustix::process::{Signal, kill_current_process_group};
use tokio::time::timeout;

pub(crate) use self::exec::exec;

use self::children::Status;
use self::deadline::LeaseClock;
use self::hold::Hold;
use self::renewals::Failures;
use self::signals::{PASSED_ON, Signals};
use self::supervisor::Supervisor;
use crate::cli::{ConnectionArguments, GuardArguments, RunArguments};
use crate::connection::CLOSING_LIMIT;
use crate::exit::{self, Ending};
use crate::failure::{Failure, warn};

/// What an acquisition has brought.
enum Acquired {
    Hold(Hold),
    /// The work of the period is done, as the error says.
    Done(LockError),
}

/// What is to be run.
struct Errand<'a> {
    command: &'a [OsString],
    /// The variables that the command gets, or does not get.
    environment: Vec<(&'static str, Option<String>)>,
}

/// How the command has ended.
struct Outcome {
    /// `None` if it could not be killed, or was not started.
    status: Option<Status>,
    verdict: Verdict,
    /// The signals that were passed on to it.
    received: Vec<Signal>,
}

/// Why the command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// By itself, or by the signal of another process.
    Own,
    /// Its lock was lost, or nearly so.
    Lost,
    /// This program has failed.
    Failed(&'static str),
    /// So many processes are left that SIGKILL has not ended.
    Unkillable(usize),
}

/// The guardian of a command; it ends by killing its group.
pub(crate) fn guard(arguments: &GuardArguments) -> Result<Ending, Failure> {
    match guardian::guard(arguments)? {}
}

/// Runs a command under a lock.
pub(crate) fn run(arguments: &RunArguments, connection: &ConnectionArguments) -> Result<Ending, Failure> {
    if arguments.names.len() > 1 && (arguments.permits.is_some() || arguments.once_per.is_some()) {
        return Err(Failure::new("--permits and --once-per take one name"));
    }
    if connection.uri_file.as_deref() == Some(Path::new("-")) {
        return Err(
            Failure::new("--uri-file - is refused: standard input belongs to the command")
                .help("Put the connection string into MONGODB_URI, or name a file."),
        );
    }
    // The renewals have a thread of their own. The main thread starts the command, because on Linux the command ends with
    // the thread that has started it.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(Failure::io("cannot start"))?;
    let ending = runtime.block_on(run_under_lock(arguments, connection));
    // Requests that are still under way must not delay the end.
    runtime.shutdown_background();
    ending
}

async fn run_under_lock(
    arguments: &RunArguments,
    connection: &ConnectionArguments,
) -> Result<Ending, Failure> {
    let mut signals = Signals::new(&PASSED_ON).map_err(Failure::io("cannot receive signals"))?;
    let builder = connection.builder().await?.expiry(arguments.expiry);
    let provider = builder.build()?;
    let clock = LeaseClock::new(arguments.expiry);
    let failures = Failures::listen();
    let acquiring = async {
        // The time of `--wait` is for the lock, and not for the connection. If no server answers, the acquisition says why.
        provider.is_ready().await;
        match Hold::acquire(&provider, arguments).await {
            Ok(Some(hold)) => Ok(Acquired::Hold(hold)),
            Ok(None) => Err(busy::failure(&provider, arguments, connection, None).await),
            Err(done @ LockError::Done { .. }) => Ok(Acquired::Done(done)),
            Err(error @ (LockError::Timeout { .. } | LockError::Busy { .. })) => {
                Err(busy::failure(&provider, arguments, connection, Some(error)).await)
            }
            Err(error) => Err(error.into()),
        }
    };
    let acquired = tokio::select! {
        acquired = progress::shown(&provider, arguments, acquiring) => acquired,
        signal = signals.next() => {
            close(&provider).await;
            return Ok(interrupted(signal));
        }
    };
    let ending = match acquired {
        Ok(Acquired::Hold(hold)) => run_with(hold, clock, failures, signals, arguments).await,
        Ok(Acquired::Done(done)) => {
            warn(format_args!("{done}; the command was not run"));
            Ok(Ending::OK)
        }
        Err(failure) => Err(failure),
    };
    close(&provider).await;
    ending.map_err(|failure| match failure.ending() {
        Ending::Code(exit::BUSY) => failure.code(arguments.busy_code),
        _ => failure,
    })
}

/// The end of `run` by a signal that it got while it was waiting.
fn interrupted(signal: Signal) -> Ending {
    match signal {
        Signal::INT | Signal::QUIT => Ending::Signal(signal),
        signal => Ending::of_signal(signal.as_raw()),
    }
}

async fn run_with(
    hold: Hold,
    clock: LeaseClock,
    failures: Failures,
    signals: Signals,
    arguments: &RunArguments,
) -> Result<Ending, Failure> {
    become_subreaper();
    let errand = Errand {
        command: &arguments.command,
        environment: vec![
            ("MONGOLOCK_NAME", Some(arguments.names.join(","))),
            ("MONGOLOCK_TOKEN", hold.tokens(&arguments.names)),
        ],
    };
    let ran = match Supervisor::start(&hold, clock, failures, signals) {
        Ok(supervisor) => supervisor
            .run(&errand)
            .await
            .map_err(Failure::io("cannot start the command")),
        Err(error) => Err(Failure::new(format!("cannot start the guardian: {error}"))),
    };
    let outcome = match ran {
        Ok(outcome) => outcome,
        Err(failure) => {
            // Nothing has run. If the release fails, the lease expires.
            let _ = hold.finish(false).await;
            return Err(failure);
        }
    };
    finish(hold, &outcome).await
}

/// Ends the hold as the outcome says, and finds the exit code.
async fn finish(hold: Hold, outcome: &Outcome) -> Result<Ending, Failure> {
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
            let reason = hold.ensure_held().err().map(|error| format!(": {error}"));
            let _ = timeout(CLOSING_LIMIT, hold.finish(false)).await;
            let end = match outcome.status {
                Some(_) => "and the command was ended",
                None => "and the command was not started",
            };
            let lost = format!("the lock was lost, {end}{}", reason.unwrap_or_default());
            return Err(Failure::new(lost).code(exit::LOST));
        }
        Verdict::Failed(reason) => {
            let _ = hold.finish(false).await;
            return Err(Failure::new(reason));
        }
        Verdict::Own => {}
    }
    let ending = own_ending(outcome);
    let marks = has_succeeded && hold.is_once();
    match hold.finish(has_succeeded).await {
        Ok(()) => Ok(ending),
        Err(error @ LockError::Lost { .. }) if has_succeeded => {
            Err(Failure::new(error.to_string()).code(exit::LOST))
        }
        // Without the mark the work may run again.
        Err(error) if marks => Err(Failure::new(format!(
            "the command has succeeded, but is not marked as done: {error}"
        ))),
        // What the command has done says more: the lock was held to its end.
        Err(error) => {
            warn(format_args!(
                "the lock was not released, and expires by itself: {error}"
            ));
            Ok(ending)
        }
    }
}

/// The exit code of a command that has ended by itself.
fn own_ending(outcome: &Outcome) -> Ending {
    let number = match outcome.status {
        Some(Status::Exited(code)) => return Ending::Code(code),
        Some(Status::Killed(number)) => number,
        None => return Ending::Code(exit::FAILED),
    };
    let interrupt = [Signal::INT, Signal::QUIT]
        .into_iter()
        .find(|signal| signal.as_raw() == number);
    let Some(signal) = interrupt else {
        return Ending::of_signal(number);
    };
    // At a terminal only the group of the command has got the signal. A shell that runs a loop ends it if it gets the
    // signal, too, and sees that its child has died of it.
    if !outcome.received.contains(&signal) {
        let _ = kill_current_process_group(signal);
    }
    Ending::Signal(signal)
}

/// Orphans of the command become children of this process, which reaps them, so that no zombies pile up where the first
/// process of a container does not.
fn become_subreaper() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Ends the connections; a server that does not answer delays the end for a moment only.
async fn close(provider: &LockProvider) {
    let _ = timeout(CLOSING_LIMIT, provider.shutdown()).await;
}
