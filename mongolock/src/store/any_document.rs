//! Documents that a server can send: damaged ones and those of other programs are refused with an error, and nothing
//! panics.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc, oid::ObjectId};

use super::info::info;
use super::mongo::fields::sight;
use super::reply;
use super::rows::damage;
use crate::LockError;
use crate::duration::millis;
use crate::protocol::{Reply, Row, Then, When};

/// The margins with which a document is read.
const MARGINS: [Duration; 2] = [Duration::ZERO, Duration::from_secs(86_400)];

/// The id of the claim that reads the document.
const OWN: &str = "owner#1";

/// Reads a document as every kind of reply that it can be.
fn read_document(document: &Document) {
    let sight = sight(document);
    if let Some(error) = damage_of(document) {
        drop(format!("{error}: {}", error.help()));
    }
    for margin in MARGINS {
        sight.is_free(millis(margin));
        sight.until_free(millis(margin));
        if let Ok(info) = info("n", &sight, margin) {
            // Everything that is shown about a lock.
            drop(format!("{info:?}"));
        }
    }
    drop(reply::outcome(Ok(document.clone()), true));
}

/// What a claim finds damaged in the document.
fn damage_of(document: &Document) -> Option<LockError> {
    let (is_applied, sight) = (None, Some(sight(document)));
    damage((&claim(), &Reply { is_applied, sight }))
}

fn claim() -> Row {
    Row {
        name: Arc::from("n"),
        when: When::Free { margin: 0 },
        then: Then::Claim {
            id: Arc::from(OWN),
            expiry: 30_000,
            tokens: 1,
        },
    }
}

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
            refused += u32::from(info("n", &sight(&document), Duration::ZERO).is_err());
        }
        let mut document = sound();
        document.remove(field);
        read_document(&document);
    }
    assert!(refused > 50, "damaged documents are refused: {refused}");
    read_document(&doc! {});
    assert!(info("n", &sight(&sound()), Duration::ZERO).is_ok());
}

/// A claim refuses its own document without a token of the right type, and that of another holder without an end.
#[test]
fn any_document_can_be_read() {
    for seed in 0..256 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut document = sound();
        for _ in 0..random.usize(0..6) {
            let field = FIELDS[random.usize(..FIELDS.len())];
            document.remove(field);
            if random.bool() {
                let value = random.choice(corpus());
                document.insert(field, value.expect("the corpus is not empty"));
            }
        }
        read_document(&document);
        let is_damaged = match document.get_str("lockId") {
            Ok("") => false,
            Ok(OWN) if document.get_i64("fencingToken").is_err() => true,
            _ => document.get_datetime("expiresAt").is_err(),
        };
        let found = damage_of(&document);
        assert_eq!(found.is_some(), is_damaged, "{document}");
        let is_corrupt = |error| matches!(error, LockError::CorruptDocument { .. });
        assert!(found.is_none_or(is_corrupt), "{document}");
    }
}
