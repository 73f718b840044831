//! Documents that the server sends, and their values.

use std::sync::Arc;

use mongodb::bson::raw::RawDocumentBuf;
use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::protocol::{Document as Fields, Sight, Value};

/// The name of the only field of a document that keeps a value of any type.
const ONLY: &str = "";

/// The sight of a document that a command has read with [`Encoder::fields`](super::encoder::Encoder::fields).
pub(in crate::store) fn sight(document: &Document) -> Sight {
    let field = |name| document.get(name).map_or(Value::Missing, value);
    Sight {
        document: Fields {
            lock_id: field("lockId"),
            acquired_at: field("acquiredAt"),
            expires_at: field("expiresAt"),
            token: field("fencingToken"),
        },
        now: document
            .get_datetime("now")
            .ok()
            .map(|now| now.timestamp_millis()),
    }
}

fn value(bson: &Bson) -> Value {
    match bson {
        Bson::Null => Value::Null,
        Bson::Int32(number) => Value::Int(*number),
        Bson::Int64(number) => Value::Long(*number),
        Bson::Double(number) => Value::Double(*number),
        Bson::String(text) => Value::Text(Arc::from(&**text)),
        Bson::DateTime(date) => Value::Date(date.timestamp_millis()),
        other => match RawDocumentBuf::try_from(&doc! { ONLY: other }) {
            Ok(document) => Value::Other(Arc::from(document.as_bytes())),
            // Every document of the server can be encoded.
            Err(_) => Value::Null,
        },
    }
}

/// The value as BSON; `None` if the field does not exist.
pub(in crate::store) fn bson(value: &Value) -> Option<Bson> {
    Some(match value {
        Value::Missing => return None,
        Value::Null => Bson::Null,
        Value::Int(number) => (*number).into(),
        Value::Long(number) => (*number).into(),
        Value::Double(number) => (*number).into(),
        Value::Text(text) => (&**text).into(),
        Value::Date(date) => DateTime::from_millis(*date).into(),
        Value::Other(bytes) => {
            let document = RawDocumentBuf::from_bytes(bytes.to_vec()).ok()?;
            Document::try_from(&*document).ok()?.remove(ONLY)?
        }
    })
}
