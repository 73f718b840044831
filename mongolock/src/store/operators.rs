//! The reads and forced releases of operators.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;

use super::info::{info, seen};
use super::mongo::millis;
use super::{LockFilter, LockInfo, Page, Store};
use crate::protocol::{Name, Order, Row, Sight, Then, Value, When};
use crate::timing::COMMAND_LIMIT;
use crate::{LockError, lock_id, permit_id};

/// The documents that an operator's read returns.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Selected<'a> {
    /// The document of one lock or permit.
    Name(&'a str),
    /// The documents of the locks that meet the filter.
    Filter(&'a LockFilter),
    /// The documents that meet the name and the prefix of a filter, and have a holder or a mark; or only those of them
    /// with these `_id`s.
    Taken(&'a LockFilter, Option<&'a [String]>),
    /// The documents of an owner's claims, also during their minimum holds; marks do not count as claims.
    Owner(&'a str),
}

/// A lock that can be released by force: its document, as it was read, is taken or damaged. The fields may have any
/// type, and may be missing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeenHold {
    pub(crate) name: Name,
    pub(crate) lock_id: Value,
    pub(crate) token: Value,
}

/// A document that has a holder or a mark, at the time of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TakenLock {
    pub(crate) id: String,
    pub(crate) lock_id: String,
    pub(crate) acquired_at: DateTime,
    pub(crate) expires_at: DateTime,
    pub(crate) token: i64,
    /// The server's time of the read.
    pub(crate) read_at: DateTime,
}

/// The result of a read: a taken lock, or the `_id` of a document that cannot be read as a lock.
pub(crate) type TakenOrDamaged = Result<TakenLock, String>;

impl Selected<'_> {
    /// Whether a document belongs to the selection, by the rules of the queries in `admin.rs`.
    pub(super) fn admits(self, name: &str, sight: &Sight) -> bool {
        match self {
            Self::Name(wanted) => name == wanted,
            Self::Filter(filter) => info(name, sight, Duration::ZERO).is_ok_and(|info| filter.admits(&info)),
            Self::Taken(filter, ids) => {
                filter.admits_name(permit_id::shown(name))
                    && ids.is_none_or(|ids| ids.iter().any(|id| id == name))
            }
            Self::Owner(owner) => sight
                .lock_id()
                .is_some_and(|id| !lock_id::is_mark(id) && lock_id::owner(id) == Some(owner)),
        }
    }
}

impl TakenLock {
    /// Whether the lease, or the period of the mark, was over at the time of the read.
    pub(crate) fn is_over(&self) -> bool {
        self.expires_at <= self.read_at
    }
}

impl Store {
    /// A page of the locks that meet the filter: the first ones after this name, in the order of their names.
    pub(crate) async fn page(
        &self,
        filter: &LockFilter,
        after: Option<&str>,
        takeover_margin: Duration,
    ) -> Result<Page, LockError> {
        let (seen, last_name) = self.select(Selected::Filter(filter), after, filter.limit).await?;
        let infos = seen
            .iter()
            .map(|(name, sight)| info(name, sight, takeover_margin));
        Ok(Page {
            locks: infos.collect(),
            last_name: last_name.map(|name| name.to_string()),
        })
    }

    pub(crate) async fn get(
        &self,
        name: &str,
        takeover_margin: Duration,
    ) -> Result<Option<LockInfo>, LockError> {
        let (seen, _) = self.select(Selected::Name(name), None, Some(1)).await?;
        let first = seen.first();
        first
            .map(|(_, sight)| info(name, sight, takeover_margin))
            .transpose()
    }

    /// The documents that name a holder or have a mark, of those that meet the name and the prefix of a filter; or only those
    /// of them with these `_id`s.
    pub(crate) async fn taken_locks(
        &self,
        filter: &LockFilter,
        ids: Option<&[String]>,
    ) -> Result<Vec<TakenOrDamaged>, LockError> {
        let found = self.select_all(Selected::Taken(filter, ids)).await?;
        Ok(found.iter().filter_map(taken).collect())
    }

    /// Reads the documents of a selection whose locks are taken, or damaged.
    pub(crate) async fn seen_holds(
        &self,
        selected: Selected<'_>,
        takeover_margin: Duration,
    ) -> Result<Vec<SeenHold>, LockError> {
        let margin = millis(takeover_margin);
        let is_stuck = |sight: &Sight| !sight.document.is_sound() || !sight.is_free(margin);
        let found = self.select_all(selected).await?.into_iter();
        // The query may also find documents whose ids only look like the selected ones, such as an owner that begins
        // like a mark.
        let stuck = found.filter(|(name, sight)| selected.admits(name, sight) && is_stuck(sight));
        Ok(stuck.map(SeenHold::from).collect())
    }

    /// Releases the hold that was read, and no later one. Returns whether the document was unchanged. Dates are not
    /// compared, because the clock of the server that set them may have been wrong.
    pub(crate) async fn force_release(&self, hold: &SeenHold) -> Result<bool, LockError> {
        let rows = [hold.row()];
        match self.run(&rows, Order::Each, COMMAND_LIMIT).await {
            Ok(replies) => Ok(replies[0].is_applied == Some(true)),
            Err(not_run) => Err(not_run.error),
        }
    }

    async fn select_all(&self, selected: Selected<'_>) -> Result<Vec<(Name, Sight)>, LockError> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (seen, last) = self.select(selected, after.as_deref(), None).await?;
            found.extend(seen);
            match last {
                Some(last) => after = Some(last),
                None => return Ok(found),
            }
        }
    }
}

impl SeenHold {
    pub(crate) fn row(&self) -> Row {
        Row {
            name: Arc::clone(&self.name),
            when: When::AsRead {
                lock_id: self.lock_id.clone(),
                token: self.token.clone(),
            },
            then: Then::Force,
        }
    }
}

impl From<(Name, Sight)> for SeenHold {
    fn from((name, sight): (Name, Sight)) -> Self {
        Self {
            name,
            lock_id: sight.document.lock_id,
            token: sight.document.token,
        }
    }
}

/// `None` if the lock was released.
fn taken((name, sight): &(Name, Sight)) -> Option<TakenOrDamaged> {
    if sight.lock_id().is_some_and(|id| lock_id::taken_by(id).is_empty()) {
        return None;
    }
    let Ok(seen) = seen(name, sight) else {
        return Some(Err(name.to_string()));
    };
    Some(Ok(TakenLock {
        id: name.to_string(),
        lock_id: seen.lock_id.to_owned(),
        acquired_at: seen.acquired_at,
        expires_at: seen.expires_at,
        token: seen.token,
        read_at: seen.now,
    }))
}
