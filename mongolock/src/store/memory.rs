mod detached;
mod retention;
#[cfg(test)]
mod simulated;
mod taken;
mod waiters;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::sync::broadcast;
use tokio::time::Instant;
use uuid::Uuid;

use self::retention::Retention;
use self::waiters::WaiterDocuments;
use super::{
    AcquireReply, AcquireRequest, Admissions, ClaimItem, Claimed, Dates, HolderChange, HoldsOf, Outcomes,
    Page, ReleaseItem, RenewReply, RunningLease, SeenHold,
};
use crate::few::Few;
use crate::lock_id;
use crate::options::DEFAULT_RETENTION;
use crate::store::LeaseId;
use crate::store::info::Seen;
use crate::store::takeover::margin_after;
use crate::sync::lock;
use crate::timing::LATE_COMMAND;
use crate::{FencingToken, LockFilter, LockInfo};

/// The time of the store's clock at its start: tokens are derived from the time, and a token of 0 would look like no
/// token.
const AT_START: Duration = Duration::from_secs(1);

/// The protocol without a server, by the rules of the pipelines in `claims.rs`: for tests of programs that use locks.
pub(crate) struct MemoryStore {
    /// The time at which the store's clock started.
    start: Instant,
    /// The wall clock's time at the start, which only serves to show dates.
    started_at: DateTime,
    /// What tells the store from all others, in the handles of its detached leases.
    pub(super) id: String,
    documents: Mutex<HashMap<Arc<str>, Document>>,
    /// The retention; its mutex is locked after that of the documents.
    retention: Mutex<Retention>,
    /// The names of released and deleted locks, for the waiters.
    pub(super) events: broadcast::Sender<HolderChange>,
    waiters: WaiterDocuments,
    /// It admits every command at once.
    pub(super) admissions: Arc<Admissions>,
    /// The milliseconds by which the simulation has moved the clock.
    #[cfg(test)]
    jumped: AtomicU64,
}

#[derive(Clone)]
pub(super) struct Document {
    pub(super) lock_id: Arc<str>,
    acquired_at: Duration,
    pub(super) expires_at: Duration,
    pub(super) token: i64,
}

impl Document {
    /// Whether the lock is free, by the rule of the expression in `takeover.rs`.
    fn is_free(&self, now: Duration, takeover_margin: Duration) -> bool {
        self.free_at(takeover_margin) <= now
    }

    /// The time at which the lock is free if it is neither renewed nor released.
    fn free_at(&self, takeover_margin: Duration) -> Duration {
        if self.lock_id.is_empty() {
            return Duration::ZERO;
        }
        self.expires_at + margin_after(&self.lock_id, takeover_margin)
    }

    /// The end of the minimum hold, by the rule of the expression in `claims.rs`.
    fn min_hold_end(&self, now: Duration, min_hold: Duration) -> Duration {
        self.acquired_at.min(now) + min_hold
    }

    /// What an operator's read finds.
    fn seen(&self, name: &Arc<str>) -> SeenHold {
        SeenHold {
            name: Arc::clone(name),
            lock_id: Some(self.lock_id.as_ref().into()),
            token: Some(self.token.into()),
        }
    }

    /// Renews by the rule of the pipeline in `claims.rs`: a renewal that takes effect late does not shorten the lease.
    fn renew(&mut self, now: Duration, expiry: Duration) {
        let present = self.expires_at.min(now + expiry + LATE_COMMAND);
        self.expires_at = present.max(now + expiry);
    }

    /// Replaces the claim by its mark.
    pub(super) fn mark(&mut self, until: Duration) {
        self.lock_id = Arc::from(lock_id::mark_of(&self.lock_id));
        self.expires_at = until;
    }

    pub(super) fn end(&mut self, at: Duration) {
        self.lock_id = Arc::from("");
        self.expires_at = at;
    }

