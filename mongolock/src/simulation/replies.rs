//! What a process learns of a lock from a reply, noted for the checks.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::link::Link;
use crate::lock_id;
use crate::protocol::{Reply, Sight};
use crate::store::LeaseId;
use crate::timing::{NO_REPLY, RELEASE_LIMIT};

/// The time for which a call may wait for an unused claim of its own process while no release of it is sent: commands without a
/// reply may keep all places of repeated releases until they are given up.
const UNUSED_CLAIM_LIMIT: Duration = RELEASE_LIMIT
    .saturating_add(NO_REPLY)
    .saturating_add(Duration::from_millis(500));

impl Link {
    pub(super) fn note_reply(&self, key: &LeaseId, reply: &Reply, sent: Instant) {
        self.process.contacts.wake_ups.replied(key, reply);
        if reply.has(&key.lock_id) {
            return self.process.contacts.note_reply_without_holder(&key.name);
        }
        let holder = reply.sight.as_ref().and_then(Sight::lock_id);
        let holder = holder.map(|id| Arc::from(lock_id::taken_by(id)));
        self.note_held(&key.name, holder.as_ref(), sent);
    }

    pub(super) fn note_held(&self, name: &Arc<str>, holder: Option<&Arc<str>>, sent: Instant) {
        let contacts = &self.process.contacts;
        let Some(id) = holder.filter(|id| self.is_own_unused_claim(id)) else {
            return contacts.note_held(name);
        };
        // A process that is paused sends no release.
        let was_paused = self.process.was_paused_within(UNUSED_CLAIM_LIMIT);
        if contacts.note_own_unused_claim(name, id, sent, UNUSED_CLAIM_LIMIT) && !was_paused {
            let number = self.process.number;
            self.server.ledger.breach(format!(
                "{number} waits for {name}, which is held by its own unused claim {id}"
            ));
        }
    }

    /// Whether this is a claim of this process that no live lease uses.
    fn is_own_unused_claim(&self, lock_id: &str) -> bool {
        self.process.owns(lock_id) && !self.server.ledger.is_live_claim(lock_id)
    }
}
