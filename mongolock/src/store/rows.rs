//! Runs rows: one row with one command; several rows with one update, and with a query if its totals do not show the result
//! of each row. Each command is sent at once: the core has checked that one more may be in flight.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, doc};
use tokio::time::timeout;

use super::error::{any_of, corrupt, of_change, unfit};
use super::look::{ALL, Looked};
use super::mongo::encoder::by_server;
use super::mongo::fields::sight;
use super::reply::{NotRun, is_of_statement};
use super::{MongoStore, Store};
use crate::duration::from_millis;
use crate::meter::CommandKind;
use crate::protocol::{Name, Reply, Row, RowOrder, Sight, Then, apply};
use crate::timing::COMMAND_LIMIT;
use crate::{LockError, task, trace};

impl Store {
    /// Runs these rows with this limit at the server. After an error some of them may have been
    /// applied.
    pub(crate) async fn run(
        &self,
        rows: &[Row],
        order: RowOrder,
        limit: Duration,
    ) -> Result<Vec<Reply>, NotRun> {
        let ran = match self {
            Self::Mongo(store) => {
                let command = pin!(store.run(kind(&rows[0]), rows, order, limit));
                noting_wait(rows, command).await
            }
            Self::Memory(store) => Ok(store.run(rows, order)),
            #[cfg(test)]
            Self::Simulated(link) => link.run(rows, order, limit).await,
        };
        let replies = ran.map_err(|not_run| NotRun {
            error: of_change(&any_of(rows), not_run.error),
            ..not_run
        })?;
        match rows.iter().zip(&replies).find_map(damage) {
            Some(damage) => Err(damage.into()),
            None => Ok(replies),
        }
    }

    /// Runs these rows for a caller outside of the core. If there is no reply two seconds after their time limit, their
    /// connection must be dead.
    pub(crate) async fn change(
        &self,
        rows: &[Row],
        order: RowOrder,
        limit: Duration,
    ) -> Result<Vec<Reply>, LockError> {
        // The future is on the heap, because otherwise each calling function would contain it.
        let running = Box::pin(self.run(rows, order, limit));
        task::within(limit, async { running.await.map_err(|not_run| not_run.error) }).await
    }
}

impl MongoStore {
    /// Runs these rows.
    pub(super) async fn run(
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
        let written = self.write(kind, command, limit, inserts).await;
        // The refusal of one statement does not say whether those before it were applied.
        let reply = written.map_err(|error| NotRun {
            may_be_applied: order == RowOrder::StopAtMiss && is_of_statement(&error),
            error,
        })?;
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
    pub(super) async fn ask_for_rights(&self) {
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

/// The name of the command of these rows in metrics.
fn kind(row: &Row) -> CommandKind {
    match row.then {
        Then::Claim { .. } | Then::Adopt { .. } => CommandKind::Acquire,
        Then::Renew { .. } | Then::Extend { .. } => CommandKind::Renew,
        Then::Force => CommandKind::Admin,
        Then::End { .. } | Then::Mark { .. } | Then::Rename { .. } => CommandKind::Release,
    }
}

/// Runs a command, and reports renewals that wait for a connection for a third of the lease.
async fn noting_wait<T>(rows: &[Row], mut command: impl Future<Output = T> + Unpin) -> T {
    let Then::Renew { expiry } = rows[0].then else {
        return command.await;
    };
    let longest = from_millis(expiry) / 3;
    if let Ok(reply) = timeout(longest, &mut command).await {
        return reply;
    }
    if !task::is_served() {
        trace::renewal_waiting(rows.len(), &rows[0].name, longest);
    }
    command.await
}

/// The error for a damaged document that a claim has found or changed.
pub(super) fn damage((row, reply): (&Row, &Reply)) -> Option<LockError> {
    let (Then::Claim { id, .. } | Then::Adopt { id, .. }) = &row.then else {
        return None;
    };
    let sight = reply.sight.as_ref().filter(|sight| !sight.has(""))?;
    let (end, token) = (&sight.document.expires_at, &sight.document.token);
    if sight.has(id) && token.long().is_none() {
        return Some(unfit(&row.name, "fencingToken", token, "a 64-bit integer"));
    }
    let unfit = || unfit(&row.name, "expiresAt", end, "a date");
    end.date().is_none().then(unfit)
}
