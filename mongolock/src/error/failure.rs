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
            is_unsent: meaning == Meaning::EndedRuntime,
            source: None,
        }
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
    fn into_error(self) -> LockError {
        LockError::Mongo(io::Error::other(self).into())
    }

    /// A request without an outcome, while the server rejects commands for overload.
    pub(crate) fn overloaded(request: &str, waited: Duration) -> LockError {
        let waited = Rounded(waited);
        let text = format!("MongoDB is overloaded: no outcome of the {request} within {waited}");
        Self::new(Meaning::Overloaded, text).into_error()
    }

    /// No server of the deployment can be reached or used, by the driver's text about all of them.
    pub(crate) fn unreachable(servers: &str, is_unsent: bool) -> LockError {
        let mut failure = Self::new(Meaning::Unreachable, no_server::of_selection(servers));
        (failure.help, failure.is_unsent) = (no_server::help(servers), is_unsent);
        failure.into_error()
    }

    /// No server belongs to the replica set that the connection string names, or its hosts belong to two replica sets, so that each
    /// process works with one of them by chance.
    pub(crate) fn wrong_hosts(said: &str, is_unsent: bool) -> LockError {
        let failure = Self::new(Meaning::WrongHosts, said);
        Self { is_unsent, ..failure }.into_error()
    }

    /// A command that ran out of time or into a conflict at the document of a lock: MongoDB works, and a foreign transaction or another
    /// long operation has to end first.
    pub(crate) fn blocked(name: &str, source: Error) -> LockError {
        let name = permit_id::shown(name);
        let text =
            format!("an open transaction or another long operation blocks the document of lock `{name}`");
        let (source, failure) = (Some(source.into()), Self::new(Meaning::Blocked, text));
        Self { source, ..failure }.into_error()
    }

    /// MongoDB has not confirmed the request that ends a hold. The lock stays taken for this time at most, if no other
    /// command ends the hold. Without a time MongoDB has finally refused the request, and the lock is released.
    pub(crate) fn unended(request: &str, name: &str, left: Option<Duration>, source: LockError) -> LockError {
        let request = match request {
            "mark" => format!("mark of lock `{name}`, so its work will run again"),
            request => format!("{request} of lock `{name}`"),
        };
        let text = match left.map(Rounded) {
            Some(left) => {
                format!("MongoDB did not confirm the {request}; the lock stays taken for at most {left}")
            }
            None => format!("MongoDB refused the {request}; the lock is released"),
        };
        let mut failure = Self::new(source.meaning(), text);
        failure.help = source.help();
        failure.source = Some(source.into());
        failure.into_error()
    }

    /// A connection string that the driver does not accept.
    pub(crate) fn connection_string(reason: &str) -> LockError {
        let text = format!("the MongoDB connection string is invalid: {reason}");
        Self::new(Meaning::ConnectionString, text).into_error()
    }
}

impl LockError {
    /// The error for a request without any reply: the lock is not known to be held.
    pub(crate) fn no_reply(request: &str, waited: Duration) -> Self {
        let waited = Rounded(waited);
        let text = format!("MongoDB did not answer the {request} within {waited}");
        Failure::new(Meaning::NoReply, text).into_error()
    }
}
