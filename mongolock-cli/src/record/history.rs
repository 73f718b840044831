//! The collection with the history: a document for each turn and for each gap, and one with the time up to which it is complete.

use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::Error;

use crate::connection::Collections;
use crate::driver;
use crate::failure::Failure;
use crate::log::{End, Event, Hold, Key, What, code};

/// The `_id` of the document with the position.
const POSITION: &str = "position";

/// The server's code for an index that exists with another time.
const OTHER_OPTIONS: i32 = 85;

/// The server's code for a missing privilege.
const UNAUTHORIZED: i32 = 13;

/// How many statements one command has.
const STATEMENTS: usize = 1000;

pub(crate) struct History {
    turns: Collection<Document>,
}

impl History {
    pub(crate) fn of(collections: &Collections) -> Self {
        let name = format!("{}.history", collections.locks.name());
        Self {
            turns: collections.database.collection(&name),
        }
    }

    async fn run(&self, command: Document) -> Result<Document, Error> {
        let database = self.turns.client().database(&self.turns.namespace().db);
        database.run_command(command).await
    }

    /// Makes the index that removes turns so long after their end.
    pub(super) async fn set_up(&self, keep: Duration) -> Result<(), Failure> {
        let keep = i64::try_from(keep.as_secs()).unwrap_or(i64::MAX);
        let index = doc! { "key": { "to": 1 }, "name": "to", "expireAfterSeconds": keep };
        let name = self.turns.name();
        let made = self.run(doc! { "createIndexes": name, "indexes": [index] }).await;
        let made = match made {
            Err(error) if code(&error) == Some(OTHER_OPTIONS) => {
                let index = doc! { "name": "to", "expireAfterSeconds": keep };
                self.run(doc! { "collMod": name, "index": index }).await
            }
            made => made,
        };
        made.map(drop).map_err(failed)
    }

    /// The time up to which the history is complete.
    pub(crate) async fn position(&self) -> Result<Option<DateTime>, Failure> {
        let found = self
            .turns
            .find_one(doc! { "_id": POSITION })
            .await
            .map_err(failed)?;
        Ok(found.and_then(|found| found.get_datetime("at").ok().copied()))
    }

    pub(super) async fn set_position(&self, at: DateTime) -> Result<(), Failure> {
        let set = doc! { "$max": { "at": at } };
        self.write(vec![doc! { "q": { "_id": POSITION }, "u": set, "upsert": true }])
            .await
    }

    pub(super) async fn write(&self, statements: Vec<Document>) -> Result<(), Failure> {
        for some in statements.chunks(STATEMENTS) {
            let command = doc! {
                "update": self.turns.name(), "updates": some, "writeConcern": { "w": "majority" },
            };
            let reply = self.run(command).await.map_err(failed)?;
            if let Some(error) = reply
                .get_array("writeErrors")
                .ok()
                .and_then(|errors| errors.first())
            {
                return Err(Failure::new(format!("cannot write the history: {error}")));
            }
        }
        Ok(())
    }

    /// The turns that have not ended.
    pub(super) async fn open(&self) -> Result<Vec<(Key, Document, DateTime)>, Failure> {
        let found = self
            .read(doc! { "to": null, "from": { "$type": "date" } })
            .await
            .map_err(failed)?;
        let open = found.iter().filter_map(|turn| {
            Some((
                key(turn)?,
                turn.get_document("_id").ok()?.clone(),
                *turn.get_datetime("from").ok()?,
            ))
        });
        Ok(open.collect())
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

    async fn read(&self, wanted: Document) -> Result<Vec<Document>, Error> {
        let mut found = self.turns.find(wanted).await?;
        let mut all = Vec::new();
        while found.advance().await? {
            all.push(found.deserialize_current()?);
        }
        Ok(all)
    }
}

fn key(turn: &Document) -> Option<Key> {
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
    let hold = Hold {
        owner: lock_id.and_then(|id| Some(id.rsplit_once('#')?.0.to_owned())),
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

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes it by value")]
fn failed(error: Error) -> Failure {
    let failure = Failure::new(format!(
        "cannot use the history of the locks: {}",
        driver::text(&error)
    ));
    match code(&error) {
        Some(UNAUTHORIZED) => failure.help(
            "Grant `find`, `insert`, `update`, `createIndex` and `collMod` on the collection of the history.",
        ),
        _ => failure,
    }
}
