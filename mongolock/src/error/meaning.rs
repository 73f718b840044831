//! What an error means for its command. The library treats an error by this one value, which is found once: from the
//! driver's error, or from the failure that the library has found itself.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use mongodb::bson::{Document, RawDocument};
use mongodb::error::{Error, ErrorKind, RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR, WriteFailure};

use super::driver_text::{code, coded};
use super::no_server;
use crate::duration::Rounded;
use crate::timing::REFUSAL_LIMIT;
use crate::{LockError, permit_id};

/// The label of an error of a command that has written nothing.
pub(crate) const NO_WRITES_PERFORMED: &str = "NoWritesPerformed";

/// The server's code for a log-in with a wrong user or password, as it occurs in texts of the driver for which there is
/// no typed error.
const AUTHENTICATION_FAILED: &str = "code: 18,";

/// Unauthorized.
const UNAUTHORIZED: i32 = 13;
const OUT_OF_TIME: i32 = 50;
const OVERLOADED: i32 = 462;

/// What an error of MongoDB means for another attempt, in this order: the server refuses the user; something has to be
/// changed before another attempt can succeed, up to [`Self::NoStreams`]; another attempt may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Meaning {
    /// The server refuses the user, on this connection or on another one.
    LogIn,
    /// The user lacks a right.
    Right,
    /// The server does not know the command, or a part of it.
    Unsupported,
    /// The document, the collection or the request has to be changed; also an error that is not one of MongoDB.
    Request,
    /// A validator refuses the document.
    Validator,
    /// A unique index refuses the document.
    DuplicateKey,
    /// A database exists whose name differs in upper and lower case.
    DatabaseCase,
    /// A field of the document has a type with which the server cannot calculate.
    WrongType,
    /// The driver refuses the command, and sends nothing.
    Unsent,
    /// The driver does not accept the connection string.
    ConnectionString,
    /// The driver does not use the server, because of its version.
    WrongServer,
    /// The hosts of the connection string belong to another replica set than it says, or to two: a reply may come from either.
    WrongHosts,
    /// The runtime of the client has ended: the tasks of the driver ended with it.
    EndedRuntime,
    /// The process was made by `fork` after its provider.
    Forked,
    /// There are no change streams, on this server or in memory.
    NoStreams,
    /// A `$switch` has no branch for a document.
    NoBranch,
    /// The time of the command at the server has passed.
    OutOfTime,
    /// Another transaction or write has changed the document.
    Conflict,
    /// The server rejects commands for overload.
    Overloaded,
    /// The server no longer has the beginning of a change stream, or can no longer find it.
    HistoryLost,
    /// The session has no transaction, or the server does not know it.
    NoTransaction,
    /// There is no collection.
    NoCollection,
    /// Another index has the name or the keys of the new one.
    IndexConflict,
    /// The disk of the server is full.
    FullDisk,
    /// No majority has confirmed the write, which may have been made.
    NotConfirmed,
    /// The connection has failed, and the command may have been sent on it.
    Connection,
    /// No connection could be made, so that nothing was sent.
    NoConnection,
    /// The driver has found no server.
    NoServer,
    /// No server can be reached, according to the driver's heartbeats.
    Unreachable,
    /// The request had no reply.
    NoReply,
    /// The task of the request ended with its runtime, before the reply.
    RuntimeEnded,
    /// A shutdown has ended the command, or came before it: this process sends no more commands of its own.
    Closed,
    /// Another operation blocks the document, while MongoDB works.
    Blocked,
    /// The change stream has ended with its collection.
    StreamEnded,
    Other,
}

impl Meaning {
    pub(crate) fn of(error: &Error) -> Self {
        if let Some(failure) = OwnFailure::of(error) {
            return failure.meaning;
        }
        match &*error.kind {
            // The driver wraps every error during authentication in this kind; the cause shows whether it is transient.
            ErrorKind::Authentication { .. }
                if cause(error).is_some_and(|cause| Self::of(cause).passes()) =>
            {
                Self::NoConnection
            }
            ErrorKind::Authentication { .. } => Self::LogIn,
            ErrorKind::ConnectionPoolCleared { message, .. } => Self::of_clearing(message),
            ErrorKind::Io(_) => Self::Connection,
            ErrorKind::ServerSelection { message, .. } if message.starts_with("Server at ") => {
                Self::WrongServer
            }
            ErrorKind::ServerSelection { .. } => Self::NoServer,
            ErrorKind::Transaction { .. } => Self::NoTransaction,
            ErrorKind::InvalidArgument { .. }
            | ErrorKind::IncompatibleServer { .. }
            | ErrorKind::Shutdown => Self::Unsent,
            ErrorKind::Custom(_) => Self::Request,
            _ => coded(error).map_or(Self::Other, |(code, ..)| Self::of_reply(error, code)),
        }
    }

