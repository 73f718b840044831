use std::sync::Arc;

use super::renewer::Renewer;
use super::{Lease, Turn};
use super::{completion, detaching, release};
use crate::meter::LockMeter;
use crate::options::Options;
use crate::timing::RELEASE_REPLY_LIMIT;
use crate::{LeaseHandle, LockError};

/// A lease and the duty to release it: dropping it releases in the background.
pub(crate) struct Hold {
    pub(super) lease: Arc<Lease>,
    pub(super) renewer: Arc<Renewer>,
    pub(super) is_released: bool,
}

impl Hold {
    pub(super) fn new(lease: Arc<Lease>, renewer: Arc<Renewer>) -> Self {
        Self {
            lease,
            renewer,
            is_released: false,
        }
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Notes that a caller has received the hold, with its turns; see [`Lease::deliver`].
    pub(crate) fn deliver(&self, turns: impl IntoIterator<Item = Turn>, meter: Option<&LockMeter>) {
        self.lease.deliver(turns, meter);
    }

    /// Releases the lock and waits for the server's reply. Cancel safe: once polled, the release goes on.
    pub(crate) async fn release(&mut self) -> Result<(), LockError> {
        if self.lease.has_ended_well() {
            self.is_released = true;
            return Ok(());
        }
        let begun = release::begin(&self.renewer, &self.lease);
        // This is set after the release has begun: without a runtime that panics, and dropping the hold releases the lock.
        self.is_released = true;
        release::outcome(&self.renewer, &self.lease, begun, Some(RELEASE_REPLY_LIMIT)).await
    }

    /// Ends a hold whose work has succeeded, and waits for the server's reply: the lock is marked as done if the work may
    /// succeed only once, and otherwise released. Cancel safe: once polled, the completion goes on.
    pub(crate) async fn complete(&mut self) -> Result<(), LockError> {
        let Some(once) = self.lease.once.filter(|_| !self.lease.has_ended_well()) else {
            return self.release().await;
        };
        let begun = completion::begin(&self.renewer, &self.lease, once.mark_end);
        self.is_released = true;
        release::outcome(&self.renewer, &self.lease, begun, None).await
    }

    /// Gives the lease the id of this handle, and waits for the server's reply. Once polled, dropping the future releases the lock.
    pub(crate) async fn detach(&mut self, handle: &LeaseHandle) -> Result<(), LockError> {
        if self.lease.has_ended_well() {
            self.is_released = true;
            return Err(self.lease.lost_error());
        }
        let begun = detaching::begin(&self.renewer, &self.lease, handle);
        // As in `release`.
        self.is_released = true;
        detaching::outcome(begun?).await
    }

    /// Releases the lock without waiting for the server's reply. An error says that the lease had ended before.
    pub(crate) fn release_unawaited(&mut self) -> Result<(), LockError> {
        let released = if self.lease.has_ended_well() {
            Ok(())
        } else {
            release::unawaited(&self.renewer, &self.lease)
        };
        // As in `release`.
        self.is_released = true;
        released
    }

    /// The hold that was handed over to a caller of the set of these names, or of a single lock if there are none, with these
    /// options; otherwise it comes back, and has to be released.
    pub(crate) fn taken_over(self, names: &[Arc<str>], options: &Options) -> Result<Self, Self> {
        let lease = self.lease();
        if lease.is_set_of(names) && lease.options.has_same_lease(options) && !lease.is_over() {
            Ok(self)
        } else {
            Err(self)
        }
    }

    /// Releases a hold that the caller does not take over, and returns whether the server has replied. What it replied does
    /// not matter to this caller, which acquires the lock anew.
    pub(crate) async fn release_for_next(mut self) -> bool {
        !matches!(self.release().await, Err(LockError::Mongo(_)))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_released && !self.lease.has_ended_well() {
            release::in_background(&self.renewer, &self.lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockProvider;
    use crate::lease::set::tests::set;
    use crate::lease::tests::{lease, renewer};

    #[tokio::test]
    async fn work_that_may_succeed_once_leaves_a_mark() {
        let lock = LockProvider::in_memory().lock("n").once();
        lock.acquire().await.unwrap().done().await.unwrap();
        let next = lock.acquire().await;
        assert!(matches!(next, Err(LockError::Done { .. })), "{:?}", next.err());
    }

    fn is_refused(hold: Hold, names: &[&str], options: &Options) -> Option<Hold> {
        let names: Vec<Arc<str>> = names.iter().map(|name| Arc::from(*name)).collect();
        hold.taken_over(&names, options).err()
    }

    #[tokio::test]
    async fn only_a_caller_of_the_same_names_with_the_same_lease_takes_a_set_over() {
        let options = Options::default();
        let other = Options {
            expiry: options.expiry * 2,
            ..options.clone()
        };
        let mut handover = renewer().hold(set(0));
        for names in [&[][..], &["a"], &["b"], &["a", "b", "c"]] {
            handover = is_refused(handover, names, &options).expect("these are other names");
        }
        handover = is_refused(handover, &["a", "b"], &other).expect("it is another lease");
        assert!(is_refused(handover, &["a", "b"], &options).is_none());
        let single = renewer().hold(lease("a", &options));
        let single = is_refused(single, &["a", "b"], &options).expect("it is a single lock");
        assert!(is_refused(single, &[], &options).is_none());
    }

    /// The store does not know the claim: that is a reply, too.
    #[tokio::test]
    async fn a_release_without_a_claim_has_a_reply() {
        let hold = renewer().hold(lease("n", &Options::default()));
        assert!(hold.release_for_next().await);
    }
}
