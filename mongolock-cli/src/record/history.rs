//! How the history is written.

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::Error;

use crate::driver;
use crate::failure::Failure;
use crate::log::{History, Key, POSITION, code, key};

/// The server's code for an index that exists with another time.
const OTHER_OPTIONS: i32 = 85;

/// The server's code for a missing privilege.
const UNAUTHORIZED: i32 = 13;

/// How many statements one command has.
const STATEMENTS: usize = 1000;

impl History {
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
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes it by value")]
pub(super) fn failed(error: Error) -> Failure {
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
