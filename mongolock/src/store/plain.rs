//! The commands of the shell: each is sent at once, because the core has decided that there is a place for it.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use super::Store;
use super::look::Looked;
use crate::LockError;
use crate::few::Few;
use crate::meter::CommandKind;
use crate::permit_id;
use crate::protocol::{Name, Order, Reply, Row, Sight, Then};

impl Store {
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
    ) -> Result<Vec<Reply>, LockError> {
        let Self::Mongo(store) = self else {
            return self.run_at_once(&rows, order).unwrap_or(Ok(Vec::new()));
        };
        let kind = match rows[0].then {
            Then::Claim { .. } | Then::Adopt { .. } => CommandKind::Acquire,
            Then::Renew { .. } => CommandKind::Renew,
            _ => CommandKind::Release,
        };
        let rows = Few::collected(rows);
        let command = pin!(store.run(&rows, order, limit, true));
        let replies = store.gate.count(kind, command).await??;
        replies.into_values().collect()
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
        let looking = pin!(store.look(Looked::Names(names), limit));
        Ok(store
            .gate
            .count(CommandKind::Look, looking)
            .await?
            .into_iter()
            .collect())
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
        let looking = pin!(store.look(permits_of(group), limit));
        Ok(numbered(store.gate.count(CommandKind::Look, looking).await?))
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