    /// Releases the claim, by the rule of the pipeline in `claims.rs`.
    fn release(&mut self, now: Duration, min_hold: Duration) {
        let until = self.min_hold_end(now, min_hold);
        if until > now {
            self.lock_id = Arc::from(lock_id::kept_of(&self.lock_id));
            self.expires_at = until;
        } else {
            self.end(now);
        }
    }
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            started_at: DateTime::now(),
            id: format!("memory {}", Uuid::new_v4()),
            documents: Mutex::default(),
            retention: Mutex::new(Retention::new(DEFAULT_RETENTION)),
            events: broadcast::Sender::new(1024),
            waiters: WaiterDocuments::default(),
            admissions: Admissions::unlimited(),
            #[cfg(test)]
            jumped: AtomicU64::new(0),
        }
    }

    /// Keeps the documents of unused locks for this time.
    pub(crate) fn set_retention(&self, period: Duration) {
        lock(&self.retention).set_period(period);
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "a server may fail where this store cannot"
    )]
    pub(super) fn claim(&self, keys: &Few<LeaseId>, request: AcquireRequest) -> Claimed {
        Ok(keys.map(|key| self.claim_one(key, request)))
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "a server may fail where this store cannot"
    )]
    pub(super) fn claim_each(&self, items: &[ClaimItem]) -> Outcomes<AcquireReply> {
        let claim = |item: &ClaimItem| Ok(self.claim_one(&item.key, item.request));
        Ok(items.iter().map(claim).collect())
    }

    pub(crate) fn claim_one(&self, key: &LeaseId, request: AcquireRequest) -> AcquireReply {
        self.claim_at(self.now(), key, request)
    }

    /// [`Self::claim_one`] at the given time of the store's clock, which a command reads when it begins. Other methods have
    /// the same form.
    pub(crate) fn claim_at(&self, now: Duration, key: &LeaseId, request: AcquireRequest) -> AcquireReply {
        let mut documents = lock(&self.documents);
        let mut retention = lock(&self.retention);
        retention.sweep(&mut documents, now);
        let fresh = |least: i64| Document {
            lock_id: Arc::clone(&key.lock_id),
            acquired_at: now,
            expires_at: now + request.expiry,
            token: least.max(floor(now)) + (request.tokens - 1),
        };
        let (document, acquired) = match documents.entry(Arc::clone(&key.name)) {
            Entry::Occupied(previous) => {
                let document = previous.into_mut();
                let is_free = document.is_free(now, request.takeover_margin);
                if is_free {
                    *document = fresh(document.token + 1);
                }
                (document, is_free)
            }
            Entry::Vacant(new) => {
                retention.add(&key.name, now);
                (new.insert(fresh(retention.first_token())), true)
            }
        };
        if acquired {
            self.send(|| HolderChange::Acquired {
                name: Arc::clone(&key.name),
                lock_id: Arc::clone(&key.lock_id),
            });
        }
        self.reply(now, document, key, request)
    }

    /// What this document says to a claim.
    fn reply(
        &self,
        now: Duration,
        document: &Document,
        key: &LeaseId,
        request: AcquireRequest,
    ) -> AcquireReply {
        let dates = Some(Dates {
            now: self.date(now),
            acquired_at: self.date(document.acquired_at),
            expires_at: self.date(document.expires_at),
        });
        if document.lock_id == key.lock_id {
            return AcquireReply::Acquired {
                dates,
                last_token: FencingToken::new(document.token),
                remaining: Some(document.expires_at.saturating_sub(now)),
            };
        }
        AcquireReply::Held {
            dates,
            holder: Some(Arc::from(lock_id::taken_by(&document.lock_id))),
            held_for: Some(now.saturating_sub(document.acquired_at)),
            remaining: Some(document.free_at(request.takeover_margin).saturating_sub(now)),
        }
    }

    /// What the document of a lock says to a claim.
    pub(crate) fn read_claim(&self, now: Duration, key: &LeaseId, request: AcquireRequest) -> AcquireReply {
        let documents = lock(&self.documents);
        let document = documents.get(&key.name);
        document.map_or(AcquireReply::HELD, |document| {
            self.reply(now, document, key, request)
        })
    }

    pub(crate) fn renew(&self, claims: &[(LeaseId, Duration)]) -> RenewReply {
        self.renew_at(self.now(), claims)
    }

    pub(crate) fn renew_at(&self, now: Duration, claims: &[(LeaseId, Duration)]) -> RenewReply {
        let mut documents = lock(&self.documents);
        let mut held = std::collections::HashSet::new();
        for (key, expiry) in claims {
            if let Some(document) = own(&mut documents, key) {
                document.renew(now, *expiry);
                held.insert(key.clone());
            }
        }
        if held.len() == claims.len() {
            RenewReply::All
        } else {
            RenewReply::Only(held)
        }
    }

    /// Releases these claims; `false` if one of them does not have its lock.
    pub(crate) fn release(&self, keys: &[LeaseId], min_hold: Duration) -> bool {
        let now = self.now();
        let released = keys.iter().filter(|key| self.release_at(now, key, min_hold));
        released.count() == keys.len()
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "a server may fail where this store cannot"
    )]
    pub(super) fn release_each(&self, items: &[ReleaseItem]) -> Outcomes<bool> {
        let release = |item: &ReleaseItem| Ok(self.release(std::slice::from_ref(&item.key), item.min_hold));
        Ok(items.iter().map(release).collect())
    }

    pub(crate) fn release_at(&self, now: Duration, key: &LeaseId, min_hold: Duration) -> bool {
        let mut documents = lock(&self.documents);
        let Some(document) = own(&mut documents, key) else {
            return false;
        };
        document.release(now, min_hold);
        self.report(&key.name);
        true
    }

    /// Changes the document of this claim, if the claim has the lock, and returns the document as it was before.
    pub(super) fn replace_claim(
        &self,
        key: &LeaseId,
        change: impl FnOnce(&mut Document),
    ) -> Option<Document> {
        let mut documents = lock(&self.documents);
        let document = documents.get_mut(&key.name)?;
        let found = document.clone();
        if found.lock_id == key.lock_id {
            change(document);
            self.report(&key.name);
        }
        Some(found)
    }

    /// The names of all locks that have a document.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        lock(&self.documents).keys().cloned().collect()
    }

    /// The lease that runs on this lock at this time.
    pub(crate) fn running_lease(
        &self,
        now: Duration,
        name: &str,
        takeover_margin: Duration,
    ) -> Option<RunningLease> {
        let documents = lock(&self.documents);
        let document = documents
            .get(name)
            .filter(|document| !document.is_free(now, takeover_margin))?;
        Some(RunningLease {
            holder: Some(Arc::from(lock_id::taken_by(&document.lock_id))),
            held_for: Some(now.saturating_sub(document.acquired_at)),
            remaining: document.free_at(takeover_margin).saturating_sub(now),
        })
    }

    /// All locks that meet the filter, as one page: the documents are in memory anyway.
    pub(super) fn page(&self, filter: &LockFilter, _after: Option<&str>, takeover_margin: Duration) -> Page {
        let now = self.now();
        let documents = lock(&self.documents);
        let mut documents: Vec<(&Arc<str>, &Document)> = documents.iter().collect();
        documents.sort_unstable_by_key(|(id, _)| Arc::clone(id));
        let mut locks: Vec<LockInfo> = documents
            .into_iter()
            .map(|(id, document)| self.info(id, document, now, takeover_margin))
            .filter(|info| filter.admits(info))
            .collect();
        if let Some(limit) = filter.limit {
            locks.truncate(limit as usize);
        }
        Page {
            locks: locks.into_iter().map(Ok).collect(),
            last_name: None,
        }
    }

    pub(crate) fn get(&self, name: &str, takeover_margin: Duration) -> Option<LockInfo> {
        let now = self.now();
        let documents = lock(&self.documents);
        documents
            .get(name)
            .map(|document| self.info(name, document, now, takeover_margin))
    }

    pub(crate) fn force_release(&self, hold: &SeenHold) -> bool {
        self.force_release_at(self.now(), hold)
    }

    /// Frees the lock by force if the document is as it was read.
    pub(crate) fn force_release_at(&self, now: Duration, hold: &SeenHold) -> bool {
        let mut documents = lock(&self.documents);
        let document = documents
            .get_mut(&hold.name)
            .filter(|document| *hold == document.seen(&hold.name));
        let Some(document) = document else {
            return false;
        };
        document.end(now);
        self.report(&hold.name);
        true
    }

    pub(crate) fn seen_holds(&self, of: HoldsOf<'_>, takeover_margin: Duration) -> Vec<SeenHold> {
        let now = self.now();
        let documents = lock(&self.documents);
        let wanted = documents.iter().filter(|(name, document)| {
            let is_of = match of {
                HoldsOf::Name(wanted) => ***name == *wanted,
                HoldsOf::Owner(wanted) => {
                    !lock_id::is_mark(&document.lock_id) && lock_id::owner(&document.lock_id) == Some(wanted)
                }
            };
            is_of && !document.is_free(now, takeover_margin)
        });
        wanted.map(|(name, document)| document.seen(name)).collect()
    }

    /// Reports an event to the waiters; it is no error if there are none.
    fn send(&self, event: impl FnOnce() -> HolderChange) {
        if self.events.receiver_count() > 0 {
            // The last receiver may have left in the meantime.
            let _ = self.events.send(event());
        }
    }

    fn report(&self, name: &Arc<str>) {
        self.send(|| HolderChange::Released {
            name: Arc::clone(name),
        });
    }

    fn info(&self, name: &str, document: &Document, now: Duration, takeover_margin: Duration) -> LockInfo {
        let seen = Seen {
            name,
            lock_id: &document.lock_id,
            acquired_at: self.date(document.acquired_at),
            expires_at: self.date(document.expires_at),
            token: document.token,
            now: self.date(now),
            takeover_margin,
        };
        seen.into()
    }

    pub(super) fn date(&self, clock: Duration) -> DateTime {
        let elapsed = i64::try_from(clock.saturating_sub(AT_START).as_millis()).unwrap_or(i64::MAX);
        DateTime::from_millis(self.started_at.timestamp_millis().saturating_add(elapsed))
    }

    /// The time of the store's clock in whole milliseconds, as MongoDB keeps its dates.
    pub(crate) fn now(&self) -> Duration {
        let elapsed = AT_START + self.start.elapsed();
        #[cfg(test)]
        let elapsed = elapsed + Duration::from_millis(self.jumped.load(Relaxed));
        Duration::new(elapsed.as_secs(), elapsed.subsec_millis() * 1_000_000)
    }
}

fn own<'a>(documents: &'a mut HashMap<Arc<str>, Document>, key: &LeaseId) -> Option<&'a mut Document> {
    documents
        .get_mut(&key.name)
        .filter(|document| document.lock_id == key.lock_id)
}

fn floor(now: Duration) -> i64 {
    i64::try_from(now.as_millis() * 1000).unwrap_or(i64::MAX)
}
