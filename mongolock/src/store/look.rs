//! Looking which locks are held, without a claim.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};

use super::mongo::{MongoStore, Query};
use crate::protocol::{Ms, Name, Sight};
use crate::{LockError, lock_id, permit_id};

/// The largest number of permits that one query returns: twice those that a semaphore can have.
const MOST_FOUND: usize = 2000;

/// The running leases that a look has found, by the names of their locks. Every other name of the look is free.
pub(crate) type RunningLeases = HashMap<Name, RunningLease>;

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
    Names(&'a [Name]),
    /// All permits of a semaphore, also those beyond the number that this caller knows.
    Permits {
        semaphore: &'a str,
        /// Only the simulation has no query over all permits.
        #[cfg_attr(not(test), expect(dead_code, reason = "only the simulation reads it"))]
        permits: u32,
    },
}

impl Looked<'_> {
    /// The documents, and the largest number of them.
    fn query(self) -> (Document, usize) {
        match self {
            Self::Names(names) => {
                let ids: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
                (doc! { "_id": { "$in": ids } }, names.len())
            }
            Self::Permits { semaphore, .. } => {
                let (first, end) = (permit_id::group(semaphore), permit_id::end_of_ids(semaphore));
                (doc! { "_id": { "$gte": &*first, "$lt": end } }, MOST_FOUND)
            }
        }
    }
}

impl MongoStore {
    /// Reads the documents of these locks with one query. The documents decide nothing here: what looks free is acquired
    /// by a request of its own. So the query reads what the primary has, without waiting for a majority.
    pub(super) async fn look(
        &self,
        looked: Looked<'_>,
        limit: Duration,
    ) -> Result<Vec<(Name, Sight)>, LockError> {
        let (filter, most) = looked.query();
        let query = Query {
            filter,
            most,
            level: "local",
        };
        Ok(query.run(&self.locks, limit).await?.collect())
    }
}

/// Those of these locks that are held. A lock with a damaged document is none: an acquire request then ends with an error that
/// says so.
pub(super) fn running(seen: Vec<(Name, Sight)>, margin: Ms) -> RunningLeases {
    let lease = |(name, sight): (Name, Sight)| Some((name, running_lease(&sight, margin)?));
    seen.into_iter().filter_map(lease).collect()
}

pub(super) fn running_lease(sight: &Sight, margin: Ms) -> Option<RunningLease> {
    if sight.is_free(margin) {
        return None;
    }
    Some(RunningLease {
        holder: sight.lock_id().map(|id| Arc::from(lock_id::taken_by(id))),
        held_for: sight.held_for().map(duration),
        remaining: duration(sight.until_free(margin)?),
    })
}

/// What a look at all permits of this semaphore has found.
pub(super) fn held_permits(running: RunningLeases, semaphore: &str) -> HeldPermits {
    let held = |(id, lease): (Name, RunningLease)| Some((number_of(&id, semaphore)?, lease));
    running.into_iter().filter_map(held).collect()
}

/// The number of a permit of this semaphore.
pub(super) fn number_of(id: &str, semaphore: &str) -> Option<u32> {
    permit_id::parts(id)
        .filter(|(name, _)| *name == semaphore)
        .map(|(_, number)| number)
}

/// A length of time; nothing if it is less than nothing.
pub(crate) fn duration(millis: Ms) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}
