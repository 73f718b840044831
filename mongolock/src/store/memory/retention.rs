//! Deletes the documents of unused locks, as MongoDB's TTL index does.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use crate::protocol::{Document, Ms, Name, Value};

/// The number of documents that each acquire request checks. Two are enough for the store to shrink, because a request
/// adds at most one document, and they bound the time that one request takes.
const CHECKS: usize = 2;

/// The number of entries up to which the queue is not shrunk, because that would save little memory.
const SMALL: usize = 1024;

/// Decides which documents are deleted, and which token a new document starts with.
pub(super) struct Retention {
    /// The time for which a document is kept after the end of its lease.
    period: Ms,
    /// One element for each document, the earliest first: a time on the store's clock before which its lease did not
    /// end, and its name. Renewals and releases need not change it, because they never end a lease in the past.
    queue: BinaryHeap<Reverse<(Ms, Name)>>,
    /// The greatest fencing token of all deleted documents. Under contention tokens are reserved in blocks and can be
    /// ahead of the clock, so the clock alone would not let them increase after a deletion.
    greatest_deleted_token: i64,
}

impl Retention {
    pub(super) fn new(period: Ms) -> Self {
        Self {
            period,
            queue: BinaryHeap::new(),
            greatest_deleted_token: 0,
        }
    }

    pub(super) fn set_period(&mut self, period: Ms) {
        self.period = period;
    }

    /// A new document, before its first acquisition.
    pub(super) fn first(&self) -> Document {
        Document {
            token: Value::Long(self.greatest_deleted_token),
            ..Document::default()
        }
    }

    /// Registers a new document.
    pub(super) fn add(&mut self, name: &Name, now: Ms) {
        self.queue.push(Reverse((now, Arc::clone(name))));
    }

    /// Deletes documents whose leases ended long enough ago: at most [`CHECKS`] of them at a time.
    pub(super) fn sweep(&mut self, documents: &mut BTreeMap<Name, Document>, now: Ms) {
        for _ in 0..CHECKS {
            let Some(name) = self.pop_due(now) else { return };
            self.check(name, documents, now);
        }
        let length = self.queue.len();
        if self.queue.capacity() > SMALL && length < self.queue.capacity() / 4 {
            self.queue.shrink_to(length * 2);
        }
    }

    fn pop_due(&mut self, now: Ms) -> Option<Name> {
        let first = self.queue.peek_mut()?;
        let Reverse((not_before, _)) = &*first;
        let is_due = *not_before + self.period <= now;
        is_due.then(|| {
            let Reverse((_, name)) = PeekMut::pop(first);
            name
        })
    }

    fn check(&mut self, name: Name, documents: &mut BTreeMap<Name, Document>, now: Ms) {
        let Some(document) = documents.get(&name) else {
            return;
        };
        let end = document.expires_at.date().unwrap_or(now);
        if end + self.period > now {
            self.queue.push(Reverse((end.min(now), name)));
            return;
        }
        let token = document.token.long().unwrap_or_default();
        self.greatest_deleted_token = self.greatest_deleted_token.max(token);
        documents.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{advance, sleep};

    use super::*;
    use crate::few::Few;
    use crate::protocol::{Order, Row, Then, When};
    use crate::store::MemoryStore;
    use crate::sync::lock;
    use crate::{LockFilter, LockProvider};

    const SECOND: Duration = Duration::from_secs(1);

    /// Runs a row, and returns the token of the document after it.
    fn run(store: &MemoryStore, name: &str, when: When, then: Then) -> i64 {
        let name = Arc::from(name);
        let replies = store.run_at_once(&Few::one(Row { name, when, then }), Order::Each);
        let reply = replies[0].as_ref().unwrap();
        assert_eq!(reply.is_applied, Some(true), "{replies:?}");
        reply.sight.as_ref().unwrap().document.token.long().unwrap()
    }

    /// Acquires the lock for a second with this number of tokens, and returns the last of them.
    fn claim(store: &MemoryStore, name: &str, tokens: i64) -> i64 {
        let id = "one".into();
        let expiry = 1000;
        let then = Then::Claim { id, expiry, tokens };
        run(store, name, When::Free { margin: 0 }, then)
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
        assert!(store.sight(store.now(), "n").is_none());
        assert!(claim(&store, "n", 1) > before);
    }

    /// A release returns the unused tokens of its block, and still each hold has a greater token than the one before:
    /// the clock stands still, and is behind the tokens when the document is deleted.
    #[tokio::test(start_paused = true)]
    async fn tokens_rise_over_releases_that_give_back_the_rest_of_their_blocks() {
        const BLOCK: i64 = 1000;
        let store = MemoryStore::new();
        store.set_retention(SECOND / 100);
        let mut last = 0;
        for _ in 0..100_000 {
            let first = claim(&store, "n", BLOCK) - (BLOCK - 1);
            assert!(first > last, "{first} after {last}");
            let end = Then::End {
                min_hold: 0,
                unused: BLOCK - 1,
            };
            last = run(&store, "n", When::is(&"one".into()), end);
            assert_eq!(last, first, "one token was handed out");
        }
        advance(SECOND / 50).await;
        assert!(last > store.now() * 1000, "the tokens are ahead of the clock");
        claim(&store, "other", 1);
        assert!(store.sight(store.now(), "n").is_none(), "it was deleted");
        assert!(claim(&store, "n", 1) > last);
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
        let documents = lock(&store.documents);
        let (by_name, queue) = (&documents.by_name, &documents.retention.queue);
        assert_eq!((by_name.len(), queue.len()), (1, 1));
        assert!(queue.capacity() <= SMALL, "{}", queue.capacity());
    }
}
