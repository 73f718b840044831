//! Runs rows, and reads documents. Each command is sent at once: the core has checked that one more may be in flight.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Store;
use super::error::{any_of, of_change, unfit};
use super::look::{ALL, Found, Looked};
use super::reply::NotRun;
use crate::LockError;
use crate::duration::{from_millis, millis};
use crate::meter::CommandKind;
use crate::protocol::{Name, Reply, Row, RowOrder, Sight, Then, When};
use crate::timing::COMMAND_LIMIT;
use crate::{task, trace};

/// The largest number of locks that one query returns. It bounds the memory of a stream, and the time that one query
/// takes.
pub(crate) const PAGE_SIZE: u32 = 1000;

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

    /// Finds out whether the server still refuses acquires, if it has refused the last acquire or renewal. The store notes the outcome.
    pub(crate) async fn ask_again(&self) {
        if let Some(store) = self.mongo().filter(|_| self.shown().refusal.is_some()) {
            store.ask_for_rights().await;
        }
    }

    /// Reads the documents of these locks, and of all permits of these groups, with one query.
    pub(crate) async fn look(&self, names: Vec<Name>, limit: Duration) -> Result<Found, LockError> {
        let names = Looked::Names(names);
        self.find(CommandKind::Look, &names, None, ALL, limit).await
    }

    /// Reads a part of these documents, for waiters or for an operator. Operators' commands may come after a shutdown,
    /// and have no faults in the simulation.
    pub(crate) async fn find(
        &self,
        kind: CommandKind,
        looked: &Looked,
        after: Option<&str>,
        most: u32,
        limit: Duration,
    ) -> Result<Found, LockError> {
        match self {
            Self::Mongo(store) => store.find(kind, looked, after, most, limit).await,
            Self::Memory(store) => Ok(store.find(looked, after, most)),
            #[cfg(test)]
            Self::Simulated(link) if kind == CommandKind::Look => link.look(looked.clone(), limit).await,
            #[cfg(test)]
            Self::Simulated(link) => Ok(link.memory().find(looked, after, most)),
        }
    }

    /// All documents, page by page. Each page is a query of its own instead of a batch of one cursor. A cursor would have one time
    /// limit and one `$$NOW` for all its batches, would be lost with its server, and would stay open while the caller pauses.
    pub(crate) async fn all(&self, looked: &Looked) -> Result<Found, LockError> {
        let mut found = Found::new();
        loop {
            let after = found.last().map(|(name, _)| &**name);
            let page = self.find(CommandKind::Admin, looked, after, PAGE_SIZE, COMMAND_LIMIT);
            let page = page.await?;
            let is_last = page.len() < PAGE_SIZE as usize;
            found.extend(page);
            if is_last {
                return Ok(found);
            }
        }
    }

    /// Those of these locks that are taken or damaged.
    pub(crate) async fn stuck(&self, looked: &Looked, takeover_margin: Duration) -> Result<Found, LockError> {
        let margin = millis(takeover_margin);
        let is_stuck = |sight: &Sight| !sight.document.is_sound() || !sight.is_free(margin);
        let mut found = self.all(looked).await?;
        found.retain(|(name, sight)| looked.admits(name, sight) && is_stuck(sight));
        Ok(found)
    }

    /// Releases what was read, whose fields may have any type, and nothing that has begun since. Returns whether it was as it was
    /// read. No date says which that is: the clock of the server that has set it may have been wrong.
    pub(crate) async fn force_release(&self, name: &Name, read: Sight) -> Result<bool, LockError> {
        let row = Row {
            name: Arc::clone(name),
            when: When::AsRead {
                lock_id: read.document.lock_id,
                token: read.document.token,
            },
            then: Then::Force,
        };
        let replies = self.change(&[row], RowOrder::Each, COMMAND_LIMIT).await?;
        Ok(replies[0].is_applied == Some(true))
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
