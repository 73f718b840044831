use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::book::{Answer, Book, NextRelease};
use crate::LockError;
use crate::few::Few;
use crate::store::{AcquireReply, Claimed};
use crate::sync::lock;

/// One claim in the [`Book`] of its id, which the requests, the lease and the releases of the claim share.
#[derive(Clone, Default)]
pub(crate) struct Copies {
    book: Arc<Mutex<Book>>,
    /// The place of the claim's lock in its set; zero for a lock alone.
    index: usize,
}

impl Copies {
    /// The claims of a lock alone, or of a set of this number of locks.
    pub(crate) fn of_claims(are_set: bool, names: usize) -> Few<Self> {
        if are_set {
            Few::from(Self::of_set(names))
        } else {
            Few::one(Self::default())
        }
    }

    /// The claims of a set of this number of locks, in their order.
    pub(super) fn of_set(names: usize) -> Vec<Self> {
        let book = Arc::new(Mutex::new(Book::of_set(names)));
        let claim = |index| Self {
            book: Arc::clone(&book),
            index,
        };
        (0..names).map(claim).collect()
    }

    /// Notes that a request is sent for all claims of the book.
    pub(crate) fn sent(&self) {
        lock(&self.book).sent(Instant::now());
    }

    /// Notes that a request for a lock alone is sent once more; `false` if the claim was given up.
    pub(crate) fn sent_again(&self) -> bool {
        lock(&self.book).sent_again(Instant::now())
    }

    /// Notes how a request for this claim and the others of the book, so many together, has ended that was sent then, and returns
    /// which of them have to be released because of it; `None` is no reply.
    pub(crate) fn note(
        &self,
        sent: Instant,
        claims: usize,
        outcome: Option<&Result<Claimed, LockError>>,
    ) -> Vec<usize> {
        let replies = (0..claims).map(|index| match outcome {
            Some(Ok(Ok(replies))) => replies.get(index).map(Ok),
            Some(Err(error)) => Some(Err(error)),
            // The claims of a set may have their locks, however the query about them has failed.
            Some(Ok(Err(_))) | None => None,
        });
        self.answered(sent, replies)
    }

    /// Notes what the reply to a request that was sent then says of this claim, and of all others of the book in their order;
    /// returns which of them have to be released because of it.
    pub(super) fn answered<'a>(
        &self,
        sent: Instant,
        replies: impl IntoIterator<Item = Option<Result<&'a AcquireReply, &'a LockError>>>,
    ) -> Vec<usize> {
        let (mut book, now) = (lock(&self.book), Instant::now());
        book.ended();
        let mut is_due =
            |index, reply| book.answered(now, sent, index, Answer::of(reply)) == NextRelease::Now;
        let replies = replies.into_iter().enumerate();
        let due = replies.filter_map(|(index, reply)| is_due(index, reply).then_some(index));
        // A vector that stays empty takes no allocation.
        due.collect()
    }

    /// Gives the claim up, and returns whether it may have its lock, now or later.
    pub(crate) fn give_up(&self) -> bool {
        lock(&self.book).give_up(self.index)
    }

    pub(crate) fn begin_release(&self) {
        lock(&self.book).begin_release(self.index);
    }

    pub(crate) fn release_ended(&self) -> NextRelease {
        lock(&self.book).release_ended(Instant::now(), self.index)
    }

    /// Whether a request of the claim may take effect from now on.
    pub(crate) fn may_take_effect(&self) -> bool {
        lock(&self.book).may_take_effect(self.index)
    }

    /// Whether the claim has never had its lock, and no request of it may take effect from now on.
    pub(crate) fn is_unused(&self) -> bool {
        lock(&self.book).is_unused(self.index)
    }

    /// The same claim, if one of its requests may take effect from now on.
    pub(crate) fn if_unsettled(&self) -> Option<Self> {
        self.may_take_effect().then(|| self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply names the second claim of a set that was given up: that one is released, and not the first.
    #[test]
    fn the_claim_that_a_reply_has_acquired_is_due() {
        let claims = Copies::of_set(2);
        claims[0].sent();
        assert!(claims.iter().all(Copies::give_up));
        let held = AcquireReply::Held {
            dates: None,
            holder: None,
            held_for: None,
            remaining: None,
        };
        let unclear = LockError::no_reply("query", std::time::Duration::ZERO);
        let replies = [Some(Ok(&held)), Some(Err(&unclear))];
        assert_eq!(claims[0].answered(Instant::now(), replies), [1]);
        assert!(claims[0].if_unsettled().is_none() && claims[1].if_unsettled().is_some());
    }
}
