//! The failure of a command: its message, and the exit code of the program.

use std::error::Error;
use std::fmt::{self, Display};
use std::io;

use mongodb::error::{Error as DriverError, ErrorKind};
use mongolock::LockError;

use crate::codes::stream_help;
use crate::driver;
use crate::exit::{self, Exit};
use crate::text::escaped;

/// The advice for a handle that cannot be used.
const HANDLE: &str = "Use all of the line that `acquire` has written, with the database and the collection of its locks \
    (--database, --collection).";

/// The advice for a database that cannot have locks.
const DATABASE: &str = "Name a database of the application: --database app, or mongodb://host/app?authSource=admin, where \
    authSource says where the user is.";

/// Words that occur only in advice for programs in Rust.
const OF_RUST: [&str; 3] = ["source()", "acquire_timeout", "LockProvider"];

/// The advice for a failure of MongoDB for which the library has only advice for programs.
const DOCTOR: &str =
    "`mongolock doctor` says what is wrong with the connection, the deployment and the rights.";

/// A failure of a command.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    help: Option<String>,
    ending: Exit,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
            ending: Exit::Code(exit::FAILED),
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The failure of a command that reads a change stream on these collections.
    pub(crate) fn of_stream(error: LockError, what: &str, collections: &str) -> Self {
        let help = match &error {
            LockError::Mongo(error) => stream_help(error, collections),
            _ => None,
        };
        let failure = Self::from(error);
        match help {
            Some(help) => Self::new(format!("cannot {what}: {failure}")).help(help),
            None => failure,
        }
    }

    pub(crate) fn code(self, code: u8) -> Self {
        self.with(Exit::Code(code))
    }

    pub(crate) fn with(mut self, ending: Exit) -> Self {
        self.ending = ending;
        self
    }

    /// For `map_err`: the failure of a system call, after the words that say what failed.
    pub(crate) fn io<E: Display>(what: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self::new(format!("{what}: {error}"))
    }

    /// If the reader of the output has ended, that is not a failure: the command ends without a message.
    pub(crate) fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new("").with(Exit::OK);
        }
        Self::new(format!("cannot write the output: {error}"))
    }

    pub(crate) fn ending(&self) -> Exit {
        self.ending
    }

    /// Prints the failure on standard error.
    pub(crate) fn print(&self) {
        if self.message.is_empty() {
            return;
        }
        warn(&self.message);
        if let Some(help) = &self.help {
            warn(format_args!("help: {help}"));
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let message = match &error {
            // An I/O error may be one that the library has found itself.
            LockError::Mongo(cause) if !matches!(&*cause.kind, ErrorKind::Io(_)) => driver::text(cause),
            _ => with_causes(&error),
        };
        let help = error.help();
        match error {
            // The options of the library, by their names at the shell.
            LockError::InvalidOption {
                option, value, bound, ..
            } if at_shell(option).is_some() => {
                let option = at_shell(option).unwrap_or(option);
                Self::new(format!("{option} is {value}: {bound}"))
            }
            LockError::InvalidOption {
                option: "database",
                value,
                bound,
                ..
            } => Self::new(format!("the database is {value}: {bound}")).help(DATABASE),
            LockError::Timeout { .. } | LockError::Busy { .. } => Self::new(message).code(exit::BUSY),
            LockError::Lost { .. } => Self::new(message).code(exit::LOST),
            LockError::InvalidHandle { .. } => Self::new(message).help(HANDLE),
            LockError::Mongo(_) if OF_RUST.iter().any(|word| help.contains(word)) => {
                Self::new(message).help(DOCTOR)
            }
            _ => Self::new(message).help(help),
        }
    }
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        LockError::from(error).into()
    }
}

/// The option of `run` that sets an option of the library.
fn at_shell(option: &str) -> Option<&'static str> {
    match option {
        "acquire_timeout" => Some("--wait"),
        "once_per" => Some("--once-per"),
        "expiry" => Some("--expiry"),
        "permits" => Some("--permits"),
        "retention" => Some("--retention"),
        _ => None,
    }
}

/// Prints a line on standard error. An error of the write is dropped.
pub(crate) fn warn(line: impl Display) {
    use std::io::Write;
    let line = line.to_string();
    let _ = writeln!(io::stderr(), "mongolock: {}", escaped(&line));
}

/// The error and those causes that its text does not repeat.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // The driver's text has its own causes.
        let (said, next) = match error.downcast_ref::<DriverError>() {
            Some(error) => (driver::text(error), None),
            None => (error.to_string(), error.source()),
        };
        if said.contains(&text) {
            text = said;
        } else if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next;
    }
    text
}
