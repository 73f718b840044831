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
    #[error("MongoDB did not answer the {request} within {}{note}", Rounded(*waited))]
    NoReply {
        request: String,
        waited: Duration,
        /// What is known of the connections, with its own punctuation; empty if nothing is.
        note: String,
    },
    /// A request without an outcome, while the server rejects commands for overload.
    #[error("MongoDB is overloaded: no outcome of the {request} within {}", Rounded(*waited))]
    Overloaded { request: String, waited: Duration },
    /// No server of the deployment can be reached or used.
    #[error("{}", no_server::said(address, reason, *others))]
    Unreachable {
        /// The address of the server whose heartbeat failed last.
        address: String,
        /// Why that heartbeat failed.
        reason: String,
        kind: io::ErrorKind,
        /// The number of other servers, which cannot be reached either.
        others: usize,
        /// Whether the request was not sent.
        is_unsent: bool,
    },
    /// No server can be reached that has a replica set: this one was started as a member and waits for its first
    /// configuration.
    #[error("MongoDB at {address} has no replica set yet")]
    NoSet { address: String, is_unsent: bool },
    /// The last log-in was refused, and there was no reply to a request since.
    #[error("{REFUSED_LOG_IN}")]
    RefusedLogIn { source: Error },
    /// No server belongs to the replica set that the connection string names.
    #[error("MongoDB at {address} belongs to {}; the connection string names `{named}`", set(found.as_deref()))]
    WrongSet {
        address: String,
        /// The set that the server belongs to, if it is a member of one.
        found: Option<String>,
        /// The set that the connection string names.
        named: String,
    },
    /// The hosts of the connection string belong to two replica sets, so that each process works with one of them by chance.
    #[error(
        "the connection string names two replica sets: {member} belongs to `{joined}`, and {address} to {}",
        other(set, joined)
    )]
    TwoSets {
        /// A member of the set that this client works with, and the name of the set.
        member: String,
        joined: String,
        /// The host that belongs to the other set, and the name of that one.
        address: String,
        set: String,
        is_unsent: bool,
    },
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
            note: String::new(),
        }
    }

    /// The failure for a server that the driver refuses to use, as it says when it selects a server.
    pub(super) fn of_unusable_server(error: &Error) -> Option<Self> {
        let ErrorKind::ServerSelection { message, .. } = &*error.kind else {
            return None;
        };
        let (address, reason) = message.strip_prefix("Server at ")?.split_once(' ')?;
        Some(Self::Unreachable {
            address: address.to_owned(),
            reason: reason.to_owned(),
            kind: UNUSABLE,
            others: 0,
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
            Self::RefusedLogIn { .. }
            | Self::WrongSet { .. }
            | Self::TwoSets { .. }
            | Self::EndedRuntime
            | Self::Forked
            | Self::NoStreams
            | Self::Unreachable { kind: UNUSABLE, .. } => false,
            Self::NoReply { .. }
            | Self::Overloaded { .. }
            | Self::Unreachable { .. }
            | Self::NoSet { .. }
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
            Self::Unreachable { is_unsent, .. }
            | Self::NoSet { is_unsent, .. }
            | Self::TwoSets { is_unsent, .. } => *is_unsent,
            Self::WrongSet { .. } | Self::EndedRuntime => true,
            _ => false,
        }
    }

    fn io_kind(&self) -> io::ErrorKind {
        match self {
            Self::NoReply { .. } | Self::Overloaded { .. } => io::ErrorKind::TimedOut,
            Self::Unreachable { kind, .. } => *kind,
            Self::NoSet { .. } => io::ErrorKind::NotConnected,
            Self::ConnectionString { .. } | Self::WrongSet { .. } | Self::TwoSets { .. } => {
                io::ErrorKind::InvalidInput
            }
            Self::RefusedLogIn { .. } => io::ErrorKind::PermissionDenied,
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

fn set(found: Option<&str>) -> String {
    found.map_or_else(
        || "no replica set".to_owned(),
        |name| format!("the replica set `{name}`"),
    )
}

/// The other one of two sets, which may have the same name.
fn other(set: &str, joined: &str) -> String {
    if set == joined {
        "another set of that name".to_owned()
    } else {
        format!("`{set}`")
    }
}

impl LockError {
    /// The error for a request without any reply: the lock is not known to be held.
    pub(crate) fn no_reply(request: &str, waited: Duration) -> Self {
        Failure::no_reply(request, waited).into_error()
    }
}
