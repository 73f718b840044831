//! Which documents the events of turns make. No input or output.

use std::collections::HashMap;

use mongodb::bson::{DateTime, Document, doc};

use crate::log::{End, Event, Key, What};

/// The turns that have not ended, by their locks: the `_id` and the beginning of their documents.
#[derive(Debug)]
pub(super) struct Book {
    open: HashMap<Key, (Document, DateTime)>,
}

impl Book {
    pub(super) fn new(open: impl IntoIterator<Item = (Key, Document, DateTime)>) -> Self {
        let open = open.into_iter().map(|(key, id, from)| (key, (id, from)));
        Self { open: open.collect() }
    }

    /// The statements of an update that write what these events mean. Writing them again changes nothing.
    pub(super) fn add(&mut self, events: impl IntoIterator<Item = Event>) -> Vec<Document> {
        let mut statements = Vec::new();
        for event in events {
            match event.what {
                What::Acquired | What::Present(Some(End::Held)) => self.begin(event, &mut statements),
                // Its id is that of the notes.
                What::Changed => {
                    let open = self.open.get(&event.key);
                    let changed = doc! { "$set": { "lockId": event.hold.lock_id } };
                    statements.extend(open.map(|(id, _)| doc! { "q": { "_id": id }, "u": changed }));
                }
                What::Ended(end) => self.end(&event.key, end, event.at, &mut statements),
                _ => {}
            }
        }
        statements
    }

    fn begin(&mut self, event: Event, statements: &mut Vec<Document>) {
        let from = event.hold.acquired_at.unwrap_or(event.at);
        match self.open.get(&event.key) {
            // An event that was read before.
            Some((_, known)) if *known >= from => return,
            Some(_) => self.end(&event.key, End::ExpiredBy, from, statements),
            None => {}
        }
        let Key { name, permit } = &event.key;
        // A permit has no token.
        let token = event.hold.token.unwrap_or(from.timestamp_millis());
        let mut id = doc! { "name": name, "token": token };
        if let Some(permit) = permit {
            id.insert("permit", i64::from(*permit));
        }
        let mut known = doc! { "from": from };
        // A present hold is found without its id.
        match (event.hold.lock_id, event.hold.owner) {
            (Some(lock_id), _) => known.insert("lockId", lock_id),
            (None, owner) => known.insert("owner", owner),
        };
        // A turn that has gone on over a gap is open again.
        let beginning = doc! { "$set": known, "$unset": { "to": 1, "end": 1 } };
        statements.push(doc! { "q": { "_id": &id }, "u": beginning, "upsert": true });
        self.open.insert(event.key, (id, from));
    }

    fn end(&mut self, key: &Key, end: End, at: DateTime, statements: &mut Vec<Document>) {
        let Some((id, from)) = self.open.remove(key) else {
            return;
        };
        if from > at {
            // The end of an earlier turn, which was read before.
            self.open.insert(key.clone(), (id, from));
            return;
        }
        let end = doc! { "$set": { "to": at, "end": end.as_str() } };
        statements.push(doc! { "q": { "_id": id }, "u": end });
    }

    /// The statements for a time of which the events are lost. The turns end at its beginning, unless they are found again.
    pub(super) fn gap(&mut self, from: DateTime, to: DateTime) -> Vec<Document> {
        let gap = doc! { "$set": { "from": from, "to": to, "end": "gap" } };
        let mut statements = vec![doc! { "q": { "_id": { "gap": from } }, "u": gap, "upsert": true }];
        let open: Vec<Key> = self.open.keys().cloned().collect();
        for key in open {
            self.end(&key, End::Unknown, from, &mut statements);
        }
        statements
    }
}