    /// The kind of the error of a pool that the driver has cleared. It has the same error for a connection that it has refused before
    /// the command was sent, and for one that it closes while a command waits for its reply.
    fn of_clearing(message: &str) -> Self {
        if message.contains(AUTHENTICATION_FAILED) {
            Self::LogIn
        } else if message.starts_with("Connection pool for ") {
            Self::NoConnection
        } else {
            Self::Connection
        }
    }

    fn of_reply(error: &Error, code: i32) -> Self {
        let (meaning, reply) = (Self::of_code(code), error.server_response());
        match &*error.kind {
            // The driver gives the label also to connections that fail before the handshake, which can have many reasons.
            _ if error.contains_label(SYSTEM_OVERLOADED_ERROR) => Self::Overloaded,
            ErrorKind::Write(WriteFailure::WriteConcernError(_)) => Self::NotConfirmed,
            ErrorKind::Command(_) if !meaning.passes() && reply.is_some_and(|reply| is_partial(reply)) => {
                Self::NotConfirmed
            }
            _ => meaning,
        }
    }

    /// The server's codes that the library knows. An error with another code counts as transient: the command is repeated while
    /// there is time. The names are those of the server's `error_codes.yml`; an error without a name there has a description
    /// in parentheses.
    fn of_code(code: i32) -> Self {
        match code {
            // The server is too old for the command, or too new: BadValue, FailedToParse, CommandNotFound, CommandNotSupported,
            // InvalidPipelineOperator, (undefined variable), (unrecognized stage).
            2 | 9 | 59 | 115 | 168 | 17276 | 40324 => Self::Unsupported,
            // UserNotFound, AuthenticationFailed.
            11 | 18 => Self::LogIn,
            // AtlasError: Atlas refuses the log-in or the right.
            UNAUTHORIZED | 8000 => Self::Right,
            // A field of the document is damaged: TypeMismatch, (not a number), (not a date).
            14 | 16554 | 16556 => Self::WrongType,
            // IllegalOperation: there is no transaction, or there are none on this server.
            20 => Self::NoTransaction,
            // NamespaceNotFound.
            26 => Self::NoCollection,
            // MaxTimeMSExpired: the time of the command has passed, often behind another one on its document.
            OUT_OF_TIME => Self::OutOfTime,
            // InvalidNamespace, CommandNotSupportedOnView, APIStrictError, CannotGrowDocumentInCappedNamespace, BSONObjectTooLarge,
            // KeyTooLong.
            73 | 166 | 323 | 10003 | 10334 | 17280 => Self::Request,
            // IndexOptionsConflict: another index has the keys. IndexKeySpecsConflict: another index has the name.
            85 | 86 => Self::IndexConflict,
            // WriteConflict: a transaction, or a write beside it, has changed the document.
            112 => Self::Conflict,
            // DocumentValidationFailure.
            121 => Self::Validator,
            // InvalidResumeToken, ChangeStreamFatalError, ChangeStreamHistoryLost.
            260 | 280 | 286 => Self::HistoryLost,
            // IngressRequestRateLimitExceeded.
            OVERLOADED => Self::Overloaded,
            // DuplicateKey.
            11000 => Self::DuplicateKey,
            // DatabaseDifferCase.
            13297 => Self::DatabaseCase,
            // OutOfDiskSpace.
            14031 => Self::FullDisk,
            // (no branch of a `$switch`): a statement has stopped at a document.
            40066 => Self::NoBranch,
            // (no change streams): the server is no member of a replica set.
            40573 => Self::NoStreams,
            _ => Self::Other,
        }
    }

    /// Whether the server refuses the user. Rights and passwords are changed, so this is final only after [`REFUSAL_LIMIT`].
    pub(crate) fn is_refusal(self) -> bool {
        self <= Self::Right
    }

    /// Whether the document, the request, the program or the database has to be changed before another attempt can succeed.
    pub(crate) fn is_final(self) -> bool {
        !self.is_refusal() && !self.passes()
    }

    /// Whether another attempt may succeed without intervention.
    pub(crate) fn passes(self) -> bool {
        self > Self::NoStreams
    }

    /// Whether it is useless to repeat the request, if the server has refused the user for this time.
    pub(crate) fn is_useless(self, refused_for: Duration) -> bool {
        self.is_final() || self.is_refusal() && refused_for >= REFUSAL_LIMIT
    }

    /// The error of a failure that this library has found itself, without further details.
    pub(crate) fn error(self) -> LockError {
        OwnFailure::new(self, self.fact()).into_error()
    }
}

impl LockError {
    /// The error for a request without any reply: the lock is not known to be held.
    pub(crate) fn no_reply(request: &str, waited: Duration) -> Self {
        let waited = Rounded(waited);
        let text = format!("MongoDB did not answer the {request} within {waited}");
        OwnFailure::new(Meaning::NoReply, text).into_error()
    }

