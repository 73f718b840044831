//! Looking which locks are held, without a claim.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};

use super::memory::MemoryStore;
use super::mongo::{MongoStore, Query};
use super::takeover::{free, until_free};
use crate::{LockError, lock_id, permit_id};

/// The largest number of permits that one query returns: twice those that a semaphore can have.
const MOST_FOUND: usize = 2000;

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

/// The permits of a semaphore that are held, by their numbers; every other permit is free.
pub(crate) type HeldPermits = HashMap<u32, RunningLease>;

/// The locks that a look reads.
#[derive(Clone, Copy)]
pub(crate) enum Looked<'a> {
    Names(&'a [Arc<str>]),
    /// All permits of a semaphore, also those beyond the number that this caller knows.
    Permits {
        semaphore: &'a str,
        /// Only the simulation has no query over all permits.
        #[cfg_attr(not(test), expect(dead_code, reason = "only the simulation reads it"))]
        permits: u32,
    },
}

impl MongoStore {
    /// Reads the documents of these locks with one query. The documents decide nothing here: what looks free is acquired
    /// by a request of its own. So the query reads what the primary has, without waiting for a majority.
    pub(super) async fn look(
        &self,
        looked: Looked<'_>,
        takeover_margin: Duration,
        limit: Duration,
    ) -> Result<RunningLeases, LockError> {
        let (filter, most) = match looked {
            Looked::Names(names) => (with_ids(names), names.len()),
            Looked::Permits { semaphore, .. } => (of_group(&permit_id::group(semaphore)), MOST_FOUND),
        };
        let query = Query {
            filter,
            fields: doc! {
                "lockId": 1, "free": free(takeover_margin), "remainingMs": remaining_ms(), "heldMs": held_ms(),
            },
            most,
            level: "local",
        };
        let found = query.run(&self.locks, limit).await?;
        Ok(found
            .filter_map(|document| running_lease(&document, takeover_margin))
            .collect())
    }
}

/// The documents of these locks.
fn with_ids(names: &[Arc<str>]) -> Document {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    doc! { "_id": { "$in": names } }
}

/// The documents of all permits of a semaphore, by the name that stands for them.
fn of_group(group: &str) -> Document {
    let semaphore = permit_id::of_group(group);
    doc! { "_id": { "$gte": group, "$lt": permit_id::end_of_ids(semaphore) } }
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
    let lock_id = document.get_str("lockId").ok();
    // Within the margin the lease has ended already, and the difference is negative.
    let left = document.get_i64("remainingMs").ok()?;
    let lease = RunningLease {
        holder: lock_id.map(|id| Arc::from(lock_id::taken_by(id))),
        held_for: held_for(document),
        remaining: until_free(lock_id, left, takeover_margin),
    };
    Some((Arc::from(name), lease))
}

impl MemoryStore {
    pub(super) fn look(&self, looked: Looked<'_>, takeover_margin: Duration) -> RunningLeases {
        let now = self.now();
        let running =
            |name: &Arc<str>| Some((Arc::clone(name), self.running_lease(now, name, takeover_margin)?));
        match looked {
            Looked::Names(names) => names.iter().filter_map(running).collect(),
            Looked::Permits { semaphore, .. } => {
                let mut names = self.names();
                names.retain(|name| number_of(name, semaphore).is_some());
                names.iter().filter_map(running).collect()
            }
        }
    }
}

/// What a look at all permits of this semaphore has found.
pub(super) fn held_permits(running: RunningLeases, semaphore: &str) -> HeldPermits {
    let held = |(id, lease): (Arc<str>, RunningLease)| Some((number_of(&id, semaphore)?, lease));
    running.into_iter().filter_map(held).collect()
}

/// The number of a permit of this semaphore.
fn number_of(id: &str, semaphore: &str) -> Option<u32> {
    permit_id::parts(id)
        .filter(|(name, _)| *name == semaphore)
        .map(|(_, number)| number)
}
