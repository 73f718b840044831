//! Documents that a server can send: damaged ones and those of other programs are refused with an error, and nothing
//! panics. The fuzz target `document` calls the same function.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::Document;

use super::commands::acquired;
use super::info::info;
use super::look::running_lease;
use super::mongo::fields::sight;
use super::mongo::millis;
use super::{AcquireReply, AcquireRequest, LeaseId, reply};
use crate::protocol::Reply;
use crate::{LockError, LockInfo};

/// What a document says as the reply to an acquire request, and as a lock that an operator sees.
type Read = (Result<AcquireReply, LockError>, Result<LockInfo, LockError>);

/// The margins with which a document is read, the second time with the dates.
const MARGINS: [Duration; 2] = [Duration::ZERO, Duration::from_secs(86_400)];

/// The id of the claim that reads the document.
const OWN: &str = "owner#1";

/// Reads a document as every kind of reply that it can be.
pub(crate) fn read_document(document: &Document) {
    for (margin, wants_dates) in MARGINS.into_iter().zip([false, true]) {
        let (acquired, info) = read(document, margin, wants_dates);
        if let Ok(info) = info {
            // Everything that is shown of a lock.
            drop(format!("{info:?}"));
        }
        if let Err(error) = acquired {
            drop(format!("{error}: {}", error.help()));
        }
    }
    drop(reply::outcome(Ok(document.clone())));
    reply::may_be_applied(document);
}

fn read(document: &Document, margin: Duration, wants_dates: bool) -> Read {
    let key = LeaseId {
        name: Arc::from("n"),
        lock_id: Arc::from(OWN),
    };
    let request = AcquireRequest {
        expiry: Duration::from_secs(30),
        tokens: 1,
        takeover_margin: margin,
        wants_dates,
    };
    let sight = sight(document);
    running_lease(&sight, millis(margin));
    let reply = Reply {
        is_applied: None,
        sight: Some(sight.clone()),
    };
    (acquired(&key, request, Ok(reply)), info("n", &sight, margin))
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Bson, DateTime, doc, oid::ObjectId};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const FIELDS: [&str; 10] = [
        "_id",
        "lockId",
        "acquiredAt",
        "expiresAt",
        "fencingToken",
        "now",
        "writeErrors",
        "writeConcernError",
        "n",
        "unknown",
    ];

    fn sound() -> Document {
        doc! {
            "_id": "n", "lockId": OWN, "acquiredAt": DateTime::from_millis(1), "expiresAt": DateTime::from_millis(2),
            "fencingToken": 7_i64, "now": DateTime::from_millis(1),
        }
    }

    /// The ends of every type, and what other programs have written.
    fn corpus() -> Vec<Bson> {
        vec![
            Bson::Null,
            Bson::MinKey,
            Bson::MaxKey,
            Bson::Undefined,
            true.into(),
            i32::MIN.into(),
            i64::MIN.into(),
            i64::MAX.into(),
            (1_i64 << 53).into(),
            (-1_i64).into(),
            f64::NAN.into(),
            f64::INFINITY.into(),
            9.0e18.into(),
            "".into(),
            "$expiresAt".into(),
            "#".into(),
            "done:owner#1".into(),
            "owner\0#1".into(),
            "x".repeat(70_000).into(),
            DateTime::MIN.into(),
            DateTime::MAX.into(),
            DateTime::from_millis(-1).into(),
            ObjectId::from_bytes([0; 12]).into(),
            doc! {}.into(),
            doc! { "$date": "never" }.into(),
            doc! { "code": "no", "errmsg": 1, "errInfo": [], "errorLabels": [1, "a"] }.into(),
            Bson::Array(vec![]),
            Bson::Array(vec![Bson::Null, doc! { "code": i64::MAX, "index": -1 }.into()]),
        ]
    }

    #[test]
    fn every_field_of_a_document_may_have_any_value() {
        let mut refused = 0;
        for field in FIELDS {
            for value in corpus() {
                let mut document = sound();
                document.insert(field, value);
                read_document(&document);
                refused += u32::from(read(&document, Duration::ZERO, false).1.is_err());
            }
            let mut document = sound();
            document.remove(field);
            read_document(&document);
        }
        assert!(refused > 50, "damaged documents are refused: {refused}");
        read_document(&doc! {});
        assert!(read(&sound(), Duration::ZERO, true).1.is_ok());
    }

    proptest! {
        /// Only the own id with a token of the right type is an acquisition.
        #[test]
        fn any_document_is_an_acquisition_or_none(
            changes in vec((0..FIELDS.len(), 0..28_usize, any::<bool>()), 0..6),
        ) {
            let mut document = sound();
            for (field, value, is_removed) in changes {
                document.remove(FIELDS[field]);
                if !is_removed {
                    document.insert(FIELDS[field], corpus()[value].clone());
                }
            }
            read_document(&document);
            let is_own = document.get_str("lockId").ok() == Some(OWN);
            let has_token = document.get_i64("fencingToken").is_ok();
            match read(&document, Duration::ZERO, false).0 {
                Ok(AcquireReply::Acquired { last_token, .. }) => {
                    prop_assert!(is_own);
                    prop_assert_eq!(Some(last_token.get()), document.get_i64("fencingToken").ok());
                }
                Ok(AcquireReply::Held { .. }) => prop_assert!(!is_own),
                Err(LockError::CorruptDocument { .. }) if is_own => prop_assert!(!has_token),
                Err(LockError::CorruptDocument { .. }) => {
                    prop_assert!(document.get_datetime("expiresAt").is_err());
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
    }
}
