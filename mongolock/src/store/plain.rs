//! The commands of the shell: each is sent at once, because the core has decided that there is a place for it.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

use super::Store;
use super::admission::DEFAULT_POOL;
use super::error::{any_of, of_change, unfit};
use super::look::{Looked, duration};
use crate::LockError;
use crate::few::Few;
use crate::meter::CommandKind;
use crate::protocol::{Document, Name, Order, Reply, Row, Sight, Then};
use crate::{permit_id, task, trace};

/// Why a command has no replies.
pub(crate) struct NotRun {
    pub(crate) error: LockError,
    /// Its writes were applied, if it has any, whatever the error says.
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
        match self {
            Self::Mongo(store) => store.servers.pool as usize,
            Self::Memory(_) => DEFAULT_POOL as usize,
            #[cfg(test)]
            Self::Simulated(_) => DEFAULT_POOL as usize,
        }
    }

    /// Runs these rows, if the store replies at once.
    pub(crate) fn run_at_once(&self, rows: &[Row], order: Order) -> Option<Result<Vec<Reply>, LockError>> {
        let Self::Memory(store) = self else { return None };
        let rows = Few::collected(rows.iter().cloned());
        Some(store.run_at_once(&rows, order).into_values().collect())
    }

    /// Runs these rows, which have different documents. After an error some of them may have been applied.
    pub(crate) async fn run_rows(
        &self,
        rows: Vec<Row>,
        order: Order,
        limit: Duration,
    ) -> Result<Vec<Reply>, NotRun> {
        let Self::Mongo(store) = self else {
            return Ok(self.run_at_once(&rows, order).unwrap_or(Ok(Vec::new()))?);
        };
        let (sent, names) = (Instant::now(), any_of(rows.iter().map(|row| &row.name)));
        let kind = match rows[0].then {
            Then::Claim { .. } | Then::Adopt { .. } => CommandKind::Acquire,
            Then::Renew { .. } => CommandKind::Renew,
            _ => CommandKind::Release,
        };
        let rows = Few::collected(rows);
        let command = pin!(store.run(&rows, order, limit, true));
        let command = store.gate.run_once(kind, command);
        let ran = match rows[0].then {
            Then::Renew { expiry } => {
                let longest = duration(expiry) / 3;
                let note = || trace::renewal_waiting(rows.len(), &rows[0].name, longest);
                task::noting_wait(longest, note, command).await
            }
            _ => command.await,
        };
        // The query is sent after the writes.
        let may_be_applied = matches!(ran, Ok(Err(_)));
        let ran = ran.and_then(|queried| queried);
        self.note(sent, &ran);
        let not_run = |error| NotRun {
            error: of_change(&names, error),
            may_be_applied,
        };
        let replies = ran.map_err(not_run)?.into_values();
        let of_row = |(row, reply): (&Row, Result<Reply, LockError>)| {
            let reply = reply.map_err(|error| of_change(&row.name, error))?;
            let damage = reply.sight.as_ref().and_then(|sight| damage(row, sight));
            damage.map_or(Ok(reply), Err)
        };
        let replies: Result<_, LockError> = rows.iter().zip(replies).map(of_row).collect();
        Ok(replies?)
    }

    /// What the document of a lock says, in a store that replies at once.
    pub(crate) fn sight_at_once(&self, name: &Name) -> Option<Sight> {
        let Self::Memory(store) = self else { return None };
        store.sight(store.now(), name)
    }

    /// The same of all permits of a semaphore, by the name of the group.
    pub(crate) fn permits_at_once(&self, group: &Name) -> Option<Vec<(u32, Sight)>> {
        let Self::Memory(store) = self else { return None };
        Some(numbered(store.look(permits_of(group))))
    }

    /// What the documents of these locks say, by one query.
    pub(crate) async fn sights(
        &self,
        names: &[Name],
        limit: Duration,
    ) -> Result<HashMap<Name, Sight>, LockError> {
        let Self::Mongo(store) = self else {
            return Ok(HashMap::new());
        };
        if names.is_empty() {
            return Ok(HashMap::new());
        }
        let sent = Instant::now();
        let looking = pin!(store.look(Looked::Names(names), limit));
        let found = store.gate.run_once(CommandKind::Look, looking).await;
        self.note(sent, &found);
        Ok(found?.into_iter().collect())
    }

    /// What the documents of the permits of a semaphore say, by one query.
    pub(crate) async fn permits(
        &self,
        group: &Name,
        limit: Duration,
    ) -> Result<Vec<(u32, Sight)>, LockError> {
        let Self::Mongo(store) = self else {
            return Ok(Vec::new());
        };
        let sent = Instant::now();
        let looking = pin!(store.look(permits_of(group), limit));
        let found = store.gate.run_once(CommandKind::Look, looking).await;
        self.note(sent, &found);
        Ok(numbered(found?))
    }
}

/// What is wrong with the document that a claim has met or changed.
fn damage(row: &Row, sight: &Sight) -> Option<LockError> {
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

fn permits_of(group: &Name) -> Looked<'_> {
    Looked::Permits {
        semaphore: &group[..group.len() - 1],
        permits: 0,
    }
}

fn numbered(found: Vec<(Name, Sight)>) -> Vec<(u32, Sight)> {
    let number = |(name, sight): (Name, Sight)| Some((permit_id::number(&name)?, sight));
    found.into_iter().filter_map(number).collect()
}