    pub(crate) fn meaning(&self) -> Meaning {
        match self {
            Self::Mongo(error) => Meaning::of(error),
            _ => Meaning::Request,
        }
    }

    /// Whether there are no change streams, on a standalone server or for this user. A service that limits the number of streams refuses
    /// one with another code.
    pub(crate) fn is_without_streams(&self) -> bool {
        let is_refused = matches!(self, Self::Mongo(error) if code(error) == Some(UNAUTHORIZED));
        is_refused || self.meaning() == Meaning::NoStreams
    }

    /// Whether a shutdown has ended the command.
    pub(crate) fn is_closed(&self) -> bool {
        self.meaning() == Meaning::Closed
    }

    /// Whether the server may have applied the command, or may do so yet: it has neither refused it nor never received it.
    pub(crate) fn may_be_applied(&self) -> bool {
        let Self::Mongo(error) = self else { return true };
        if let Some(failure) = OwnFailure::of(error) {
            return !failure.is_unsent;
        }
        let is_unsent = matches!(
            Meaning::of(error),
            Meaning::LogIn
                | Meaning::Right
                | Meaning::Unsent
                | Meaning::WrongServer
                | Meaning::NoServer
                | Meaning::NoConnection
        );
        !is_unsent && code(error) != Some(OVERLOADED) && !error.contains_label(NO_WRITES_PERFORMED)
    }
}

/// Whether the server has rejected the command before it ran it, so that a repetition is harmless. The driver gives the label also
/// to a command that it has not sent, because no connection could be made.
pub(crate) fn is_rejected(error: &Error) -> bool {
    Meaning::of(error) == Meaning::Overloaded || error.contains_label(RETRYABLE_ERROR)
}

/// Whether the time limit of the command has passed at the server, before its write or while that waited for a majority.
pub(crate) fn is_max_time_expired(error: &Error) -> bool {
    code(error) == Some(OUT_OF_TIME)
}

/// The values of the unique index in which two documents are equal, if the reply has them.
pub(crate) fn colliding_values(error: &Error) -> Option<Document> {
    let reply = Document::try_from(&**error.server_response()?).ok()?;
    let refused = reply.get_array("writeErrors").ok()?.first()?.as_document()?;
    refused.get_document("keyValue").ok().cloned()
}

/// The error of the driver that caused this one. The driver may keep it in a box, which is an error type of its own.
fn cause(error: &Error) -> Option<&Error> {
    let source = std::error::Error::source(error)?;
    source
        .downcast_ref::<Box<Error>>()
        .map(AsRef::as_ref)
        .or_else(|| source.downcast_ref())
}

/// Whether something may have been written although the command has failed: a batch that reached its time limit
/// half-way returns a write concern error together with `ok: 0`.
fn is_partial(reply: &RawDocument) -> bool {
    matches!(reply.get("writeConcernError"), Ok(Some(_)))
}

/// A failure that this library has found itself. It is wrapped in an I/O error of the driver, so that
/// [`LockError::Mongo`] holds every failure of MongoDB.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct OwnFailure {
    meaning: Meaning,
    text: String,
    pub(super) help: &'static str,
    /// Whether the request was not sent.
    is_unsent: bool,
    pub(super) source: Option<Box<dyn StdError + Send + Sync>>,
}

impl OwnFailure {
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

#[cfg(test)]
mod tests {
    use mongodb::bson::{RawDocumentBuf, doc};

    use super::*;

    /// The server sends such a reply for a batch that reached its time limit: five of its ten updates were applied.
    #[test]
    fn a_write_concern_error_beside_an_error_may_be_applied() {
        let reply = |reply| RawDocumentBuf::try_from(&reply).unwrap();
        let partly = doc! { "ok": 0.0, "code": 50, "writeConcernError": { "code": 64 } };
        assert!(is_partial(&reply(partly)));
        assert!(!is_partial(&reply(doc! { "ok": 0.0, "code": 13 })));
    }

    #[test]
    fn an_acquire_request_without_a_reply_may_be_repeated() {
        let error = LockError::no_reply("acquire request", Duration::from_secs(3));
        assert!(error.meaning().passes());
        assert!(error.to_string().contains("within 3.0 s"), "{error}");
    }

    #[test]
    fn a_code_that_is_not_known_passes() {
        for code in [215, 314, 117, 365, 371, 12586, 12587, 10107, OVERLOADED, 14031] {
            assert!(Meaning::of_code(code).passes(), "{code}");
        }
        assert!(Meaning::of_code(13).is_refusal() && !Meaning::of_code(13).is_final());
        assert!(Meaning::of_code(11000).is_final());
    }

    #[test]
    fn errors_of_the_library_do_not_pass() {
        assert!(!LockError::NoProvider.meaning().passes());
        assert!(!Meaning::of(&Error::custom("no")).passes());
    }
}
