use std::io;
use std::time::Duration;

use mongodb::error::{Error, ErrorKind};

use super::no_server;
use crate::LockError;
use crate::duration::Rounded;

/// The kind of the error for a server that this version of the driver does not use.
const UNUSABLE: io::ErrorKind = io::ErrorKind::Unsupported;

/// What is said about a log-in that the server has refused.
pub(super) const REFUSED_LOG_IN: &str = "MongoDB refused the login";

/// A failure that this library has found itself. It travels inside an I/O error of the driver, so that
/// [`LockError::Mongo`] holds every failure of MongoDB.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A request without any reply.
    #[error("MongoDB did not answer the {request} within {}", Rounded(*waited))]
    NoReply { request: String, waited: Duration },
    /// A request without an outcome, while the server rejects commands for overload.
    #[error("MongoDB is overloaded: no outcome of the {request} within {}", Rounded(*waited))]
    Overloaded { request: String, waited: Duration },
    /// No server of the deployment can be reached or used.
    #[error("{}", no_server::of_selection(servers))]
    Unreachable {
        /// The driver's text about its servers.
        servers: String,
        kind: io::ErrorKind,
        /// Whether the request was not sent.
        is_unsent: bool,
    },
    /// No server belongs to the replica set that the connection string names, or its hosts belong to two replica sets, so that each
    /// process works with one of them by chance.
    #[error("{said}")]
    WrongHosts { said: String, is_unsent: bool },
    /// The runtime of the client has ended: the tasks of the driver ended with it.
    #[error("the MongoDB client belongs to a tokio runtime that has ended")]
    EndedRuntime,
    /// A task that ended with its runtime before the reply: the outcome of its request is not known.
    #[error("the tokio runtime ended before MongoDB answered")]
    RuntimeEnded,
    /// A command that was in flight when its provider ended, or that came later: its outcome is not known.
    #[error("the provider was shut down before MongoDB answered")]
    Closed,
    /// A call of a process that was made by `fork` after its provider.
    #[error("the provider belongs to the process that has forked this one")]
    Forked,
    /// A command that ran out of time or into a conflict at the document of a lock, while MongoDB works.
    #[error("an open transaction or another long operation blocks the document of lock `{name}`")]
    BlockedDocument { name: String, source: Error },
    /// A hold whose end MongoDB has not confirmed, or has refused.
    #[error("{}", unended(*end, name, *left))]
    Unended {
        end: HoldEnd,
        name: String,
        /// The time for which the lock stays taken at most, if no other command ends it.
        left: Duration,
        source: LockError,
    },
    /// A change stream whose collection was dropped or renamed.
    #[error("the change stream ended with its collection")]
    StreamEnded,
    /// A change stream of locks in memory.
    #[error("locks in memory have no change streams")]
    NoStreams,
    /// A connection string that the driver does not accept.
    #[error("the MongoDB connection string is invalid: {reason}")]
    ConnectionString { reason: String, help: &'static str },
}

/// How a hold should have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    Mark,
    /// By a mark, which MongoDB has refused for good: the lock is released.
    Refused,
    Detach,
}

impl Failure {
    pub(crate) fn no_reply(request: &str, waited: Duration) -> Self {
        Self::NoReply {
            request: request.to_owned(),
            waited,
        }
    }

    /// The failure for a server that the driver refuses to use, as it says when it selects a server.
    pub(super) fn of_unusable_server(error: &Error) -> Option<Self> {
        let ErrorKind::ServerSelection { message, .. } = &*error.kind else {
            return None;
        };
        message.starts_with("Server at ").then(|| Self::Unreachable {
            servers: message.clone(),
            kind: UNUSABLE,
            is_unsent: true,
        })
    }

    /// The failure inside an error of the driver, if this library has made that error.
    pub(crate) fn of(error: &Error) -> Option<&Self> {
        match &*error.kind {
            ErrorKind::Io(error) => error.get_ref()?.downcast_ref(),
            _ => None,
        }
    }

    /// The error for callers. It is not a `From`, because the compiler would list that to users among the errors that
    /// `?` converts.
    pub(crate) fn into_error(self) -> LockError {
        LockError::Mongo(io::Error::new(self.io_kind(), self).into())
    }

    /// Whether another attempt may succeed without intervention.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::WrongHosts { .. }
            | Self::EndedRuntime
            | Self::Forked
            | Self::NoStreams
            | Self::Unreachable { kind: UNUSABLE, .. } => false,
            Self::NoReply { .. }
            | Self::Overloaded { .. }
            | Self::Unreachable { .. }
            | Self::RuntimeEnded
            | Self::Closed
            | Self::BlockedDocument { .. }
            | Self::Unended { .. }
            | Self::StreamEnded
            | Self::ConnectionString { .. } => true,
        }
    }

    /// Whether the request was not sent.
    pub(crate) fn is_unsent(&self) -> bool {
        match self {
            Self::Unreachable { is_unsent, .. } | Self::WrongHosts { is_unsent, .. } => *is_unsent,
            Self::EndedRuntime => true,
            _ => false,
        }
    }

    fn io_kind(&self) -> io::ErrorKind {
        match self {
            Self::NoReply { .. } | Self::Overloaded { .. } => io::ErrorKind::TimedOut,
            Self::Unreachable { kind, .. } => *kind,
            Self::ConnectionString { .. } | Self::WrongHosts { .. } => io::ErrorKind::InvalidInput,
            Self::RuntimeEnded
            | Self::EndedRuntime
            | Self::Closed
            | Self::Forked
            | Self::BlockedDocument { .. }
            | Self::Unended { .. }
            | Self::StreamEnded
            | Self::NoStreams => io::ErrorKind::Other,
        }
    }
}

fn unended(end: HoldEnd, name: &str, left: Duration) -> String {
    let taken = match left {
        Duration::ZERO => "the lock is no longer taken".to_owned(),
        left => format!("the lock stays taken for at most {}", Rounded(left)),
    };
    match end {
        HoldEnd::Mark => {
            format!("MongoDB did not confirm the mark of lock `{name}`, so its work will run again; {taken}")
        }
        HoldEnd::Refused => {
            format!(
                "MongoDB refused the mark of lock `{name}`, so its work will run again; the lock is released"
            )
        }
        HoldEnd::Detach => format!("MongoDB did not confirm the detachment of lock `{name}`; {taken}"),
    }
}

impl LockError {
    /// The error for a request without any reply: the lock is not known to be held.
    pub(crate) fn no_reply(request: &str, waited: Duration) -> Self {
        Failure::no_reply(request, waited).into_error()
    }
}
