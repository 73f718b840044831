use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, RawBsonRef, RawDocument, doc};
use mongodb::options::ReadConcern;

use super::{ProviderMark, Waiter, WaiterEntry, WaitersByName};
use crate::LockError;
use crate::store::mongo::{MongoStore, millis};
use crate::timing::{WAITER_AHEAD, WAITER_KEPT};

/// The time that a waiter is left if its document does not say how long it needs.
const DEFAULT_TIME_SLOT: Duration = Duration::from_millis(5);

impl MongoStore {
    /// Enters the lines of these names, or moves to their ends, with one command. The `_id` follows from the provider and
    /// the name, so a document that was lost is written again, and there are never two.
    ///
    /// A place is the server's time, and at least a millisecond after the last known place of the line: after a failover
    /// to a clock that is behind, the end of the line is in the future, by [`WAITER_AHEAD`] at most. A command that takes
    /// effect late does not take back what a later one has done.
    pub(crate) async fn move_to_end(
        &self,
        entries: &[WaiterEntry],
        limit: Duration,
    ) -> Result<(), LockError> {
        let updates: Vec<Document> = entries.iter().map(place_update).collect();
        let command = doc! { "update": self.waiters.name(), "updates": updates, "ordered": false };
        self.write_hint(command, limit).await.map(drop)
    }

    /// Keeps the documents of a provider for another while, those of all these names with one command. It writes no
    /// document that was removed.
    pub(crate) async fn prolong_waits(
        &self,
        provider: &ProviderMark,
        names: &[Arc<str>],
        limit: Duration,
    ) -> Result<(), LockError> {
        let command = doc! {
            "update": self.waiters.name(),
            "updates": [{ "q": of_provider(provider, names), "u": [{ "$set": { "until": kept() } }], "multi": true }],
        };
        self.write_hint(command, limit).await.map(drop)
    }

    /// Removes the documents of a provider for these names.
    pub(crate) async fn leave_lines(
        &self,
        provider: &ProviderMark,
        names: &[Arc<str>],
        limit: Duration,
    ) -> Result<(), LockError> {
        let command = doc! {
            "delete": self.waiters.name(),
            "deletes": [{ "q": of_provider(provider, names), "limit": 0 }],
        };
        self.write_hint(command, limit).await.map(drop)
    }

    /// Reads the lines of these names with one query. It reads what the primary has, without waiting for a majority: a
    /// provider must see its own write of some milliseconds ago.
    pub(crate) async fn lines(
        &self,
        names: &[Arc<str>],
        limit: Duration,
    ) -> Result<WaitersByName, LockError> {
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        let mut found = self
            .waiters
            // The documents of processes that have died are ignored before the TTL monitor removes them.
            .find(doc! { "name": { "$in": names }, "$expr": { "$gt": ["$until", "$$NOW"] } })
            .sort(doc! { "name": 1, "at": 1, "_id": 1 })
            .read_concern(ReadConcern::local())
            .max_time(limit)
            .await?;
        let mut lines = WaitersByName::new();
        while found.advance().await? {
            if let Some((name, waiter)) = waiter(found.current()) {
                lines.entry(Arc::from(name)).or_default().push(waiter);
            }
        }
        Ok(lines)
    }

    /// Runs one write command on the waiters. The acknowledgement of the primary is enough for a hint.
    async fn write_hint(&self, command: Document, limit: Duration) -> Result<Document, LockError> {
        let concern = doc! { "w": 1 };
        Ok(self.write_with(&self.waiters, command, concern, limit).await?)
    }
}

/// The update of a document that enters a line or moves to its end. The caller's strings are literals, so that they are
/// not read as field paths. A present place that is no date is ignored, so that a damaged document is repaired.
fn place_update(entry: &WaiterEntry) -> Document {
    let is_date = doc! { "$eq": [{ "$type": "$at" }, "date"] };
    let own = doc! { "$cond": [is_date, "$at", "$$NOW"] };
    let after_last = entry.last.map_or("$$NOW".into(), |last| {
        Bson::from(DateTime::from_millis(last.timestamp_millis().saturating_add(1)))
    });
    let latest = doc! { "$add": ["$$NOW", millis(WAITER_AHEAD)] };
    let end = doc! { "$min": [{ "$max": [after_last, own.clone()] }, latest] };
    let at = if entry.keeps_place {
        own
    } else {
        doc! { "$max": ["$$NOW", end] }
    };
    let before = |waited| Bson::from(doc! { "$subtract": ["$$NOW", millis(waited)] });
    let stage = doc! { "$set": {
        "name": { "$literal": &*entry.name },
        "provider": { "$literal": entry.provider.as_str() },
        "owner": { "$literal": &*entry.owner },
        "at": at,
        "since": entry.waited.map_or(Bson::Null, before),
        "moment": millis(entry.time_slot),
        "until": kept(),
    } };
    doc! { "q": { "_id": id(&entry.provider, &entry.name) }, "u": [stage], "upsert": true }
}

