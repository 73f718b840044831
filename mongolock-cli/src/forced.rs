//! What becomes of a hold that was released by force: whether that is noted, and when its holder has noticed it.

use std::time::{Duration, Instant};

use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::{ReadConcern, ReadPreference, SelectionCriteria};
use mongodb::{Collection, error::Error};
use mongolock::LockInfo;
use tokio::time::sleep;

use crate::connection::Collections;

/// The pause between two looks whether the holder has noticed the end of its hold.
const LOOK: Duration = Duration::from_millis(200);

/// The limit of one of these queries at the server.
const LIMIT: Duration = Duration::from_secs(5);

/// A hold that is ended by force, as its document was before.
pub(crate) struct EndedHold {
    lock_id: String,
    /// The rest of its lease.
    rest: Duration,
    read_at: Instant,
}

impl EndedHold {
    /// The present hold; `None` if it cannot be read, or if nobody has the lock.
    pub(crate) async fn of(collections: &Collections, info: &LockInfo) -> Option<Self> {
        let id = match info.permit {
            Some(number) => format!("{}\u{1f}{number}", info.name),
            None => info.name.clone(),
        };
        let fields = doc! { "lockId": 1, "expiresAt": 1, "now": "$$NOW" };
        let read_at = Instant::now();
        let found = find(&collections.locks, &id, fields).await.ok()??;
        let lock_id = found.get_str("lockId").ok().filter(|id| !id.is_empty())?;
        Some(Self {
            lock_id: lock_id.to_owned(),
            rest: rest(&found, "now"),
            read_at,
        })
    }

    /// The note of its end; `None` if there is none, or none that can be read.
    async fn note(&self, collections: &Collections) -> Option<Document> {
        let id = format!("forced:{}", self.lock_id);
        let fields = doc! { "expiresAt": 1, "at": 1, "seen": 1 };
        find(&collections.waiters, &id, fields).await.ok()?
    }

    /// Whether its end is noted. The rest of the lease that has ended is known then.
    pub(crate) async fn is_noted(&mut self, collections: &Collections) -> bool {
        let read_at = Instant::now();
        let Some(note) = self.note(collections).await else {
            return false;
        };
        (self.rest, self.read_at) = (rest(&note, "at"), read_at);
        true
    }

    /// Waits until its holder has noticed its end, or its lease would have ended. Whether the holder has noticed it.
    pub(crate) async fn until_noticed(&self, collections: &Collections) -> bool {
        loop {
            let is_over = self.read_at.elapsed() >= self.rest;
            let note = self.note(collections).await;
            if note.is_some_and(|note| note.contains_key("seen")) {
                return true;
            }
            if is_over {
                return false;
            }
            sleep(LOOK.min(self.rest.saturating_sub(self.read_at.elapsed()))).await;
        }
    }
}

/// The time from a date of this document to the end of the lease.
fn rest(document: &Document, from: &str) -> Duration {
    let date = |field| {
        document
            .get_datetime(field)
            .copied()
            .map_or(0, DateTime::timestamp_millis)
    };
    let rest = date("expiresAt").saturating_sub(date(from));
    Duration::from_millis(u64::try_from(rest).unwrap_or_default())
}

/// Reads one document from the primary.
async fn find(
    collection: &Collection<Document>,
    id: &str,
    fields: Document,
) -> Result<Option<Document>, Error> {
    collection
        .find_one(doc! { "_id": id })
        .projection(fields)
        .read_concern(ReadConcern::local())
        .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
        .max_time(LIMIT)
        .await
}
