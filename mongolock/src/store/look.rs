//! Reads which locks are held, without a claim.

use std::time::Duration;

use mongodb::bson::{Document, doc};

use super::mongo::{MongoStore, Query};
use crate::protocol::{Ms, Name, Sight};
use crate::{LockError, permit_id};

/// The largest number of permits that one query returns: twice those that a semaphore can have.
const MOST_FOUND: usize = 2000;

/// The locks that a look reads.
#[derive(Clone, Copy)]
pub(crate) enum Looked<'a> {
    Names(&'a [Name]),
    /// All permits of a semaphore, also those beyond the number that this caller uses.
    Permits(&'a str),
}

impl Looked<'_> {
    /// The documents, and the largest number of them.
    fn query(self) -> (Document, usize) {
        match self {
            Self::Names(names) => {
                let ids: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
                (doc! { "_id": { "$in": ids } }, names.len())
            }
            Self::Permits(semaphore) => {
                let (first, end) = (permit_id::group(semaphore), permit_id::end_of_ids(semaphore));
                (doc! { "_id": { "$gte": &*first, "$lt": end } }, MOST_FOUND)
            }
        }
    }
}

impl MongoStore {
    /// Reads the documents of these locks with one query. They are only a hint: a lock that seems free is acquired by a
    /// request of its own. So the query reads the primary's present state, without waiting for a majority.
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

/// The number of a permit of this semaphore.
pub(super) fn number_of(id: &str, semaphore: &str) -> Option<u32> {
    permit_id::parts(id)
        .filter(|(name, _)| *name == semaphore)
        .map(|(_, number)| number)
}

/// A length of time; zero if it is negative.
pub(crate) fn duration(millis: Ms) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}
