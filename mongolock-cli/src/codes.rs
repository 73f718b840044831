//! The server's codes of the errors that the program distinguishes, and the advice for a change stream that is refused.

use mongodb::error::{Error, ErrorKind, WriteFailure};

/// A missing privilege.
pub(crate) const UNAUTHORIZED: i32 = 13;

/// A command that has taken longer than its limit.
pub(crate) const TIME_LIMIT: i32 = 50;

/// A change stream that would begin before the oplog.
pub(crate) const HISTORY_LOST: i32 = 286;

/// A deployment without change streams: a standalone server.
pub(crate) const NO_STREAMS: i32 = 40573;

/// The code of an error with which the server has replied to a command.
pub(crate) fn code(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(error) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteError(error)) => Some(error.code),
        _ => None,
    }
}

/// The advice if a change stream on these collections is refused; `None` for an error that does not concern streams.
pub(crate) fn stream_help(error: &Error, collections: &str) -> Option<String> {
    match code(error)? {
        NO_STREAMS => Some("Change streams need a replica set or a sharded cluster.".to_owned()),
        UNAUTHORIZED => Some(format!("Grant `find` and `changeStream` on {collections}.")),
        _ => None,
    }
}
