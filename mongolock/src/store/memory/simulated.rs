//! The simulation's access to the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use super::{Document, MemoryStore};
use crate::protocol::{Ms, Name, News, Sight};
use crate::store::{ALL, Looked, millis};
use crate::sync::lock;
use crate::{LockFilter, lock_id};

impl MemoryStore {
    /// A store that behaves the same in each run: its clock begins at this time.
    pub(crate) fn simulated(started_at: Ms) -> Self {
        Self {
            started_at,
            id: "simulated".to_owned(),
            ..Self::new()
        }
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<News> {
        self.events.subscribe()
    }

    /// The locks that a claim has; marks have none.
    pub(crate) fn taken(&self) -> Vec<(Name, String)> {
        let claim = |(name, sight): (Name, Sight)| {
            let id = sight.lock_id().filter(|id| lock_id::is_claim(id))?.to_owned();
            (sight.left() > Some(0)).then_some((name, id))
        };
        let all = Looked::Filter(LockFilter::new());
        self.find(&all, None, ALL).into_iter().filter_map(claim).collect()
    }

    /// The time since which a lock is free, by the server's clock; `None` if it is taken. The end in a free document is
    /// the time of its release, or the end of its lease. Without a document the lock has always been free.
    pub(crate) fn free_since(&self, name: &str) -> Option<Ms> {
        match self.sight(self.now(), name) {
            None => Some(0),
            Some(sight) => sight.document.expires_at.date().filter(|_| sight.is_free(0)),
        }
    }

    /// Deletes documents whose leases ended long enough ago, as the server's TTL monitor does: unlike the store's own
    /// sweep it does not store their tokens. Returns the names of the locks.
    pub(crate) fn sweep(&self, retention: Duration) -> Vec<Name> {
        let latest = Some(self.now() - millis(retention));
        let documents = &mut lock(&self.documents).by_name;
        let is_over = |(_, document): &(&Name, &Document)| document.expires_at.date() <= latest;
        let mut over: Vec<Name> = documents
            .iter()
            .filter(is_over)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        over.sort_unstable();
        documents.retain(|name, _| over.binary_search(name).is_err());
        for name in over.iter().cloned() {
            let _ = self.events.send(News { name, sight: None });
        }
        over
    }
}
