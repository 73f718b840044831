//! Looking at all permits of a semaphore.

use std::collections::HashMap;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{ReadPreference, SelectionCriteria};

use super::look::{RunningLease, look_fields, running_lease};
use super::memory::MemoryStore;
use super::mongo::{MongoStore, millis};
use crate::task::driver_call;
use crate::{LockError, slot};

/// The permits of a semaphore that are held, by their numbers; every other permit is free.
pub(crate) type HeldSlots = HashMap<u32, RunningLease>;

/// The largest number of documents that one query returns: twice the permits that a semaphore can have.
const MOST_SLOTS: i32 = 2000;

impl MongoStore {
    /// Reads the documents of all permits with one query, also of those beyond the number that this caller knows. They
    /// decide nothing: what looks free is acquired by a request of its own.
    pub(super) async fn slots(
        &self,
        semaphore: &str,
        takeover_margin: Duration,
        limit: Duration,
    ) -> Result<HeldSlots, LockError> {
        let command = doc! {
            "find": self.locks.name(),
            "filter": { "_id": { "$gte": &*slot::group(semaphore), "$lt": slot::end_of_ids(semaphore) } },
            "projection": look_fields(takeover_margin),
            "batchSize": MOST_SLOTS,
            "singleBatch": true,
            "readConcern": { "level": "local" },
            "maxTimeMS": millis(limit).max(1),
        };
        let database = self.locks.client().database(&self.locks.namespace().db);
        let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
        let sending = database.run_command(command).selection_criteria(primary);
        let reply = driver_call(sending.into_future()).await?;
        let found = reply
            .get_document("cursor")
            .and_then(|cursor| cursor.get_array("firstBatch"));
        let found = found.into_iter().flatten().filter_map(Bson::as_document);
        let held = |document: &Document| {
            let (id, lease) = running_lease(document, takeover_margin)?;
            Some((number_of(&id, semaphore)?, lease))
        };
        Ok(found.filter_map(held).collect())
    }
}

impl MemoryStore {
    pub(super) fn slots(&self, semaphore: &str, takeover_margin: Duration) -> HeldSlots {
        let now = self.now();
        let ids = self.names();
        let held = |id: &std::sync::Arc<str>| {
            let number = number_of(id, semaphore)?;
            Some((number, self.running_lease(now, id, takeover_margin)?))
        };
        ids.iter().filter_map(held).collect()
    }
}

/// The number of a permit of this semaphore.
fn number_of(id: &str, semaphore: &str) -> Option<u32> {
    slot::parts(id)
        .filter(|(name, _)| *name == semaphore)
        .map(|(_, number)| number)
}
