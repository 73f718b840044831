//! What becomes of a hold that was released by force: whether that is noted, and when its holder has noticed it.

use std::time::{Duration, Instant};

use mongodb::bson::doc;
use mongodb::options::{ReadConcern, ReadPreference, SelectionCriteria};
use mongolock::LockInfo;
use tokio::time::sleep;

use crate::connection::Collections;
use crate::duration::between;
use crate::ids;
use crate::notes::{Forced, Notes};

/// The pause between two looks whether the holder has noticed the end of its hold.
const LOOK: Duration = Duration::from_millis(200);

/// The limit of the query for a hold at the server.
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
        let read_at = Instant::now();
        let found = collections
            .locks
            .find_one(doc! { "_id": ids::document(&info.name, info.permit) })
            .projection(doc! { "lockId": 1, "expiresAt": 1, "now": "$$NOW" })
            .read_concern(ReadConcern::local())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .max_time(LIMIT);
        let found = found.await.ok()??;
        let lock_id = found.get_str("lockId").ok().filter(|id| !id.is_empty())?;
        let [now, end] = ["now", "expiresAt"].map(|field| found.get_datetime(field).ok().copied());
        Some(Self {
            lock_id: lock_id.to_owned(),
            rest: now
                .zip(end)
                .map_or(Duration::ZERO, |(now, end)| between(now, end)),
            read_at,
        })
    }

    /// The note of its end; `None` if there is none, or none that can be read.
    async fn note(&self, collections: &Collections) -> Option<Forced> {
        let notes = Notes::of(&collections.waiters, &[&self.lock_id]).await;
        notes.forced(&self.lock_id).cloned()
    }

    /// Whether its end is noted. The rest of the lease that has ended is known then.
    pub(crate) async fn is_noted(&mut self, collections: &Collections) -> bool {
        let read_at = Instant::now();
        let Some(note) = self.note(collections).await else {
            return false;
        };
        let end = note.expires_at.unwrap_or(note.at);
        (self.rest, self.read_at) = (between(note.at, end), read_at);
        true
    }

    /// Waits until its holder has noticed its end, or its lease would have ended. Whether the holder has noticed it.
    pub(crate) async fn until_noticed(&self, collections: &Collections) -> bool {
        loop {
            let is_over = self.read_at.elapsed() >= self.rest;
            let note = self.note(collections).await;
            if note.is_some_and(|note| note.is_seen) {
                return true;
            }
            if is_over {
                return false;
            }
            sleep(LOOK.min(self.rest.saturating_sub(self.read_at.elapsed()))).await;
        }
    }
}
