//! Deletes the documents of unused locks, as MongoDB's TTL index does.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::Document;

/// The number of documents that each acquire request checks. Two are enough for the store to shrink, because a request
/// adds at most one document, and they bound the time that one request takes.
const CHECKS: usize = 2;

/// The number of entries up to which a table is not shrunk, because that would save little memory.
const SMALL: usize = 1024;

/// Decides which documents are deleted, and which token a new document starts with.
pub(super) struct Retention {
    /// The time for which a document is kept after the end of its lease.
    period: Duration,
    /// One entry for each document, the earliest first: a time on the store's clock before which its lease did not end,
    /// and its name. Renewals and releases need not change it, because they never end a lease in the past.
    queue: BinaryHeap<Reverse<(Duration, Arc<str>)>>,
    /// The greatest fencing token of all deleted documents. Under contention tokens are reserved in blocks and can run
    /// ahead of the clock, so that the clock alone would not keep them rising after a deletion.
    greatest_deleted_token: i64,
}

impl Retention {
    pub(super) fn new(period: Duration) -> Self {
        Self {
            period,
            queue: BinaryHeap::new(),
            greatest_deleted_token: 0,
        }
    }

    pub(super) fn set_period(&mut self, period: Duration) {
        self.period = period;
    }

    /// The smallest token of a new document.
    pub(super) fn first_token(&self) -> i64 {
        self.greatest_deleted_token + 1
    }

    /// Registers a new document.
    pub(super) fn add(&mut self, name: &Arc<str>, now: Duration) {
        self.queue.push(Reverse((now, Arc::clone(name))));
    }

    /// Deletes documents whose leases ended long enough ago: at most [`CHECKS`] of them at a time.
    pub(super) fn sweep(&mut self, documents: &mut HashMap<Arc<str>, Document>, now: Duration) {
        for _ in 0..CHECKS {
            let Some(name) = self.pop_due(now) else { return };
            self.check(name, documents, now);
        }
        if documents.capacity() > SMALL && documents.len() < documents.capacity() / 4 {
            documents.shrink_to(documents.len() * 2);
            self.queue.shrink_to(self.queue.len() * 2);
        }
    }

    fn pop_due(&mut self, now: Duration) -> Option<Arc<str>> {
        let first = self.queue.peek_mut()?;
        let Reverse((not_before, _)) = &*first;
        let is_due = *not_before + self.period <= now;
        is_due.then(|| {
            let Reverse((_, name)) = PeekMut::pop(first);
            name
        })
    }

    fn check(&mut self, name: Arc<str>, documents: &mut HashMap<Arc<str>, Document>, now: Duration) {
        let Some(document) = documents.get(&name) else {
            return;
        };
        if document.expires_at + self.period > now {
            self.queue.push(Reverse((document.expires_at.min(now), name)));
            return;
        }
        self.greatest_deleted_token = self.greatest_deleted_token.max(document.token);
        documents.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use crate::store::LeaseId;
    use crate::store::{AcquireReply, AcquireRequest, MemoryStore};
    use crate::sync::lock;
    use crate::{LockFilter, LockProvider};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(name: &str) -> LeaseId {
        LeaseId {
            name: name.into(),
            lock_id: "one".into(),
        }
    }

    /// Acquires the lock for a second with this number of tokens, and returns the last of them.
    fn claim(store: &MemoryStore, name: &str, tokens: i64) -> i64 {
        let expiry = SECOND;
        let request = AcquireRequest {
            wants_dates: false,
            expiry,
            tokens,
            takeover_margin: Duration::ZERO,
        };
        match store.claim_one(&key(name), request) {
            AcquireReply::Acquired { last_token, .. } => last_token.get(),
            AcquireReply::Held { .. } => panic!("{name} is held"),
        }
    }

    /// Each name is used once, a hundred names a second.
    async fn use_names(provider: &LockProvider, names: std::ops::Range<u32>) {
        for name in names {
            provider.lock(name).await.unwrap().release().await.unwrap();
            sleep(SECOND / 100).await;
        }
    }

    async fn count(provider: &LockProvider) -> usize {
        provider.admin().list(LockFilter::new()).await.unwrap().len()
    }

    #[tokio::test(start_paused = true)]
    async fn documents_are_deleted_after_their_retention() {
        let provider = LockProvider::in_memory()
            .to_builder()
            .retention(SECOND)
            .build()
            .unwrap();
        let held = provider.lock("held").await.unwrap();
        use_names(&provider, 0..5000).await;
        let kept = count(&provider).await;
        assert!((100..=110).contains(&kept), "{kept} documents");
        let document = provider.admin().get("held").await.unwrap().expect("it is kept");
        assert_eq!(document.fencing_token, held.fencing_token());
        held.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_provider_that_was_built_last_decides() {
        let day = LockProvider::in_memory();
        use_names(&day, 0..500).await;
        assert_eq!(count(&day).await, 500);
        let second = day.to_builder().retention(SECOND).build().unwrap();
        use_names(&day, 500..2000).await;
        let kept = count(&second).await;
        assert!((100..=110).contains(&kept), "{kept} documents");
        let _day_again = day.to_builder().build().unwrap();
        use_names(&second, 2000..2500).await;
        assert_eq!(count(&day).await, kept + 500);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_rise_after_a_deletion_also_if_they_ran_ahead_of_the_clock() {
        let store = MemoryStore::new();
        store.set_retention(SECOND);
        let before = claim(&store, "n", 1_000_000_000);
        advance(SECOND * 3).await;
        claim(&store, "other", 1);
        assert!(store.get("n", Duration::ZERO).is_none());
        assert!(claim(&store, "n", 1) > before);
    }

    #[tokio::test(start_paused = true)]
    async fn deleted_documents_free_their_memory() {
        let store = MemoryStore::new();
        store.set_retention(SECOND);
        for name in 0..10_000 {
            claim(&store, &name.to_string(), 1);
        }
        advance(SECOND * 3).await;
        for _ in 0..6_000 {
            advance(SECOND * 3).await;
            claim(&store, "hot", 1);
        }
        let (documents, retention) = (lock(&store.documents), lock(&store.retention));
        assert_eq!((documents.len(), retention.queue.len()), (1, 1));
        let capacities = [documents.capacity(), retention.queue.capacity()];
        assert!(
            capacities.iter().all(|entries| *entries <= SMALL),
            "{capacities:?}"
        );
    }
}
