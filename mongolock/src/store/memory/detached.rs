//! The commands of detached leases, by the rules of the pipelines in `store/detached.rs`.

use std::sync::Arc;
use std::time::Duration;

use super::{Document, MemoryStore, floor};
use crate::FencingToken;
use crate::few::Few;
use crate::options::WEEK;
use crate::store::detached::extended;
use crate::store::{
    AcquireReply, AcquireRequest, ClaimEnd, Claimed, Detachment, Extended, HolderChange, LeaseId,
};
use crate::sync::lock;
use crate::timing::LATE_COMMAND;

impl Document {
    /// Gives the lease the id of a handle.
    fn detach(&mut self, now: Duration, lock_id: &Arc<str>, ttl: Duration, min_hold: Duration) {
        self.lock_id = Arc::clone(lock_id);
        self.expires_at = (now + ttl).max(self.min_hold_end(now, min_hold));
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "a server may fail where this store cannot"
)]
impl MemoryStore {
    pub(in crate::store) fn detach(&self, keys: &Few<LeaseId>, detachment: &Detachment) -> Claimed {
        let now = self.now();
        let mut tokens = detachment.tokens.iter();
        Ok(keys.map(|key| {
            let token = tokens.next().copied().unwrap_or(FencingToken::NONE);
            self.detach_at(now, key, token, detachment)
        }))
    }

    pub(in crate::store) fn resume(
        &self,
        keys: &Few<LeaseId>,
        handle_id: &Arc<str>,
        request: AcquireRequest,
    ) -> Claimed {
        let now = self.now();
        let mut has_all = true;
        for key in keys.iter() {
            has_all = has_all && self.resume_at(now, key, handle_id, request);
        }
        Ok(keys.map(|key| self.read_claim(now, key, request)))
    }
}

impl MemoryStore {
    pub(in crate::store) fn extend(&self, keys: &Few<LeaseId>, ttl: Duration) -> Extended {
        let (now, mut runs) = (self.now(), true);
        for key in keys.iter() {
            runs = runs && self.extend_at(now, key, ttl).is_acquired();
        }
        let request = AcquireRequest::plain(ttl);
        extended(&keys.map(|key| self.read_claim(now, key, request)))
    }

    pub(in crate::store) fn release_detached(
        &self,
        keys: &Few<LeaseId>,
        min_hold: Duration,
        takeover_margin: Duration,
    ) -> bool {
        let now = self.now();
        let release = |key: &&LeaseId| self.release_taken_at(now, key, min_hold, takeover_margin);
        keys.iter().filter(release).count() > 0
    }

    /// Gives the lease of this claim the id of a handle; the reply is for the claim with that id.
    pub(crate) fn detach_at(
        &self,
        now: Duration,
        key: &LeaseId,
        token: FencingToken,
        detachment: &Detachment,
    ) -> AcquireReply {
        let Detachment {
            lock_id,
            ttl,
            min_hold,
            ..
        } = detachment;
        self.change_id(&key.name, |document| {
            let is_own = document.lock_id == key.lock_id && document.token == token.get();
            if is_own {
                document.detach(now, lock_id, *ttl, *min_hold);
            }
            is_own
        });
        self.read_claim(now, &key.with_id(lock_id), AcquireRequest::plain(*ttl))
    }

    /// Gives the claim the running lease with the id of a handle, and returns whether it has the lock.
    pub(crate) fn resume_at(
        &self,
        now: Duration,
        key: &LeaseId,
        handle_id: &Arc<str>,
        request: AcquireRequest,
    ) -> bool {
        self.change_id(&key.name, |document| {
            let runs = document.lock_id == *handle_id && document.expires_at > now;
            if runs {
                document.lock_id = Arc::clone(&key.lock_id);
                document.expires_at = now + request.expiry;
                document.token = (document.token + 1).max(floor(now)) + (request.tokens - 1);
            }
            runs
        });
        self.read_claim(now, key, request).is_acquired()
    }

    /// Extends this detached lease if it runs.
    pub(crate) fn extend_at(&self, now: Duration, key: &LeaseId, ttl: Duration) -> AcquireReply {
        let mut documents = lock(&self.documents);
        if let Some(document) = documents.get_mut(&key.name)
            && document.lock_id == key.lock_id
            && document.expires_at > now
        {
            let present = document.expires_at.min(now + WEEK + LATE_COMMAND);
            document.expires_at = present.max(now + ttl);
        }
        drop(documents);
        let request = AcquireRequest::plain(ttl);
        self.read_claim(now, key, request)
    }

    /// Releases this detached lease; `false` if the lock is not taken by it.
    pub(crate) fn release_taken_at(
        &self,
        now: Duration,
        key: &LeaseId,
        min_hold: Duration,
        takeover_margin: Duration,
    ) -> bool {
        let lease = self.running_lease(now, &key.name, takeover_margin);
        let is_taken = lease.is_some_and(|lease| lease.holder.as_ref() == Some(&key.lock_id));
        is_taken && self.release_at(now, key, min_hold)
    }

    /// Ends this claim, and returns whether it had its lock.
    pub(crate) fn end_at(&self, now: Duration, key: &LeaseId, end: &ClaimEnd) -> bool {
        match end {
            ClaimEnd::Released { min_hold } => self.release_at(now, key, *min_hold),
            ClaimEnd::GivenBack {
                lock_id,
                ttl,
                min_hold,
            } => self.change_id(&key.name, |document| {
                let is_own = document.lock_id == key.lock_id;
                if is_own {
                    document.detach(now, lock_id, *ttl, *min_hold);
                }
                is_own
            }),
        }
    }

    pub(in crate::store) fn end_many(&self, keys: &[LeaseId], end: &ClaimEnd) {
        let now = self.now();
        for key in keys {
            self.end_at(now, key, end);
        }
    }

    /// Changes the id in the document of a lock, and returns whether it was changed.
    fn change_id(&self, name: &Arc<str>, change: impl FnOnce(&mut Document) -> bool) -> bool {
        let mut documents = lock(&self.documents);
        let Some(document) = documents.get_mut(name) else {
            return false;
        };
        let is_changed = change(document);
        if is_changed {
            self.send(|| HolderChange::Acquired {
                name: Arc::clone(name),
                lock_id: Arc::clone(&document.lock_id),
            });
        }
        is_changed
    }
}
