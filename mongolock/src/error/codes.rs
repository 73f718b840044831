//! The server's codes that the library knows, and what they mean.
//!
//! An error with another code counts as transient: the command is repeated while there is time. The names are those of
//! the server's `error_codes.yml`; an error without a name there has a description in parentheses.

use super::meaning::Meaning;

/// Unauthorized.
pub(super) const UNAUTHORIZED: i32 = 13;
pub(super) const OUT_OF_TIME: i32 = 50;
pub(super) const OVERLOADED: i32 = 462;

pub(super) fn meaning(code: i32) -> Meaning {
    match code {
        // The server is too old for the command, or too new: BadValue, FailedToParse, CommandNotFound, CommandNotSupported,
        // InvalidPipelineOperator, (undefined variable), (unrecognized stage).
        2 | 9 | 59 | 115 | 168 | 17276 | 40324 => Meaning::Unsupported,
        // UserNotFound, AuthenticationFailed.
        11 | 18 => Meaning::LogIn,
        // AtlasError: Atlas refuses the log-in or the right.
        UNAUTHORIZED | 8000 => Meaning::Right,
        // A field of the document is damaged: TypeMismatch, (not a number), (not a date).
        14 | 16554 | 16556 => Meaning::WrongType,
        // IllegalOperation: there is no transaction, or there are none on this server.
        20 => Meaning::NoTransaction,
        // NamespaceNotFound.
        26 => Meaning::NoCollection,
        // MaxTimeMSExpired: the time of the command has passed, often behind another one on its document.
        OUT_OF_TIME => Meaning::OutOfTime,
        // InvalidNamespace, CommandNotSupportedOnView, APIStrictError, CannotGrowDocumentInCappedNamespace, BSONObjectTooLarge,
        // KeyTooLong.
        73 | 166 | 323 | 10003 | 10334 | 17280 => Meaning::Request,
        // IndexOptionsConflict: another index has the keys. IndexKeySpecsConflict: another index has the name.
        85 | 86 => Meaning::IndexConflict,
        // WriteConflict: a transaction, or a write beside it, has changed the document.
        112 => Meaning::Conflict,
        // DocumentValidationFailure.
        121 => Meaning::Validator,
        // InvalidResumeToken, ChangeStreamFatalError, ChangeStreamHistoryLost.
        260 | 280 | 286 => Meaning::HistoryLost,
        // IngressRequestRateLimitExceeded.
        OVERLOADED => Meaning::Overloaded,
        // DuplicateKey.
        11000 => Meaning::DuplicateKey,
        // DatabaseDifferCase.
        13297 => Meaning::DatabaseCase,
        // OutOfDiskSpace.
        14031 => Meaning::FullDisk,
        // (no branch of a `$switch`): a statement has stopped at a document.
        40066 => Meaning::NoBranch,
        // (no change streams): the server is no member of a replica set.
        40573 => Meaning::NoStreams,
        _ => Meaning::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_that_is_not_known_passes() {
        for code in [215, 314, 117, 365, 371, 12586, 12587, 10107, OVERLOADED, 14031] {
            assert!(meaning(code).passes(), "{code}");
        }
        assert!(meaning(13).is_refusal());
        assert!(meaning(11000).is_final());
    }
}
