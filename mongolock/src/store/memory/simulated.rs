//! What the simulation does to the server, and what it reads.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::sync::broadcast;

use super::{Document, MemoryStore};
use crate::lock_id;
use crate::store::{AfterRelease, HolderChange};
use crate::sync::lock;

impl MemoryStore {
    /// Moves the server's clock.
    pub(crate) fn jump(&self, millis: i64) {
        let jumped = self.jumped.load(Relaxed).saturating_add_signed(millis);
        self.jumped.store(jumped, Relaxed);
    }

    /// The same store whose clock begins at this date.
    pub(crate) fn starting_at(self, started_at: DateTime) -> Self {
        Self { started_at, ..self }
    }

    pub(crate) fn date_now(&self) -> DateTime {
        self.date(self.now())
    }

    /// What the document of a lock says after a release.
    pub(crate) fn after_release(&self, now: Duration, name: &str) -> Option<AfterRelease> {
        let documents = lock(&self.documents);
        let document = documents.get(name)?;
        Some(AfterRelease {
            lock_id: document.lock_id.to_string(),
            token: document.token,
            held_for: now.saturating_sub(document.acquired_at),
        })
    }

    /// The number of locks that this claim has.
    pub(crate) fn locks_of(&self, lock_id: &str) -> usize {
        let now = self.now();
        let documents = lock(&self.documents);
        let own = documents
            .values()
            .filter(|document| *document.lock_id == *lock_id);
        own.filter(|document| document.expires_at > now).count()
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<HolderChange> {
        self.events.subscribe()
    }

    /// The claim or mark in the document, unless the lock was released.
    pub(crate) fn claimed_by(&self, name: &str) -> Option<Arc<str>> {
        let documents = lock(&self.documents);
        let id = documents.get(name).map(|document| Arc::clone(&document.lock_id));
        id.filter(|id| !lock_id::taken_by(id).is_empty())
    }

    /// The names whose leases run; marks are none.
    pub(crate) fn taken(&self) -> Vec<Arc<str>> {
        let now = self.now();
        let documents = lock(&self.documents);
        let is_taken =
            |document: &Document| document.expires_at > now && !lock_id::is_mark(&document.lock_id);
        let taken = documents.iter().filter(|(_, document)| is_taken(document));
        taken.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// The id in the document of a lock that is not free to a process with this margin, empty during a minimum hold, and
    /// how long the lock stays taken.
    pub(crate) fn lease_of(&self, name: &str, takeover_margin: Duration) -> Option<(Arc<str>, Duration)> {
        let lease = self.running_lease(self.now(), name, takeover_margin)?;
        Some((lease.holder?, lease.remaining))
    }

    /// Deletes a document as an operator does: not even its token is remembered.
    pub(crate) fn delete(&self, name: &str) -> bool {
        let deleted = lock(&self.documents).remove(name);
        self.report(&Arc::from(name));
        deleted.is_some()
    }

    /// Deletes documents whose leases ended long enough ago, as the server's TTL monitor does: unlike the store's own
    /// sweep it does not remember their tokens.
    pub(crate) fn sweep(&self, retention: Duration) {
        let now = self.now();
        lock(&self.documents).retain(|_, document| document.expires_at + retention > now);
    }

    /// Takes the lock if it is free, as DistributedLock.MongoDB does: its tokens begin with 1.
    pub(crate) fn neighbour_claims(&self, name: &Arc<str>, id: &Arc<str>, expiry: Duration) -> bool {
        let now = self.now();
        let mut documents = lock(&self.documents);
        let previous = documents.get(name);
        if previous.is_some_and(|document| document.expires_at > now) {
            return false;
        }
        let taken = Document {
            lock_id: Arc::clone(id),
            acquired_at: now,
            expires_at: now + expiry,
            token: previous.map_or(1, |document| document.token + 1),
        };
        documents.insert(Arc::clone(name), taken);
        self.send(|| HolderChange::Acquired {
            name: Arc::clone(name),
            lock_id: Arc::clone(id),
        });
        true
    }

    /// Renews by a plain set, as DistributedLock.MongoDB does.
    pub(crate) fn neighbour_renews(&self, name: &str, id: &str, expiry: Duration) -> bool {
        let now = self.now();
        let mut documents = lock(&self.documents);
        let own = documents
            .get_mut(name)
            .filter(|document| &*document.lock_id == id);
        own.map(|document| document.expires_at = now + expiry).is_some()
    }

    /// Deletes the document of its claim, as DistributedLock.MongoDB does on release.
    pub(crate) fn neighbour_releases(&self, name: &str, id: &str) -> bool {
        self.claimed_by(name).is_some_and(|holder| &*holder == id) && self.delete(name)
    }
}
