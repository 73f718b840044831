//! Encodes a value as the driver would send it.

// Which of the functions are called depends on the version of bson that the application has chosen.
#![allow(
    dead_code,
    unused_imports,
    clippy::useless_conversion,
    clippy::wildcard_imports
)]

use mongodb::bson::Document;
use mongodb::error::Error;
use serde::Serialize;

use crate::LockError;

/// Encodes a value through its raw form, as the driver does, so that binary values do not become text.
pub(super) fn document<T: Serialize>(value: &T) -> Result<Document, LockError> {
    // bson 2 has a function of this name. In bson 3 the import does not contain it, and the function in this module is
    // called.
    use mongodb::bson::*;
    let raw = to_raw_document_buf(value).map_err(Error::from)?;
    let document = Document::try_from(&*raw).map_err(Error::from)?;
    Ok(document)
}

/// Encodes with bson 3, which has renamed the function of bson 2. An import in a function takes precedence over the
/// items around it: with bson 2 its own function is called, and with bson 3 this one.
fn to_raw_document_buf<T: Serialize>(value: &T) -> Result<mongodb::bson::RawDocumentBuf, Error> {
    use mongodb::bson::*;
    serialize_to_raw_document_buf(value).map_err(Error::from)
}

/// This function exists so that the code compiles with bson 2, which does not call it.
fn serialize_to_raw_document_buf<T: Serialize>(_: &T) -> Result<mongodb::bson::RawDocumentBuf, Error> {
    unreachable!("bson has one of the two functions")
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Binary, Bson, DateTime, doc, oid::ObjectId, spec::BinarySubtype};

    use super::*;

    #[derive(Serialize)]
    struct Report {
        #[serde(rename = "_id")]
        id: ObjectId,
        at: DateTime,
        pages: Option<i32>,
        key: Key,
    }

    /// A key that serialises to text in human-readable formats and to bytes in others, as many types do.
    struct Key([u8; 16]);

    impl Serialize for Key {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            if serializer.is_human_readable() {
                serializer.serialize_str("nine")
            } else {
                serializer.serialize_bytes(&self.0)
            }
        }
    }

    /// With either version of bson, a value with a binary form is encoded in it, as in a write of the driver itself.
    #[test]
    fn values_are_encoded_as_the_driver_does() {
        let report = Report {
            id: ObjectId::from_bytes([7; 12]),
            at: DateTime::from_millis(1_763_700_000_000),
            pages: Some(3),
            key: Key([9; 16]),
        };
        let key = Binary {
            subtype: BinarySubtype::Generic,
            bytes: vec![9; 16],
        };
        let wanted = doc! { "_id": report.id, "at": report.at, "pages": 3_i32, "key": key };
        assert_eq!(document(&report).unwrap(), wanted);
        let null = document(&doc! { "x": Bson::Null }).unwrap();
        assert!(matches!(null.get("x"), Some(Bson::Null)));
        assert!(document(&7).is_err(), "it is no document");
    }
}
