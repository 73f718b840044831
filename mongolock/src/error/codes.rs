//! The server's codes that the library knows, and what they mean.
//!
//! An error with another code counts as transient: the command is repeated while there is time. The names are those of
//! the server's `error_codes.yml`; an error without a name there has a description in parentheses.

use super::meaning::Meaning;

/// Unauthorized.
pub(super) const UNAUTHORIZED: i32 = 13;
pub(super) const OUT_OF_TIME: i32 = 50;
pub(super) const OVERLOADED: i32 = 462;

const MEANINGS: [(i32, Meaning); 36] = [
    // BadValue: the server is too old for a value of the command, or too new.
    (2, Meaning::Unsupported),
    // FailedToParse: the server is too old for the command.
    (9, Meaning::Unsupported),
    // UserNotFound: the user does not exist.
    (11, Meaning::LogIn),
    // Unauthorized: the user lacks a right, or there was no log-in.
    (UNAUTHORIZED, Meaning::Right),
    // TypeMismatch: a field of the document is damaged.
    (14, Meaning::WrongType),
    // AuthenticationFailed: the log-in is refused.
    (18, Meaning::LogIn),
    // IllegalOperation: there is no transaction, or there are none on this server.
    (20, Meaning::NoTransaction),
    // NamespaceNotFound: there is no collection.
    (26, Meaning::NoCollection),
    // MaxTimeMSExpired: the time of the command has passed, often behind another one on its document.
    (OUT_OF_TIME, Meaning::OutOfTime),
    // CommandNotFound: the server is too old for the command.
    (59, Meaning::Unsupported),
    // InvalidNamespace: the name of the collection is invalid.
    (73, Meaning::Request),
    // IndexOptionsConflict: another index has the keys.
    (85, Meaning::IndexConflict),
    // IndexKeySpecsConflict: another index has the name.
    (86, Meaning::IndexConflict),
    // WriteConflict: a transaction, or a write beside it, has changed the document.
    (112, Meaning::Conflict),
    // CommandNotSupported: the server has no such command, or not in its role.
    (115, Meaning::Unsupported),
    // DocumentValidationFailure: a validator refuses the document.
    (121, Meaning::Validator),
    // CommandNotSupportedOnView: the collection is a view.
    (166, Meaning::Request),
    // InvalidPipelineOperator: the server is too old for the update.
    (168, Meaning::Unsupported),
    // InvalidResumeToken: the server cannot find the beginning of the change stream.
    (260, Meaning::HistoryLost),
    // ChangeStreamFatalError: the server cannot continue the change stream.
    (280, Meaning::HistoryLost),
    // ChangeStreamHistoryLost: the server no longer has the beginning of the change stream.
    (286, Meaning::HistoryLost),
    // APIStrictError: the client allows only commands that the library does not need.
    (323, Meaning::Request),
    // IngressRequestRateLimitExceeded: the server rejects commands for overload.
    (OVERLOADED, Meaning::Overloaded),
    // AtlasError: Atlas refuses the log-in or the right.
    (8000, Meaning::Right),
    // CannotGrowDocumentInCappedNamespace: the collection is capped.
    (10003, Meaning::Request),
    // BSONObjectTooLarge: the document is too large.
    (10334, Meaning::Request),
    // DuplicateKey: a unique index refuses the document.
    (11000, Meaning::DuplicateKey),
    // DatabaseDifferCase: a database whose name differs in upper and lower case exists.
    (13297, Meaning::DatabaseCase),
    // OutOfDiskSpace: the disk of the server is full.
    (14031, Meaning::FullDisk),
    // (not a number): a field of the document is damaged.
    (16554, Meaning::WrongType),
    // (not a date): a field of the document is damaged.
    (16556, Meaning::WrongType),
    // (undefined variable): the server is too old for `$$NOW`.
    (17276, Meaning::Unsupported),
    // KeyTooLong: the name of the lock is too long for the index.
    (17280, Meaning::Request),
    // (no branch of a `$switch`): a statement has stopped at a document.
    (40066, Meaning::NoBranch),
    // (unrecognized stage): the server is too old for the update.
    (40324, Meaning::Unsupported),
    // (no change streams): the server is no member of a replica set.
    (40573, Meaning::NoStreams),
];

pub(super) fn meaning(code: i32) -> Meaning {
    let known = MEANINGS.iter().find(|(known, _)| *known == code);
    known.map_or(Meaning::Other, |(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_stands_once() {
        assert!(MEANINGS.is_sorted_by(|(one, _), (next, _)| one < next));
    }

    #[test]
    fn a_code_that_is_not_known_passes() {
        for code in [215, 314, 117, 365, 371, 12586, 12587, 10107, OVERLOADED, 14031] {
            assert!(meaning(code).passes(), "{code}");
        }
        assert!(meaning(13).is_refusal());
        assert!(meaning(11000).is_final());
    }
}
