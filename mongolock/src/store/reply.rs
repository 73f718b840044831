//! The result of a write command by the server's reply.

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{Error, ErrorKind, Result, WriteFailure};
use serde::de::DeserializeOwned;

use crate::LockError;
use crate::error::driver_text::coded;
use crate::error::meaning::Meaning;

/// "Waiting for replication timed out": it is unknown whether a majority has the write.
const WRITE_CONCERN_TIMEOUT: i32 = 64;

/// Why a command has no replies.
#[derive(Debug)]
pub(crate) struct NotRun {
    pub(crate) error: LockError,
    /// Whether its writes may have been applied, whatever the error says: the error may be that of one statement, or of the
    /// query after the writes.
    pub(crate) may_be_applied: bool,
}

impl From<LockError> for NotRun {
    fn from(error: LockError) -> Self {
        Self {
            error,
            may_be_applied: false,
        }
    }
}

/// The result of a command that was run as a plain command: the same as that of the driver's own methods, except that a
/// row which has missed its document is no failure. A row that `inserts` misses by a duplicate key, because another client
/// has inserted the document; one that ends the command at a miss does so by an error.
///
/// `run_command` answers `Ok` for every reply with `ok: 1`, also if the write itself failed or was not confirmed by a
/// majority. A write error comes first: its statement has written nothing.
pub(super) fn outcome(ran: Result<Document>, inserts: bool) -> Result<Document> {
    let is_miss = |error: &Error| match Meaning::of(error) {
        Meaning::DuplicateKey => inserts,
        meaning => meaning == Meaning::NoBranch,
    };
    let reply = match ran {
        Err(error) if is_miss(&error) => return Ok(Document::new()),
        ran => ran?,
    };
    let fields = |error: &Bson| error.as_document().cloned().unwrap_or_default();
    let errors = reply.get_array("writeErrors").ok().into_iter().flatten();
    let errors = errors.map(|error| WriteFailure::WriteError(read(&fields(error))));
    let mut errors = errors.map(|error| ErrorKind::Write(error).into());
    if let Some(error) = errors.find(|error| !is_miss(error)) {
        return Err(error);
    }
    match reply.get("writeConcernError") {
        Some(error) => Err(ErrorKind::Write(WriteFailure::WriteConcernError(read(&fields(error)))).into()),
        None => Ok(reply),
    }
}

/// Whether the server has refused one statement of a command, and not the whole command.
pub(crate) fn is_of_statement(error: &LockError) -> bool {
    matches!(error, LockError::Mongo(error)
        if matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteError(_))))
}

/// This error with one more label of the driver, by which callers know what to do: that an outcome is unknown, or that a
/// transaction may be made again. Only an error of the server takes a label from outside the driver, so a text as a custom
/// error becomes one.
pub(crate) fn with_label(error: &Error, label: &str) -> Error {
    if error.contains_label(label) {
        return error.clone();
    }
    let message = error.get_custom().copied().unwrap_or("the command failed");
    let unknown = (WRITE_CONCERN_TIMEOUT, "WriteConcernTimeout", message);
    let (code, name, message) = coded(error).unwrap_or(unknown);
    let labels: Vec<&str> = error.labels().iter().map(String::as_str).chain([label]).collect();
    let concern = doc! { "code": code, "codeName": name, "errmsg": message, "errorLabels": labels };
    ErrorKind::Write(WriteFailure::WriteConcernError(read(&concern))).into()
}

