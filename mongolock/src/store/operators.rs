//! The reads and forced releases of operators.

use std::sync::Arc;
use std::time::Duration;

use super::look::Part;
use super::mongo::millis;
use super::{Looked, Store};
use crate::LockError;
use crate::meter::CommandKind;
use crate::protocol::{Name, Order, Row, Sight, Then, When};
use crate::timing::COMMAND_LIMIT;

/// The largest number of locks that one query returns. It bounds the memory of a stream, and the time that one query
/// takes.
pub(crate) const PAGE_SIZE: u32 = 1000;

impl Store {
    /// The first locks after this name, in the order of their names: at most a page of them.
    pub(crate) async fn page(
        &self,
        looked: &Looked,
        after: Option<&str>,
        most: u32,
    ) -> Result<Vec<(Name, Sight)>, LockError> {
        let most = most.min(PAGE_SIZE);
        let part = Part { after, most };
        self.find(CommandKind::Admin, looked, part, COMMAND_LIMIT).await
    }

    /// All documents, page by page. Each page is a query of its own instead of a batch of one cursor. A cursor would have one time
    /// limit and one `$$NOW` for all its batches, would be lost with its server, and would stay open while the caller pauses.
    pub(crate) async fn all(&self, looked: &Looked) -> Result<Vec<(Name, Sight)>, LockError> {
        let mut found: Vec<(Name, Sight)> = Vec::new();
        loop {
            let after = found.last().map(|(name, _)| &**name);
            let page = self.page(looked, after, PAGE_SIZE).await?;
            let is_last = page.len() < PAGE_SIZE as usize;
            found.extend(page);
            if is_last {
                return Ok(found);
            }
        }
    }

    /// Those of these locks that are taken or damaged.
    pub(crate) async fn stuck(
        &self,
        looked: &Looked,
        takeover_margin: Duration,
    ) -> Result<Vec<(Name, Sight)>, LockError> {
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
        let replies = self.change(&[row], Order::Each, COMMAND_LIMIT).await?;
        Ok(replies[0].is_applied == Some(true))
    }
}
