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

/// The number of connections of a client's pool if its options set none, or are not known.
const DEFAULT_POOL: u32 = 10;

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
    /// The size of the client's pool of connections; that of a store in memory has no meaning.
    pub(crate) fn pool(&self) -> usize {
        let pool = self.mongo().and_then(|store| store.servers.pool);
        pool.unwrap_or(DEFAULT_POOL) as usize
    }

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
                let command = pin!(store.run(rows, order, limit));
                noting_wait(rows, store.gate.run(kind(&rows[0]), command)).await
            }
            Self::Memory(store) => Ok(Ok(store.run_at_once(rows, order))),
            #[cfg(test)]
            Self::Simulated(link) => link.run(rows, order, limit).await,
        };
        // The query is sent after the writes.
        let may_be_applied = matches!(ran, Ok(Err(_)));
        let ran = ran.flatten();
        self.note(&ran);
        let replies = ran.map_err(|error| NotRun {
            error: of_change(&any_of(rows), error),
            may_be_applied,
        })?;
        let of_row = |(row, reply): (&Row, Result<Reply, LockError>)| {
            let reply = reply.map_err(|error| of_change(&row.name, error))?;
            let damage = reply.sight.as_ref().and_then(|sight| damage(row, sight));
            damage.map_or(Ok(reply), Err)
        };
        let replies: Result<_, LockError> = rows.iter().zip(replies).map(of_row).collect();
        Ok(replies?)
    }

    /// Reads the documents of these locks with one query.
    pub(crate) async fn sights(
        &self,
        names: &[Name],
        limit: Duration,
    ) -> Result<HashMap<Name, Sight>, LockError> {
        if names.is_empty() {
            return Ok(HashMap::new());
        }
        let found = self.look(Looked::Names(names.to_vec()), limit).await?;
        Ok(found.into_iter().collect())
    }

    /// Reads the documents of the permits of a semaphore with one query.
    pub(crate) async fn permits(
        &self,
        group: &Name,
        limit: Duration,
    ) -> Result<Vec<(u32, Sight)>, LockError> {
        let permits = Looked::Permits(Arc::clone(group));
        Ok(numbered(self.look(permits, limit).await?))
    }

    async fn look(&self, looked: Looked, limit: Duration) -> Result<Vec<(Name, Sight)>, LockError> {
        self.find(looked, Part::ALL, CommandKind::Look, limit).await
    }

    /// Reads a part of these documents, for waiters or for an operator. What a waiter reads decides nothing, because what looks free
    /// is acquired by a request of its own: it is what the primary has, without waiting for a majority. Operators' commands
    /// may come after a shutdown, and have no faults in the simulation.
    pub(super) async fn find(
        &self,
        looked: Looked,
        part: Part<'_>,
        kind: CommandKind,
        limit: Duration,
    ) -> Result<Vec<(Name, Sight)>, LockError> {
        let found = match self {
            Self::Mongo(store) => {
                let is_look = kind == CommandKind::Look;
                let level = if is_look { "local" } else { "majority" };
                let finding = pin!(store.find(&looked, part, level, limit));
                store.gate.run(kind, finding).await
            }
            Self::Memory(store) => Ok(store.find(&looked, part)),
            #[cfg(test)]
            Self::Simulated(link) if kind == CommandKind::Look => link.look(looked, limit).await,
            #[cfg(test)]
            Self::Simulated(link) => Ok(link.memory().find(&looked, part)),
        };
        self.note(&found);
        found
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
pub(super) fn damage(row: &Row, sight: &Sight) -> Option<LockError> {
    let (Then::Claim { id, .. } | Then::Adopt { id, .. }) = &row.then else {
        return None;
    };
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

fn numbered(found: Vec<(Name, Sight)>) -> Vec<(u32, Sight)> {
    let number = |(name, sight): (Name, Sight)| Some((permit_id::number(&name)?, sight));
    found.into_iter().filter_map(number).collect()
}
