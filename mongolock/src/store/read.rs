//! Reads documents for waiters and operators, and releases what an operator has read.

use std::sync::Arc;
use std::time::Duration;

use super::Store;
use super::look::{ALL, Found, Looked};
use crate::LockError;
use crate::duration::millis;
use crate::meter::CommandKind;
use crate::protocol::{Name, Row, RowOrder, Sight, Then, When};
use crate::timing::COMMAND_LIMIT;

/// The largest number of locks that one query returns. It bounds the memory of a stream, and the time that one query
/// takes.
pub(crate) const PAGE_SIZE: u32 = 1000;

impl Store {
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