/// The time until which a document is kept without being prolonged.
fn kept() -> Document {
    doc! { "$add": ["$$NOW", millis(WAITER_KEPT)] }
}

/// The documents of a provider for these names.
fn of_provider(provider: &ProviderMark, names: &[Arc<str>]) -> Document {
    let ids: Vec<String> = names.iter().map(|name| id(provider, name)).collect();
    doc! { "_id": { "$in": ids } }
}

/// The `_id` of the document of a provider for one name.
fn id(provider: &ProviderMark, name: &str) -> String {
    format!("{}:{name}", provider.as_str())
}

/// The waiter in one document; `None` if the document is damaged, because a hint that cannot be read says nothing. Only
/// these fields are read: one that cannot be read must not make the lines of all others unknown.
fn waiter(document: &RawDocument) -> Option<(&str, Waiter)> {
    let time_slot = document.get("moment").ok().flatten().and_then(number);
    let waiter = Waiter {
        provider: Arc::from(document.get_str("provider").ok()?),
        owner: document.get_str("owner").unwrap_or_default().to_owned(),
        at: document.get_datetime("at").ok()?,
        since: document.get_datetime("since").ok(),
        time_slot: time_slot.map_or(DEFAULT_TIME_SLOT, Duration::from_millis),
    };
    Some((document.get_str("name").ok()?, waiter))
}

/// A number that is not negative, as any of the server's integers.
fn number(value: RawBsonRef<'_>) -> Option<u64> {
    match value {
        RawBsonRef::Int32(number) => u64::try_from(number).ok(),
        RawBsonRef::Int64(number) => u64::try_from(number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::RawDocumentBuf;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A value of any type that a damaged or foreign document may have.
    fn any_value() -> impl Strategy<Value = Bson> {
        prop_oneof![
            Just(Bson::Null),
            Just(Bson::MaxKey),
            Just(Bson::MinKey),
            any::<bool>().prop_map(Bson::from),
            any::<i32>().prop_map(Bson::from),
            any::<i64>().prop_map(Bson::from),
            any::<f64>().prop_map(Bson::from),
            ".{0,20}".prop_map(Bson::from),
            any::<i64>().prop_map(|at| DateTime::from_millis(at).into()),
            any::<i64>().prop_map(|inner| doc! { "at": inner }.into()),
            // What looks like a date, and cannot be read as one.
            Just(doc! { "$date": "never" }.into()),
            any::<i64>().prop_map(|inner| Bson::Array(vec![inner.into()])),
        ]
    }

    const FIELDS: [&str; 9] = [
        "_id", "name", "provider", "owner", "at", "since", "moment", "until", "unknown",
    ];

    proptest! {
        /// What a document has of a waiter is read, and nothing else decides whether it is one.
        #[test]
        fn any_document_is_a_waiter_or_says_nothing(
            changes in vec((0..FIELDS.len(), any_value(), any::<bool>()), 0..6),
        ) {
            let mut document = doc! {
                "_id": "p:n", "name": "n", "provider": "p", "owner": "o", "at": DateTime::from_millis(1),
                "since": Bson::Null, "moment": 7, "until": DateTime::from_millis(2),
            };
            for (field, value, is_removed) in changes {
                document.remove(FIELDS[field]);
                if !is_removed {
                    document.insert(FIELDS[field], value);
                }
            }
            let is_sound = document.get_str("name").is_ok()
                && document.get_str("provider").is_ok()
                && document.get_datetime("at").is_ok();
            let raw = RawDocumentBuf::try_from(&document).unwrap();
            let read = waiter(&raw);
            prop_assert_eq!(read.is_some(), is_sound);
            if let Some((name, waiter)) = read {
                prop_assert_eq!(Some(name), document.get_str("name").ok());
                prop_assert_eq!(Some(&waiter.at), document.get_datetime("at").ok());
                prop_assert_eq!(waiter.since.as_ref(), document.get_datetime("since").ok());
            }
        }
    }
}
