use std::sync::Arc;

use mongodb::bson::{DateTime, Document, Timestamp};

use super::mongo::fields::sight;
use crate::protocol::News;

/// A change of the documents, as operators see it.
pub(crate) struct Change {
    /// The time of the change; before MongoDB 6.0 its second.
    pub(crate) at: DateTime,
    /// The server's place of the change in the order of all changes.
    pub(crate) place: Timestamp,
    /// What has happened to which lock. It has no name if the collection was dropped or renamed; `None` if the change concerns no
    /// lock.
    pub(crate) news: Option<News>,
}

impl Change {
    pub(super) fn of(event: &Document) -> Self {
        let place = event.get_timestamp("clusterTime");
        let place = place.unwrap_or(Timestamp {
            time: 0,
            increment: 0,
        });
        let document = event.get_document("fullDocument");
        let at = document.and_then(|document| document.get_datetime("now"));
        Self {
            at: at.copied().unwrap_or_else(|_| second(place)),
            place,
            news: news(event),
        }
    }
}

/// The second of an operation.
pub(crate) fn second(place: Timestamp) -> DateTime {
    DateTime::from_millis(i64::from(place.time) * 1000)
}

fn news(event: &Document) -> Option<News> {
    let operation = event.get_str("operationType").ok()?;
    let name = match (event.get_document("documentKey"), operation) {
        (Ok(key), _) => key.get_str("_id").ok()?,
        (Err(_), "drop" | "rename" | "dropDatabase") => "",
        (Err(_), _) => return None,
    };
    let document = event.get_document("fullDocument").ok();
    let has_document = ["insert", "replace", "update"].contains(&operation);
    Some(News {
        name: Arc::from(name),
        sight: document.filter(|_| has_document).map(sight),
    })
}
