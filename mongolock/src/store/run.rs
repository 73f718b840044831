//! Runs rows, and reads documents. Each command is sent at once: the core has checked that one more may be in flight.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::error::{any_of, of_change, unfit};
use super::look::{Looked, Part, duration};
use super::{Replies, Store};
use crate::LockError;
use crate::meter::CommandKind;
use crate::protocol::{Document, Name, Order, Reply, Row, Sight, Then};
use crate::{permit_id, task, trace};

/// Why a command has no replies.
pub(crate) struct NotRun {
    pub(crate) error: LockError,
    /// Whether its writes may have been applied, whatever the error says.
    pub(crate) may_be_applied: bool,
}

impl From<LockError> for NotRun {
    fn from(error: LockError) -> Self {
        let may_be_applied = false;
        Self {
            error,
            may_be_applied,
        }
    }
}

impl Store {
    /// Runs these rows with this limit at the server. After an error some of them may have been
    /// applied.
    pub(crate) async fn run(
        &self,
        rows: &[Row],
        order: Order,
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
        // The query is sent after the writes.
        let may_be_applied = matches!(ran, Ok(Err(_)));
        let replies = ran.flatten().map_err(|error| NotRun {
            error: of_change(&any_of(rows), error),
            may_be_applied,
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
        order: Order,
        limit: Duration,
    ) -> Result<Vec<Reply>, LockError> {
        // The future is on the heap, because otherwise each calling function would contain it.
        let running = Box::pin(async {
            self.run(rows, order, limit)
                .await
                .map_err(|not_run| not_run.error)
        });
        task::within(limit, running).await
    }

    /// Reads the documents of these locks with one query.
    pub(crate) async fn sights(
        &self,
        names: Vec<Name>,
        limit: Duration,
    ) -> Result<HashMap<Name, Sight>, LockError> {
        if names.is_empty() {
            return Ok(HashMap::new());
        }
        let names = Looked::Names(names);
        let found = self.find(CommandKind::Look, &names, Part::ALL, limit).await?;
        Ok(found.into_iter().collect())
    }

    /// Reads the documents of the permits of a semaphore with one query, by the name of the group.
    pub(crate) async fn permits(
        &self,
        group: &Name,
        limit: Duration,
    ) -> Result<Vec<(u32, Sight)>, LockError> {
        let permits = Looked::Permits(Arc::clone(group));
        let found = self.find(CommandKind::Look, &permits, Part::ALL, limit).await?;
        let number = |(name, sight): (Name, Sight)| Some((permit_id::number(&name)?, sight));
        Ok(found.into_iter().filter_map(number).collect())
    }

    /// Reads a part of these documents, for waiters or for an operator. Operators' commands may come after a shutdown,
    /// and have no faults in the simulation.
    pub(super) async fn find(
        &self,
        kind: CommandKind,
        looked: &Looked,
        part: Part<'_>,
        limit: Duration,
    ) -> Result<Vec<(Name, Sight)>, LockError> {
        match self {
            Self::Mongo(store) => store.find(kind, looked, part, limit).await,
            Self::Memory(store) => Ok(store.find(looked, part)),
            #[cfg(test)]
            Self::Simulated(link) if kind == CommandKind::Look => link.look(looked.clone(), limit).await,
            #[cfg(test)]
            Self::Simulated(link) => Ok(link.memory().find(looked, part)),
        }
    }
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

/// Reports renewals that wait for a connection for a third of the lease.
async fn noting_wait(
    rows: &[Row],
    command: impl Future<Output = Result<Replies, LockError>>,
) -> Result<Replies, LockError> {
    let Then::Renew { expiry } = rows[0].then else {
        return command.await;
    };
    let longest = duration(expiry) / 3;
    let note = || trace::renewal_waiting(rows.len(), &rows[0].name, longest);
    task::noting_wait(longest, note, command).await
}

/// The error for a damaged document that a claim has found or changed.
pub(super) fn damage((row, reply): (&Row, &Reply)) -> Option<LockError> {
    let (Then::Claim { id, .. } | Then::Adopt { id, .. }) = &row.then else {
        return None;
    };
    let sight = reply.sight.as_ref()?;
    let Document {
        expires_at, token, ..
    } = &sight.document;
    match () {
        () if sight.has("") => None,
        () if sight.has(id) && token.long().is_none() => {
            Some(unfit(&row.name, "fencingToken", token, "a 64-bit integer"))
        }
        () if expires_at.date().is_none() => Some(unfit(&row.name, "expiresAt", expires_at, "a date")),
        () => None,
    }
}
