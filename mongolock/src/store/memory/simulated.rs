//! What the simulation does to the server, and what it reads.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::sync::broadcast;

use super::{Document, MemoryStore};
use crate::lock_id;
use crate::protocol::{Ms, Name, News, Row, Sight, Then, Value, When};
use crate::store::{duration, millis};
use crate::sync::lock;

/// In milliseconds.
const HOUR: Ms = 3_600_000;

impl MemoryStore {
    /// Moves the server's clock.
    pub(crate) fn jump(&self, millis: i64) {
        self.jumped.fetch_add(millis, Relaxed);
    }

    /// The same store whose clock begins at this date.
    pub(crate) fn starting_at(self, started_at: DateTime) -> Self {
        Self {
            started_at: started_at.timestamp_millis(),
            ..self
        }
    }

    /// Has this claim acquire a lock that is free, for an hour.
    pub(crate) fn acquire(&self, name: &str, id: &str) {
        let then = Then::Claim {
            id: Arc::from(id),
            expiry: HOUR,
            tokens: 1,
        };
        assert!(self.run_one(name, When::Free { margin: 0 }, then));
    }

    /// Changes the document of this claim, if it has the lock.
    pub(crate) fn change(&self, name: &str, id: &str, then: Then) {
        self.run_one(name, When::is(&Arc::from(id)), then);
    }

    fn run_one(&self, name: &str, when: When, then: Then) -> bool {
        let name = Arc::from(name);
        let reply = self.run_row(self.now(), &Row { name, when, then });
        reply.is_ok_and(|reply| reply.is_applied == Some(true))
    }

    /// The number of locks that this claim has.
    pub(crate) fn locks_of(&self, lock_id: &str) -> usize {
        let is_own = |sight: &Sight| sight.has(lock_id) && sight.left() > Some(0);
        self.found(|_| true)
            .iter()
            .filter(|(_, sight)| is_own(sight))
            .count()
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<News> {
        self.events.subscribe()
    }

    /// The claim or mark in the document, unless the lock was released.
    pub(crate) fn claimed_by(&self, name: &str) -> Option<Arc<str>> {
        let sight = self.sight(self.now(), name)?;
        let id = sight.document.lock_id.text().cloned();
        id.filter(|id| !lock_id::taken_by(id).is_empty())
    }

    /// The names whose leases run; marks are none.
    pub(crate) fn taken(&self) -> Vec<Name> {
        let is_taken =
            |sight: &Sight| sight.left() > Some(0) && sight.lock_id().is_some_and(|id| !lock_id::is_mark(id));
        let taken = self
            .found(|_| true)
            .into_iter()
            .filter(|(_, sight)| is_taken(sight));
        taken.map(|(name, _)| name).collect()
    }

    /// The id in the document of a lock that is not free to a process with this margin, empty during a minimum hold, and
    /// how long the lock stays taken.
    pub(crate) fn lease_of(&self, name: &str, margin: Ms) -> Option<(Arc<str>, Duration)> {
        let sight = self.sight(self.now(), name)?;
        let id = Arc::from(lock_id::taken_by(sight.lock_id()?));
        let lasts = duration(sight.until_free(margin)?);
        (!sight.is_free(margin)).then_some((id, lasts))
    }

    /// Deletes a document as an operator does: not even its token is remembered.
    pub(crate) fn delete(&self, name: &str) -> bool {
        let deleted = lock(&self.documents).by_name.remove(name);
        self.report(&Arc::from(name), None);
        deleted.is_some()
    }

    /// Deletes documents whose leases ended long enough ago, as the server's TTL monitor does: unlike the store's own
    /// sweep it does not remember their tokens.
    pub(crate) fn sweep(&self, retention: Duration) {
        let latest = Some(self.now() - millis(retention));
        let is_kept = |document: &Document| document.expires_at.date() > latest;
        lock(&self.documents)
            .by_name
            .retain(|_, document| is_kept(document));
    }

    /// Takes the lock if it is free, as DistributedLock.MongoDB does: its tokens begin with 1.
    pub(crate) fn neighbour_claims(&self, name: &Name, id: &Arc<str>, expiry: Duration) -> bool {
        let now = self.now();
        let mut documents = lock(&self.documents);
        let previous = documents.by_name.get(name);
        if previous.is_some_and(|document| document.expires_at.date() > Some(now)) {
            return false;
        }
        let token = previous.and_then(|document| document.token.long());
        let acquired = Document {
            lock_id: Value::Text(Arc::clone(id)),
            acquired_at: Value::Date(now),
            expires_at: Value::Date(now + millis(expiry)),
            token: Value::Long(token.unwrap_or_default() + 1),
        };
        documents.by_name.insert(Arc::clone(name), acquired.clone());
        self.report(
            name,
            Some(&Sight {
                document: acquired,
                now: Some(now),
            }),
        );
        true
    }

    /// Renews by a plain set, as DistributedLock.MongoDB does.
    pub(crate) fn neighbour_renews(&self, name: &str, id: &str, expiry: Duration) -> bool {
        let end = self.now() + millis(expiry);
        let mut documents = lock(&self.documents);
        let own = documents.by_name.get_mut(name);
        let own = own.filter(|document| document.lock_id.text().is_some_and(|own| **own == *id));
        own.map(|document| document.expires_at = Value::Date(end))
            .is_some()
    }

    /// Deletes the document of its claim, as DistributedLock.MongoDB does on release.
    pub(crate) fn neighbour_releases(&self, name: &str, id: &str) -> bool {
        self.claimed_by(name).is_some_and(|holder| &*holder == id) && self.delete(name)
    }
}
