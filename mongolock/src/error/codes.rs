//! The server's codes that the library knows, and what they mean to a request that is repeated.
//!
//! A code that is not in [`FINAL`] passes: it is repeated while there is time. The names are those of the server's
//! `error_codes.yml`; an error without a name there has a description in parentheses.

pub(crate) const BAD_VALUE: i32 = 2;
pub(crate) const UNAUTHORIZED: i32 = 13;
pub(crate) const AUTHENTICATION_FAILED: i32 = 18;
/// Atlas refuses a log-in or a right with a code of its own.
const ATLAS_ERROR: i32 = 8000;
pub(crate) const ILLEGAL_OPERATION: i32 = 20;
pub(crate) const NAMESPACE_NOT_FOUND: i32 = 26;
pub(crate) const MAX_TIME_EXPIRED: i32 = 50;
/// "Waiting for replication timed out": the outcome of the write is not known.
pub(crate) const WRITE_CONCERN_TIMEOUT: i32 = 64;
pub(crate) const WRITE_CONFLICT: i32 = 112;
pub(crate) const DOCUMENT_VALIDATION_FAILURE: i32 = 121;
/// The server has rejected a command for overload.
pub(crate) const OVERLOADED: i32 = 462;
pub(crate) const DUPLICATE_KEY: i32 = 11000;
pub(crate) const DATABASE_DIFFERS_IN_CASE: i32 = 13297;
pub(crate) const OUT_OF_DISK_SPACE: i32 = 14031;
/// A `$switch` has no branch for a document.
pub(crate) const NO_BRANCH: i32 = 40066;
/// "The $changeStream stage is only supported on replica sets".
pub(crate) const NO_CHANGE_STREAMS: i32 = 40573;
/// The server no longer has the beginning of a change stream, or can no longer find it.
pub(crate) const HISTORY_LOST: [i32; 3] = [286, 280, 260];
/// "Type mismatch", and `$add` and `$subtract` with a value that is neither a number nor a date.
pub(crate) const WRONG_TYPE: [i32; 3] = [14, 16554, 16556];

/// Why a repetition cannot succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Final {
    /// The server refuses the user. Rights and passwords are changed, so this is final only after
    /// [`REFUSAL_LIMIT`](crate::timing::REFUSAL_LIMIT).
    User,
    /// The document, the collection or the request has to be changed.
    Request,
    /// The server does not know the command, or a part of it.
    Unsupported,
}

/// The codes of refusals that do not pass by themselves, with the name of each and the reason.
const FINAL: [(i32, Final); 23] = [
    // BadValue: the server is too old for a value of the command, or too new.
    (BAD_VALUE, Final::Request),
    // FailedToParse: the server is too old for the command.
    (9, Final::Unsupported),
    // UserNotFound: the user does not exist.
    (11, Final::User),
    // Unauthorized: the user lacks a right.
    (UNAUTHORIZED, Final::User),
    // TypeMismatch: a field of the document is damaged.
    (WRONG_TYPE[0], Final::Request),
    // AuthenticationFailed: the log-in is refused.
    (AUTHENTICATION_FAILED, Final::User),
    // CommandNotFound: the server is too old for the command.
    (59, Final::Unsupported),
    // InvalidNamespace: the name of the collection is invalid.
    (73, Final::Request),
    // CommandNotSupported: the server has no such command, or not in its role.
    (115, Final::Unsupported),
    // DocumentValidationFailure: a validator refuses the document.
    (DOCUMENT_VALIDATION_FAILURE, Final::Request),
    // CommandNotSupportedOnView: the collection is a view.
    (166, Final::Request),
    // InvalidPipelineOperator: the server is too old for the update.
    (168, Final::Unsupported),
    // APIStrictError: the client allows only commands that the library does not need.
    (323, Final::Request),
    // AtlasError: Atlas refuses the log-in or the right.
    (ATLAS_ERROR, Final::User),
    // CannotGrowDocumentInCappedNamespace: the collection is capped.
    (10003, Final::Request),
    // BSONObjectTooLarge: the document is too large.
    (10334, Final::Request),
    // DuplicateKey: a unique index refuses the document.
    (DUPLICATE_KEY, Final::Request),
    // DatabaseDifferCase: a database whose name differs in upper and lower case exists.
    (DATABASE_DIFFERS_IN_CASE, Final::Request),
    // (not a number): a field of the document is damaged.
    (WRONG_TYPE[1], Final::Request),
    // (not a date): a field of the document is damaged.
    (WRONG_TYPE[2], Final::Request),
    // (undefined variable): the server is too old for `$$NOW`.
    (17276, Final::Unsupported),
    // KeyTooLong: the name of the lock is too long for the index.
    (17280, Final::Request),
    // (unrecognized stage): the server is too old for the update.
    (40324, Final::Unsupported),
];

/// Why a request that has ended with this code is not repeated; `None` for a code that passes.
pub(crate) fn finality(code: i32) -> Option<Final> {
    let known = FINAL.iter().find(|(known, _)| *known == code);
    known.map(|(_, finality)| *finality)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_stands_once() {
        assert!(FINAL.is_sorted_by(|(one, _), (next, _)| one < next));
    }

    #[test]
    fn a_code_that_is_not_known_passes() {
        for code in [
            215,
            314,
            117,
            365,
            371,
            12586,
            12587,
            10107,
            OVERLOADED,
            OUT_OF_DISK_SPACE,
        ] {
            assert_eq!(finality(code), None, "{code}");
        }
        assert_eq!(finality(UNAUTHORIZED), Some(Final::User));
        assert_eq!(finality(DUPLICATE_KEY), Some(Final::Request));
    }
}
