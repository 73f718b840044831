//! The history that `record` writes: a document for each turn and for each gap, and one with the time up to which it is complete.

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::Error;

use super::turns::{End, Event, Hold, Key, What};
use crate::connection::Collections;

/// The `_id` of the document with the position.
pub(crate) const POSITION: &str = "position";

/// The collection with the history.
pub(crate) struct History {
    pub(crate) turns: Collection<Document>,
}

impl History {
    pub(crate) fn of(collections: &Collections) -> Self {
        let name = format!("{}.history", collections.locks.name());
        Self {
            turns: collections.database.collection(&name),
        }
    }

    /// The time up to which the history is complete.
    pub(crate) async fn position(&self) -> Result<Option<DateTime>, Error> {
        let found = self.turns.find_one(doc! { "_id": POSITION }).await?;
        Ok(found.and_then(|found| found.get_datetime("at").ok().copied()))
    }

    /// The events of the turns that were on after a time, up to another one; none without the right to read them.
    pub(crate) async fn events(&self, names: Document, since: DateTime, before: DateTime) -> Vec<Event> {
        let wanted = doc! { "$and": [
            { "$or": [{ "to": null }, { "to": { "$gte": since } }] },
            { "from": { "$lt": before } },
            { "$or": [names, { "end": "gap" }] },
        ] };
        let mut found = self.read(wanted).await.unwrap_or_default();
        // One turn may end and the next begin at the same time.
        found.sort_by_key(|turn| turn.get_datetime("from").ok().copied());
        let mut events: Vec<Event> = found.iter().filter_map(events).flatten().collect();
        events.retain(|event| event.at < before);
        events.sort_by_key(|event| event.at);
        events
    }

    pub(crate) async fn read(&self, wanted: Document) -> Result<Vec<Document>, Error> {
        let mut found = self.turns.find(wanted).await?;
        let mut all = Vec::new();
        while found.advance().await? {
            all.push(found.deserialize_current()?);
        }
        Ok(all)
    }
}

/// The lock of a turn.
pub(crate) fn key(turn: &Document) -> Option<Key> {
    let id = turn.get_document("_id").ok()?;
    let permit = id
        .get_i64("permit")
        .ok()
        .and_then(|number| u32::try_from(number).ok());
    Some(Key {
        name: id.get_str("name").ok()?.to_owned(),
        permit,
    })
}

/// What a document says: its turn begins, and ends if it is over.
fn events(document: &Document) -> Option<Vec<Event>> {
    let from = *document.get_datetime("from").ok()?;
    let to = document.get_datetime("to").ok().copied();
    let end = document.get_str("end").unwrap_or_default();
    let event = |what, at, key: &Key, hold: Hold| Event {
        what,
        at,
        key: key.clone(),
        hold,
        expires_at: None,
    };
    let Some(key) = key(document) else {
        return Some(vec![event(
            What::RecordedGap(from),
            to?,
            &Key::default(),
            Hold::default(),
        )]);
    };
    let lock_id = document.get_str("lockId").ok();
    let id = document.get_document("_id").ok()?;
    let owner = lock_id.and_then(|id| Some(id.rsplit_once('#')?.0));
    let owner = owner.or_else(|| document.get_str("owner").ok());
    let hold = Hold {
        owner: owner.map(str::to_owned),
        lock_id: lock_id.map(str::to_owned),
        token: id.get_i64("token").ok().filter(|_| key.permit.is_none()),
        acquired_at: Some(from),
    };
    let mut events = vec![event(What::Acquired, from, &key, hold.clone())];
    if let (Some(to), Some(end)) = (to, End::of(end)) {
        events.push(event(What::Ended(end), to, &key, hold));
    }
    Some(events)
}
