//! Runs rows on the server: one row with one command; several rows with one update, and with a query if its totals do
//! not show the result of each row.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::Document;
use mongodb::error::Error;

use super::MongoStore;
use super::encoder::by_server;
use super::fields::sight;
use crate::LockError;
use crate::error::meaning::Meaning;
use crate::protocol::{Name, Order, Reply, Row, Sight, Then, apply};
use crate::store::error::corrupt;
use crate::store::look::{Looked, Part};
use crate::store::{Replies, reply};

impl MongoStore {
    /// Runs these rows. An error of the query alone is the inner one: the rows may have been
    /// applied.
    pub(in crate::store) async fn run(
        &self,
        rows: &[Row],
        order: Order,
        limit: Duration,
    ) -> Result<Replies, LockError> {
        let ran = match rows {
            [row] => self.run_one(row, limit).await.map(|reply| Ok(vec![Ok(reply)])),
            // The future is on the heap, so that the task for a single lock is not larger.
            rows => Box::pin(self.run_several(rows, order, limit)).await,
        };
        self.note(&rows[0].then, &ran);
        ran
    }

    async fn run_one(&self, row: &Row, limit: Duration) -> Result<Reply, LockError> {
        let command = by_server().one(self.locks.name(), row);
        let reply = match self.write(command, limit).await {
            // Two clients inserted the first document of a name at the same time, and the other one has the lock.
            Err(error) if row.may_insert() && Meaning::of(&error) == Meaning::DuplicateKey => {
                return Ok(Reply::UNSEEN);
            }
            reply => reply?,
        };
        match reply.get_document("value").ok().map(sight) {
            Some(seen) if row.may_insert() => Ok(after(row, Some(seen), None)),
            Some(before) => applied(row, before),
            // An upsert that returns the new document always has one.
            None if row.may_insert() => {
                let problem = "the server returned no document after an upsert";
                Err(corrupt(&row.name, problem.into()))
            }
            None => Ok(Reply::UNSEEN),
        }
    }

    async fn run_several(&self, rows: &[Row], order: Order, limit: Duration) -> Result<Replies, LockError> {
        let command = by_server().several(self.locks.name(), rows, order);
        let ran = self.run_write(command, limit).await;
        let (mut failed, mut are_applied) = (HashMap::new(), None);
        if order == Order::Each && rows.iter().any(Row::may_insert) {
            let errors = reply::outcome_of_upserts(ran)?;
            failed.extend(errors.into_iter().map(|(index, error)| (index, error.into())));
            self.note_confirmed();
            if failed.len() == rows.len() {
                let of_row = |index| failed.remove(&index).map_or(Ok(Reply::UNSEEN), Err);
                return Ok(Ok((0..rows.len()).map(of_row).collect()));
            }
        } else {
            let matched = matched(reply::outcome(ran))?;
            self.note_confirmed();
            are_applied = match matched {
                0 => Some(false),
                matched => (matched == rows.len()).then_some(true),
            };
            // An acquisition needs the query, for its token and its time. After a detachment or a restored id the
            // document has only what the row has written.
            let acquires = rows.iter().any(Row::acquires);
            let is_known = order == Order::Each || matches!(rows[0].then, Then::Rename { .. });
            if are_applied == Some(true) && is_known && !acquires {
                let told = Reply {
                    is_applied: are_applied,
                    sight: None,
                };
                return Ok(Ok(rows.iter().map(|_| Ok(told.clone())).collect()));
            }
        }
        let looked = Looked::Names(rows.iter().map(|row| Arc::clone(&row.name)).collect());
        // With less than a majority a failover could take an acquisition back.
        let found: HashMap<Name, Sight> = match self.find(&looked, Part::ALL, "majority", limit).await {
            Ok(found) => found.into_iter().collect(),
            Err(error) => return Ok(Err(error)),
        };
        let replies = rows
            .iter()
            .enumerate()
            .map(|(index, row)| match failed.remove(&index) {
                Some(error) => Err(error),
                None => Ok(after(row, found.get(&row.name).cloned(), are_applied)),
            });
        Ok(Ok(replies.collect()))
    }
}

/// The number of documents that the statements of an update have matched. An update that has stopped at a miss has no
/// number.
fn matched(ran: mongodb::error::Result<Document>) -> Result<usize, Error> {
    match ran {
        Err(error) if Meaning::of(&error) == Meaning::NoBranch => Ok(0),
        // The matched documents count, not the modified ones: a second renewal within one millisecond changes nothing.
        reply => Ok(reply?
            .get_i32("n")
            .map_or(0, |n| usize::try_from(n).unwrap_or_default())),
    }
}

/// The reply for a row whose document was read after its command. `is_applied` is known if the command has changed all
/// documents, or none.
fn after(row: &Row, sight: Option<Sight>, is_applied: Option<bool>) -> Reply {
    let has = |id: &Arc<str>| sight.as_ref().is_some_and(|sight| sight.has(id));
    Reply {
        is_applied: row.then.new_id().map(has).or(is_applied),
        sight,
    }
}

/// The reply for a row whose reply has the old document, with the same time.
fn applied(row: &Row, before: Sight) -> Result<Reply, LockError> {
    let Some(now) = before.now else {
        return Err(corrupt(&row.name, "the reply has no time".into()));
    };
    let mut document = Some(before.document);
    let is_applied = apply(row, &mut document, now);
    // The server has ended the command if it cannot calculate with a field.
    let is_applied = is_applied.map_err(|_| corrupt(&row.name, "a field has the wrong type".into()))?;
    Ok(Reply {
        is_applied: Some(is_applied),
        sight: document.map(|document| Sight {
            document,
            now: Some(now),
        }),
    })
}
