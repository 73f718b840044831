//! What the server's reply to a write command says.

use mongodb::bson::Document;
use mongodb::error::{ErrorKind, Result, WriteFailure};
use serde::de::value::{Error as ValueError, MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// The outcome of a write command that was run as a plain command: the same as the driver's own write methods have.
///
/// `run_command` answers `Ok` for every reply with `ok: 1`, also if the write itself failed or was not confirmed by a
/// majority. Only a reply without `writeErrors` and without `writeConcernError` is a confirmed write.
pub(super) fn outcome(ran: Result<Document>) -> Result<Document> {
    let reply = ran?;
    match failure_in(&reply) {
        Some(failure) => Err(ErrorKind::Write(failure).into()),
        None => Ok(reply),
    }
}

/// The failure that a reply with `ok: 1` carries. A write error comes first: nothing was written then.
fn failure_in(reply: &Document) -> Option<WriteFailure> {
    if let Ok(errors) = reply.get_array("writeErrors")
        && let Some(error) = errors.first()
    {
        let error = error.as_document().cloned().unwrap_or_default();
        return Some(WriteFailure::WriteError(read(&error)));
    }
    let concern = reply.get("writeConcernError")?;
    let concern = concern.as_document().cloned().unwrap_or_default();
    Some(WriteFailure::WriteConcernError(read(&concern)))
}

/// Whether a reply says that something may have been written although it is an error: a write concern error beside
/// `ok: 0` is what a batch gives that ran out of time half-way.
pub(crate) fn may_be_applied(reply: &Document) -> bool {
    reply.contains_key("writeConcernError")
}

/// The driver's error type with the fields of this document. The driver offers no constructor, and bson 2 and bson 3
/// have no way in common to read a document, hence by serde.
pub(crate) fn read<T: for<'de> Deserialize<'de>>(error: &Document) -> T {
    let text = |key| error.get_str(key).unwrap_or_default();
    let code = error.get_i32("code").unwrap_or_default();
    let labels = error.get_array("errorLabels").ok();
    let labels = labels.into_iter().flatten().filter_map(|label| label.as_str());
    let fields = [
        ("code", Field::Code(code)),
        ("codeName", Field::Text(text("codeName"))),
        ("errmsg", Field::Text(text("errmsg"))),
        ("errorLabels", Field::Labels(labels.collect())),
    ];
    match T::deserialize(MapDeserializer::new(fields.into_iter())) {
        Ok(error) => error,
        Err(error) => unreachable!("these are the fields of the driver's errors: {error}"),
    }
}

/// One field of an error in a reply.
enum Field<'a> {
    Code(i32),
    Text(&'a str),
    Labels(Vec<&'a str>),
}

impl IntoDeserializer<'_, ValueError> for Field<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Field<'_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, ValueError> {
        match self {
            Self::Code(code) => visitor.visit_i32(code),
            Self::Text(text) => visitor.visit_str(text),
            Self::Labels(labels) => SeqDeserializer::new(labels.into_iter()).deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, ValueError> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
