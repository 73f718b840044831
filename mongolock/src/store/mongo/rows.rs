//! Runs rows on the server: one row with one command; several rows with one update, and with a query if its totals do
//! not show the result of each row.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, doc};

use super::MongoStore;
use super::encoder::by_server;
use super::fields::sight;
use crate::LockError;
use crate::meter::CommandKind;
use crate::protocol::{Name, Reply, Row, RowOrder, Sight, Then, apply};
use crate::store::error::corrupt;
use crate::store::look::{ALL, Looked};
use crate::store::reply::NotRun;
use crate::timing::COMMAND_LIMIT;

impl MongoStore {
    /// Runs these rows.
    pub(in crate::store) async fn run(
        &self,
        kind: CommandKind,
        rows: &[Row],
        order: RowOrder,
        limit: Duration,
    ) -> Result<Vec<Reply>, NotRun> {
        let ran = match rows {
            [row] => self.run_one(kind, row, limit).await,
            // The future is on the heap, so that the task for a single lock is not larger.
            rows => Box::pin(self.run_several(kind, rows, order, limit)).await,
        };
        self.note(&rows[0].then, &ran);
        ran
    }

    async fn run_one(&self, kind: CommandKind, row: &Row, limit: Duration) -> Result<Vec<Reply>, NotRun> {
        let command = by_server().one(self.locks.name(), row);
        let reply = self.write(kind, command, limit, row.may_insert()).await?;
        Ok(vec![match reply.get_document("value").ok().map(sight) {
            Some(seen) if row.may_insert() => after(row, Some(seen), None),
            Some(before) => applied(row, before)?,
            None => Reply::UNSEEN,
        }])
    }

    async fn run_several(
        &self,
        kind: CommandKind,
        rows: &[Row],
        order: RowOrder,
        limit: Duration,
    ) -> Result<Vec<Reply>, NotRun> {
        let command = by_server().several(self.locks.name(), rows, order);
        let inserts = rows.iter().any(Row::may_insert);
        let reply = self.write(kind, command, limit, inserts).await?;
        // The matched documents count, not the modified ones: a second renewal within one millisecond changes nothing.
        let matched = usize::try_from(reply.get_i32("n").unwrap_or_default()).unwrap_or_default();
        let are_applied = match matched {
            0 => Some(false),
            matched => (matched == rows.len()).then_some(true),
        };
        // An acquisition needs the query, for its token and its time. After a detachment or a restored id the
        // document has only what the row has written.
        let is_known = order == RowOrder::Each || matches!(rows[0].then, Then::Rename { .. });
        if are_applied == Some(true) && is_known && !rows.iter().any(Row::acquires) {
            let told = Reply {
                is_applied: are_applied,
                sight: None,
            };
            return Ok(vec![told; rows.len()]);
        }
        let looked = Looked::Names(rows.iter().map(|row| Arc::clone(&row.name)).collect());
        // With less than a majority a failover could take an acquisition back.
        let found = self.find(kind, &looked, None, ALL, limit).await;
        let found = found.map_err(|error| NotRun {
            error,
            may_be_applied: true,
        })?;
        let found: HashMap<Name, Sight> = found.into_iter().collect();
        let reply = |row: &Row| after(row, found.get(&row.name).cloned(), are_applied);
        Ok(rows.iter().map(reply).collect())
    }

    /// Sends a command that needs the rights of an acquire and writes nothing: its `$switch` has no branch for any document.
    pub(in crate::store) async fn ask_for_rights(&self) {
        let never = doc! { "case": { "$eq": ["$_id", Bson::Null] }, "then": "$$ROOT" };
        let change = doc! { "$replaceWith": { "$switch": { "branches": [never] } } };
        let update = doc! { "q": { "_id": "" }, "u": [change], "upsert": true };
        let command = doc! { "update": self.locks.name(), "updates": [update] };
        let asked = self
            .write(CommandKind::Acquire, command, COMMAND_LIMIT, true)
            .await;
        self.note(
            &Then::Renew { expiry: 0 },
            &asked.map(|_| Vec::new()).map_err(NotRun::from),
        );
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

/// The reply for a row whose reply has the old document, with the same time. The server has ended the command if it
/// cannot calculate with a field.
fn applied(row: &Row, before: Sight) -> Result<Reply, LockError> {
    let (now, mut document) = (before.now, Some(before.document));
    let is_applied = now.and_then(|now| apply(row, &mut document, now).ok());
    let problem = "the reply has no time, or a field has the wrong type";
    Ok(Reply {
        is_applied: Some(is_applied.ok_or_else(|| corrupt(&row.name, problem.into()))?),
        sight: document.map(|document| Sight { document, now }),
    })
}
