//! Which errors of the driver pass, and which stay until somebody acts.

use mongodb::bson::Document;
use mongodb::error::{Error, ErrorKind, RETRYABLE_WRITE_ERROR, TRANSIENT_TRANSACTION_ERROR, WriteFailure};

use crate::LockError;

/// Codes of a server that is busy with something else: failing over, shutting down, out of time, in conflict with
/// another write. From the server's `error_codes.yml`: its retryable errors first, then those that pass by themselves.
const PASSING: [i32; 22] = [
    6, 7, 63, 89, 91, 134, 150, 189, 234, 262, 9001, 10058, 10107, 11600, 11602, 13388, 13435,
    13436, // retryable
    24, 46, 50, 112, // lock timeout, lock busy, out of time, write conflict
];

const UNAUTHORIZED: i32 = 13;
const DUPLICATE_KEY: i32 = 11000;
/// "Type mismatch", and what `$add` and `$subtract` say of what is no number or date.
const WRONG_TYPE: [i32; 3] = [14, 16554, 16556];
const ILLEGAL_OPERATION: i32 = 20;
const WRITE_CONFLICT: i32 = 112;
/// "The $changeStream stage is only supported on replica sets".
const NO_CHANGE_STREAMS: i32 = 40573;

/// Whether another attempt may succeed without anybody doing something about it.
pub(crate) fn is_passing(error: &LockError) -> bool {
    let LockError::Mongo(error) = error else {
        return false;
    };
    if error.contains_label(RETRYABLE_WRITE_ERROR) || error.contains_label(TRANSIENT_TRANSACTION_ERROR) {
        return true;
    }
    match &*error.kind {
        // After a write concern error the write is there but not yet safe: asking again with the same id tells.
        ErrorKind::Io(_)
        | ErrorKind::ServerSelection { .. }
        | ErrorKind::ConnectionPoolCleared { .. }
        | ErrorKind::Write(WriteFailure::WriteConcernError(_)) => true,
        _ => code(error).is_some_and(|code| PASSING.contains(&code)),
    }
}

/// Whether the server plainly said no: then nothing was written.
pub(crate) fn is_refusal(error: &LockError) -> bool {
    let LockError::Mongo(error) = error else {
        return false;
    };
    matches!(
        &*error.kind,
        ErrorKind::Authentication { .. } | ErrorKind::InvalidArgument { .. }
    ) || code(error) == Some(UNAUTHORIZED)
}

/// Whether the server cannot have done anything: it refused, or was never asked.
pub(crate) fn did_nothing(error: &LockError) -> bool {
    is_refusal(error)
        || matches!(error, LockError::Mongo(error) if matches!(&*error.kind, ErrorKind::ServerSelection { .. }))
}

/// Whether the server has no change streams (a standalone), or the user may not open one.
pub(crate) fn is_unavailable_stream(error: &LockError) -> bool {
    matches!(error, LockError::Mongo(error) if matches!(code(error), Some(UNAUTHORIZED | NO_CHANGE_STREAMS)))
}

pub(crate) fn is_duplicate_key(error: &Error) -> bool {
    code(error) == Some(DUPLICATE_KEY)
}

/// An expression met a value that it cannot compute with.
pub(crate) fn is_wrong_type(error: &Error) -> bool {
    code(error).is_some_and(|code| WRONG_TYPE.contains(&code))
}

/// The values of the unique index in which two documents are alike, if the server says so.
pub(crate) fn colliding_values(error: &Error) -> Option<Document> {
    let reply = Document::try_from(&**error.server_response()?).ok()?;
    let refused = reply.get_array("writeErrors").ok()?.first()?.as_document()?;
    refused.get_document("keyValue").ok().cloned()
}

/// Two transactions, or a transaction and a single write, have changed one document.
pub(crate) fn is_conflict(error: &Error) -> bool {
    code(error) == Some(WRITE_CONFLICT)
}

/// The session has no transaction, or the server knows none.
pub(crate) fn is_no_transaction(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Transaction { .. }) || code(error) == Some(ILLEGAL_OPERATION)
}

pub(crate) fn code(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some(write.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => Some(concern.code),
        _ => None,
    }
}

/// A request that got no answer at all: MongoDB is broken or out of reach, not busy.
pub(crate) fn unanswered(request: &str, waited: std::time::Duration) -> LockError {
    let message =
        format!("no answer to a {request} within {waited:?}; is MongoDB reachable and has it a primary?");
    LockError::Mongo(std::io::Error::new(std::io::ErrorKind::TimedOut, message).into())
}

/// The collection was dropped or renamed.
pub(crate) fn ended() -> LockError {
    LockError::Mongo(Error::custom("the change stream has ended with its collection"))
}

/// A task that ended with its runtime: nobody knows what became of its request.
pub(crate) fn cut_off() -> LockError {
    let message = "the tokio runtime ended before the answer of MongoDB was there";
    LockError::Mongo(std::io::Error::other(message).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unanswered_claim_is_a_passing_fault_of_mongodb() {
        let error = unanswered("claim", std::time::Duration::from_secs(3));
        assert!(is_passing(&error));
        assert!(error.to_string().contains("within 3s"), "{error}");
    }

    #[test]
    fn errors_of_the_library_are_not_passing() {
        assert!(!is_passing(&LockError::NoProvider));
        assert!(!is_passing(&Error::custom("no").into()));
    }
}
