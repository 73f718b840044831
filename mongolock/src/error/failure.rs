use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use mongodb::error::{Error, ErrorKind};

use super::meaning::Meaning;
use super::no_server;
use crate::duration::Rounded;
use crate::{LockError, permit_id};

/// A failure that this library has found itself. It is wrapped in an I/O error of the driver, so that
/// [`LockError::Mongo`] holds every failure of MongoDB.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    pub(super) meaning: Meaning,
    text: String,
    pub(super) help: &'static str,
    io: io::ErrorKind,
    /// Whether the request was not sent.
    pub(super) is_unsent: bool,
    pub(super) source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Meaning {
    /// The error of a failure that this library has found itself, without further details.
    pub(crate) fn error(self) -> LockError {
        Failure::new(self, self.fact()).into_error()
    }
}

impl Failure {
    fn new(meaning: Meaning, text: impl Into<String>) -> Self {
        Self {
            meaning,
            text: text.into(),
            help: meaning.help(),
            io: meaning.io(),
            is_unsent: meaning == Meaning::EndedRuntime,
            source: None,
        }
    }

    fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
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
        LockError::Mongo(io::Error::new(self.io, self).into())
    }

    /// A request without any reply.
    pub(crate) fn no_reply(request: &str, waited: Duration) -> Self {
        let waited = Rounded(waited);
        let text = format!("MongoDB did not answer the {request} within {waited}");
        Self::new(Meaning::NoReply, text)
    }

    /// A request without an outcome, while the server rejects commands for overload.
    pub(crate) fn overloaded(request: &str, waited: Duration) -> Self {
        let waited = Rounded(waited);
        let text = format!("MongoDB is overloaded: no outcome of the {request} within {waited}");
        Self::new(Meaning::Overloaded, text)
    }

    /// No server of the deployment can be reached or used, by the driver's text about all of them.
    pub(crate) fn unreachable(servers: &str, is_unsent: bool) -> Self {
        Self {
            help: no_server::help(servers),
            is_unsent,
            ..Self::new(Meaning::Unreachable, no_server::of_selection(servers))
        }
    }

    /// No server belongs to the replica set that the connection string names, or its hosts belong to two replica sets, so that each
    /// process works with one of them by chance.
    pub(crate) fn wrong_hosts(said: &str, is_unsent: bool) -> Self {
        Self {
            is_unsent,
            ..Self::new(Meaning::WrongHosts, said)
        }
    }

    /// A command that reached its time limit or a conflict at the document of a lock: MongoDB works, and a transaction
    /// of another client or another long operation has to end first.
    pub(crate) fn blocked(name: &str, source: Error) -> Self {
        let name = permit_id::shown(name);
        let text =
            format!("an open transaction or another long operation blocks the document of lock `{name}`");
        Self::new(Meaning::Blocked, text).caused_by(source)
    }

    /// MongoDB has not confirmed the request that ends a hold. The lock stays taken for this time at most, if no other
    /// command ends the hold. Without a time MongoDB has finally refused the request, and the lock is released.
    pub(crate) fn unended(request: &str, name: &str, left: Option<Duration>, source: LockError) -> LockError {
        let (what, then) = match left {
            Some(left) => (
                "did not confirm",
                format!("stays taken for at most {}", Rounded(left)),
            ),
            None => ("refused", "is released".to_owned()),
        };
        let effect = if request == "mark" {
            ", so its work will run again"
        } else {
            ""
        };
        let text = format!("MongoDB {what} the {request} of lock `{name}`{effect}; the lock {then}");
        Self {
            help: source.help(),
            ..Self::new(source.meaning(), text).caused_by(source)
        }
        .into_error()
    }

    /// A connection string that the driver does not accept.
    pub(crate) fn connection_string(reason: &str) -> Self {
        let text = format!("the MongoDB connection string is invalid: {reason}");
        Self::new(Meaning::ConnectionString, text)
    }
}

impl LockError {
    /// The error for a request without any reply: the lock is not known to be held.
    pub(crate) fn no_reply(request: &str, waited: Duration) -> Self {
        Failure::no_reply(request, waited).into_error()
    }
}
