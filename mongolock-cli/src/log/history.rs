//! The history that `record` writes: a document for each turn and for each gap, and one with the time up to which it is complete.

use mongodb::bson::{DateTime, Document, doc, from_bson};
use mongodb::error::Error;

use super::steps::Step;
use super::turns::{Event, Hold, Key, What};
use crate::connection::Collections;
use crate::driver;

/// The `_id` of the document with the position.
pub(crate) const POSITION: &str = "position";

/// The time from which on the history is complete, and that up to which.
pub(crate) async fn position(collections: &Collections) -> Result<Option<(DateTime, DateTime)>, Error> {
    let found = collections.history.find_one(doc! { "_id": POSITION }).await?;
    let date = |field| found.as_ref()?.get_datetime(field).ok().copied();
    Ok(date("at").map(|at| (date("since").unwrap_or(at), at)))
}

/// The events of the turns that were on in a time; none without the right to read them.
pub(super) async fn recorded(collections: &Collections, names: Document, of: Step) -> Vec<Event> {
    let wanted = doc! { "$and": [
        { "$or": [{ "to": { "$type": "object" } }, { "to": { "$gte": of.since } }] },
        { "from": { "$lt": of.until } },
        { "$or": [names, { "_id.gap": { "$exists": true } }] },
    ] };
    let found = driver::all(collections.history.find(wanted).await).await;
    let mut turns: Vec<Vec<Event>> = found.unwrap_or_default().iter().filter_map(events).collect();
    // Two turns of a lock may begin in the same millisecond.
    turns.sort_by_key(|events| (events[0].at, events[0].hold.token));
    let mut events = turns.concat();
    // A gap ends with the batch that has found it, which is the last one for ten seconds.
    events.retain(|event| event.at < of.until || matches!(event.what, What::RecordedGap(_)));
    events
}

/// What a document says: its turn begins, and ends if it is over.
fn events(document: &Document) -> Option<Vec<Event>> {
    let date = |field| document.get_datetime(field).ok().copied();
    let (from, to, id) = (date("from")?, date("to"), document.get_document("_id").ok()?);
    let Ok(name) = id.get_str("name") else {
        let mut gap = Event::gap(from, to?);
        gap.what = What::RecordedGap(from);
        return Some(vec![gap]);
    };
    let permit = id
        .get_i64("permit")
        .ok()
        .and_then(|number| u32::try_from(number).ok());
    let lock_id = document.get_str("lockId").ok();
    let token = document.get_i64("token").or(id.get_i64("token")).ok();
    let begun = Event {
        what: What::Acquired,
        at: from,
        key: Key {
            name: name.to_owned(),
            permit,
        },
        hold: Hold {
            owner: lock_id.and_then(|id| Some(id.rsplit_once('#')?.0.to_owned())),
            lock_id: lock_id.map(str::to_owned),
            token: token.filter(|_| permit.is_none()),
            acquired_at: Some(from),
        },
        expires_at: None,
    };
    let end = document.get("end").and_then(|end| from_bson(end.clone()).ok());
    let ended = to.zip(end).map(|(at, end)| Event {
        what: What::Ended(end),
        at,
        ..begun.clone()
    });
    Some([begun].into_iter().chain(ended).collect())
}
