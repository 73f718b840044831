use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::book::{Answer, Book, NextRelease};
use crate::LockError;
use crate::store::AcquireReply;
use crate::sync::lock;

/// One claim in the [`Book`] of its id, which the requests, the lease and the releases of the claim share.
#[derive(Clone, Default)]
pub(crate) struct Copies {
    book: Arc<Mutex<Book>>,
    /// The place of the claim's lock in its set; zero for a lock alone.
    key: usize,
}

impl Copies {
    /// The claims of a set of this number of locks, in their order.
    pub(crate) fn of_set(names: usize) -> Vec<Self> {
        let book = Arc::new(Mutex::new(Book::of_set(names)));
        let claim = |key| Self {
            book: Arc::clone(&book),
            key,
        };
        (0..names).map(claim).collect()
    }

    /// Notes that a request is sent for all claims of the book.
    pub(crate) fn sent(&self) {
        lock(&self.book).sent(Instant::now());
    }

    /// Notes what the reply to a request that was sent then says of this claim, and of all others of the book in their order;
    /// returns which of them have to be released because of it.
    pub(crate) fn answered<'a>(
        &self,
        sent: Instant,
        replies: impl IntoIterator<Item = Option<Result<&'a AcquireReply, &'a LockError>>>,
    ) -> Vec<usize> {
        let (mut book, now) = (lock(&self.book), Instant::now());
        book.ended();
        let mut is_due = |key, reply| book.answered(now, sent, key, Answer::of(reply)) == NextRelease::Now;
        let replies = replies.into_iter().enumerate();
        let due = replies.filter_map(|(key, reply)| is_due(key, reply).then_some(key));
        // A vector that stays empty takes no allocation.
        due.collect()
    }

    /// Gives the claim up, and returns whether it may have its lock, now or later.
    pub(crate) fn give_up(&self) -> bool {
        lock(&self.book).give_up(self.key)
    }

    pub(crate) fn begin_release(&self) {
        lock(&self.book).begin_release(self.key);
    }

    pub(crate) fn release_ended(&self) -> NextRelease {
        lock(&self.book).release_ended(Instant::now(), self.key)
    }

    /// Whether a request of the claim may take effect from now on.
    pub(crate) fn may_take_effect(&self) -> bool {
        lock(&self.book).may_take_effect(self.key)
    }

    /// The same claim, if one of its requests may take effect from now on.
    pub(crate) fn if_unsettled(&self) -> Option<Self> {
        self.may_take_effect().then(|| self.clone())
    }
}
