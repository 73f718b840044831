use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{ReadPreference, SelectionCriteria};

use super::memory::MemoryStore;
use super::mongo::{MongoStore, millis};
use super::takeover::{free, margin_after};
use crate::LockError;
use crate::task::driver_call;

/// The running leases that a look has found, by the names of their locks. Every other name of the look is free.
pub(crate) type RunningLeases = HashMap<Arc<str>, RunningLease>;

/// What a look says of a lock that is held.
#[derive(Debug, Clone)]
pub(crate) struct RunningLease {
    /// The id of the claim that has the lock, empty during a minimum hold; `None` if the document has none.
    pub(crate) holder: Option<Arc<str>>,
    /// The time since the beginning of the lease; `None` if the document has none.
    pub(crate) held_for: Option<Duration>,
    /// The time until the lock is free by the server's clock if it is neither renewed nor released.
    pub(crate) remaining: Duration,
}

impl MongoStore {
    /// Reads the documents of these locks with one query. The documents decide nothing here: what looks free is acquired
    /// by a request of its own. So the query reads what the primary has, without waiting for a majority.
    pub(super) async fn look(
        &self,
        names: &[Arc<str>],
        takeover_margin: Duration,
        limit: Duration,
    ) -> Result<RunningLeases, LockError> {
        let ids: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        let command = doc! {
            "find": self.background.name(),
            "filter": { "_id": { "$in": ids } },
            "projection": look_fields(takeover_margin),
            "batchSize": i64::try_from(names.len()).unwrap_or(i64::MAX),
            "singleBatch": true,
            "readConcern": { "level": "local" },
            "maxTimeMS": millis(limit).max(1),
        };
        let database = self.background.client().database(&self.background.namespace().db);
        let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
        let sending = database.run_command(command).selection_criteria(primary);
        let reply = driver_call(sending.into_future()).await?;
        let found = reply
            .get_document("cursor")
            .and_then(|cursor| cursor.get_array("firstBatch"));
        let found = found.into_iter().flatten().filter_map(Bson::as_document);
        let running = |document| running_lease(document, takeover_margin);
        Ok(found.filter_map(running).collect())
    }
}

/// What a look reads of a document.
pub(super) fn look_fields(takeover_margin: Duration) -> Document {
    doc! { "lockId": 1, "free": free(takeover_margin), "remainingMs": remaining_ms(), "heldMs": held_ms() }
}

/// The rest of the lease in milliseconds, as an expression of the server.
pub(super) fn remaining_ms() -> Document {
    if_date("$expiresAt", doc! { "$subtract": ["$expiresAt", "$$NOW"] })
}

/// The milliseconds since the beginning of the lease, as an expression of the server.
pub(super) fn held_ms() -> Document {
    if_date("$acquiredAt", doc! { "$subtract": ["$$NOW", "$acquiredAt"] })
}

/// A damaged document must not end the query for all others, as a subtraction with another type would.
fn if_date(field: &str, difference: Document) -> Document {
    let is_date = doc! { "$eq": [{ "$type": field }, "date"] };
    doc! { "$cond": [is_date, difference, Bson::Null] }
}

/// The time since the beginning of the lease, from a reply with [`held_ms`].
pub(super) fn held_for(document: &Document) -> Option<Duration> {
    let held = document.get_i64("heldMs").ok()?;
    Some(Duration::from_millis(u64::try_from(held).unwrap_or_default()))
}

/// The lease in one document of a look; `None` if the lock is free, or if the document is damaged: an acquire request
/// then ends with an error that says so.
pub(super) fn running_lease(
    document: &Document,
    takeover_margin: Duration,
) -> Option<(Arc<str>, RunningLease)> {
    let name = document.get_str("_id").ok()?;
    if document.get_bool("free").unwrap_or(true) {
        return None;
    }
    let holder: Option<Arc<str>> = document.get_str("lockId").ok().map(Arc::from);
    // Within the margin the lease has ended already, and the difference is negative.
    let margin = millis(margin_after(
        holder.as_deref().unwrap_or_default(),
        takeover_margin,
    ));
    let held_for = held_for(document);
    let remaining = document.get_i64("remainingMs").ok()?.saturating_add(margin);
    let lease = RunningLease {
        holder,
        held_for,
        remaining: Duration::from_millis(u64::try_from(remaining).unwrap_or_default()),
    };
    Some((Arc::from(name), lease))
}

impl MemoryStore {
    pub(crate) fn look(&self, names: &[Arc<str>], takeover_margin: Duration) -> RunningLeases {
        let now = self.now();
        let running =
            |name: &Arc<str>| Some((Arc::clone(name), self.running_lease(now, name, takeover_margin)?));
        names.iter().filter_map(running).collect()
    }
}
