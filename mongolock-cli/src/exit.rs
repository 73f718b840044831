//! The exit codes, which `mongolock help run` and `mongolock help` list.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use rustix::process::{Resource, Rlimit, Signal, getpid, setrlimit};

/// There is no such lock, nothing was released, or `doctor` has found something wrong.
pub(crate) const NO: u8 = 1;
/// The command line is wrong. `run` uses [`FAILED`] for it, since a command has codes of its own.
pub(crate) const USAGE: u8 = 2;
/// Others hold the lock; `run -E` sets another code.
pub(crate) const BUSY: u8 = 75;
/// The lock was lost, or the lease of a handle is over.
pub(crate) const LOST: u8 = 124;
/// This program could not do its work.
pub(crate) const FAILED: u8 = 125;
/// The command of `run` cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command of `run` was not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// The code of a command that a signal has ended, less the number of the signal.
const SIGNALLED: u8 = 128;

/// How this program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(u8),
    /// By this signal, so that a shell that runs a loop stops, too.
    Signal(Signal),
}

impl Exit {
    pub(crate) const OK: Self = Self::Code(0);

    /// The end of `run` if a signal has ended its command.
    pub(crate) fn of_signal(number: i32) -> Self {
        let number = u8::try_from(number).unwrap_or(0);
        Self::Code(SIGNALLED.saturating_add(number))
    }

    pub(crate) fn exit(self) -> ExitCode {
        match self {
            Self::Code(code) => ExitCode::from(code),
            Self::Signal(signal) => end_by(signal),
        }
    }
}

fn end_by(signal: Signal) -> ExitCode {
    // The first process of a PID namespace ignores the default actions of its own signals.
    if getpid().is_init() {
        return Exit::of_signal(signal.as_raw()).exit();
    }
    // SIGQUIT would write a core dump of this program, which has not failed.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    // It returns only if the default action cannot be restored; the code says the same to a shell.
    let _ = signal_hook::low_level::emulate_default_handler(signal.as_raw());
    Exit::of_signal(signal.as_raw()).exit()
}

/// Prints what is wrong with the command line, or the help that it asks for.
pub(crate) fn usage(mut error: clap::Error, is_run: bool) -> ExitCode {
    // The tip of the parser puts `--` before a name, and there the command of `run` begins.
    if is_run && error.kind() == ErrorKind::UnknownArgument {
        let tip = "for a lock whose name begins with a dash, write --name=NAME".to_owned();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    // A pipe without a reader changes nothing.
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    ExitCode::from(if is_run { FAILED } else { USAGE })
}