/// The driver's error type with the fields of this document. The driver offers no constructor, and bson 2 and bson 3
/// have no way in common to read a document, hence by JSON.
pub(crate) fn read<T: DeserializeOwned>(error: &Document) -> T {
    let text = |key| error.get_str(key).unwrap_or_default();
    let labels = error.get_array("errorLabels").ok();
    let labels = labels.into_iter().flatten().filter_map(|label| label.as_str());
    let fields = serde_json::json!({
        "code": error.get_i32("code").unwrap_or_default(),
        "codeName": text("codeName"),
        "errmsg": text("errmsg"),
        "errorLabels": labels.collect::<Vec<_>>(),
    });
    serde_json::from_value(fields).expect("these are the fields of the driver's errors")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockError;
    use crate::error::driver_text::code;

    /// How the library treats a reply with `ok: 1`.
    #[derive(Debug, PartialEq, Eq)]
    enum Seen {
        Confirmed,
        /// Another document has this `_id`: to an acquire request the lock is held.
        DuplicateKey,
        /// The request is repeated with the same id.
        Repeated,
        /// The error is returned to the caller at once.
        Refused,
    }

    fn seen(reply: Document) -> Seen {
        match outcome(Ok(reply), false) {
            Ok(_) => Seen::Confirmed,
            Err(error) if Meaning::of(&error) == Meaning::DuplicateKey => Seen::DuplicateKey,
            Err(error) if Meaning::of(&error).passes() => Seen::Repeated,
            Err(_) => Seen::Refused,
        }
    }

    fn concern(code: i32) -> Document {
        doc! { "code": code, "codeName": "Name", "errmsg": "what happened", "errInfo": { "writeConcern": { "w": 2 } } }
    }

    #[test]
    fn every_reply_has_its_outcome() {
        let written = |code: i32| doc! { "ok": 1.0, "n": 0, "writeErrors": [{ "index": 0, "code": code, "errmsg": "" }] };
        let unconfirmed = |mut reply: Document, concern: Bson| {
            reply.insert("ok", 1.0);
            reply.insert("writeConcernError", concern);
            reply
        };
        let held = doc! { "lockId": "other#1" };
        let mine = doc! { "lockId": "mine#1", "fencingToken": 1_i64 };
        let mut replies = vec![
            (doc! { "ok": 1.0, "n": 1, "nModified": 1 }, Seen::Confirmed),
            (doc! { "ok": 1.0, "n": 0, "nModified": 0 }, Seen::Confirmed),
            (doc! { "ok": 1.0, "value": &mine }, Seen::Confirmed),
            (doc! { "ok": 1.0, "writeErrors": [] }, Seen::Confirmed),
            (written(11000), Seen::DuplicateKey),
            (written(112), Seen::Repeated),
            (written(10107), Seen::Repeated),
            (written(121), Seen::Refused),
            // The write error decides: its statement has written nothing.
            (unconfirmed(written(121), concern(64).into()), Seen::Refused),
            (unconfirmed(doc! { "n": 1 }, Bson::Null), Seen::Repeated),
        ];
        // "Held" that a majority has not confirmed is not held.
        let values = [held, mine].map(|value| unconfirmed(doc! { "value": value }, concern(64).into()));
        let codes = [50, 91, 11602, 189, 79].map(|code| unconfirmed(doc! { "n": 1 }, concern(code).into()));
        let repeated = values.into_iter().chain(codes);
        replies.extend(repeated.map(|reply| (reply, Seen::Repeated)));
        for (reply, expected) in replies {
            assert_eq!(seen(reply.clone()), expected, "{reply}");
        }
    }

    #[test]
    fn an_error_keeps_the_code_the_label_and_the_message_of_the_server() {
        let reply = doc! { "ok": 1.0, "writeConcernError": { "code": 91, "errmsg": "shutting down", "errorLabels": ["Label"] } };
        let error = outcome(Ok(reply), false).unwrap_err();
        assert_eq!(code(&error), Some(91));
        assert!(error.contains_label("Label"), "{error}");
        assert!(error.to_string().contains("shutting down"), "{error}");
    }

    #[test]
    fn a_duplicate_key_of_one_upsert_hides_no_other_error() {
        let write = |index: i32, code: i32| doc! { "index": index, "code": code, "errmsg": "what happened" };
        let outcome = |errors: &[Document], concern_code: Option<i32>| {
            let mut reply = doc! { "ok": 1.0, "n": 1, "writeErrors": errors };
            reply.extend(concern_code.map(|code| ("writeConcernError".to_owned(), concern(code).into())));
            outcome(Ok(reply), true).map(drop).map_err(|error| code(&error))
        };
        assert_eq!(outcome(&[], None), Ok(()));
        assert_eq!(outcome(&[write(0, 11000), write(2, 11000)], None), Ok(()));
        let refused = [write(0, 11000), write(2, 121), write(3, 14)];
        assert_eq!(outcome(&refused, None), Err(Some(121)));
        assert_eq!(outcome(&[write(0, 11000)], Some(64)), Err(Some(64)));
        // It has stopped at a miss.
        assert_eq!(outcome(&[write(1, 40066)], None), Ok(()));
    }

    #[test]
    fn an_unconfirmed_write_may_be_applied() {
        let error = outcome(Ok(doc! { "ok": 1.0, "writeConcernError": concern(64) }), false).unwrap_err();
        assert!(LockError::from(error).may_be_applied());
    }
}
