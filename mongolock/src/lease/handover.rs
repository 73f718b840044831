//! What a caller leaves in the queue for the next caller in this process.

use std::sync::Arc;

use tokio::time::Instant;

use super::renewer::Renewer;
use super::{Hold, Lease, Turn, release};
use crate::meter::HandoverKind;
use crate::options::Options;
use crate::{LockError, trace};

/// A lock, or the locks of a set, that pass to the next caller in this process without a command.
pub(crate) enum Handover {
    /// A hold for a waiter. It is renewed until the waiter takes it.
    Hold(Hold),
    /// A hold that has ended for its caller and whose release is not sent yet.
    Unreleased(Unreleased),
}

impl Handover {
    /// The next hold, for a caller of the set of these names, or of a single lock if there are none, with these options;
    /// otherwise the lock has to be released.
    pub(crate) fn take(self, names: &[Arc<str>], options: &Options) -> Result<Hold, Self> {
        let lease = match &self {
            Self::Hold(hold) => hold.lease(),
            Self::Unreleased(unreleased) => &unreleased.lease,
        };
        if !lease.is_set_of(names) || !lease.options.has_same_lease(options) {
            return Err(self);
        }
        match self {
            Self::Hold(hold) if !hold.lease().is_over() => Ok(hold),
            Self::Unreleased(unreleased) => unreleased.take().map_err(Self::Unreleased),
            Self::Hold(_) => Err(self),
        }
    }

    /// Releases the lock, and returns whether the server has replied. What it replied does not matter to the next caller,
    /// which acquires the lock anew.
    pub(crate) async fn release(self) -> bool {
        let released = match self {
            Self::Hold(mut hold) => hold.release().await,
            Self::Unreleased(unreleased) => unreleased.release().await,
        };
        !matches!(released, Err(LockError::Mongo(_)))
    }
}

/// A lease that was ended for a release, and the duty to send that release: dropping it releases in the background.
pub(crate) struct Unreleased {
    lease: Arc<Lease>,
    /// The deadline that the lease had.
    deadline: Instant,
    renewer: Arc<Renewer>,
    /// Whether the lock was taken over, or its release was sent.
    is_settled: bool,
}

impl Unreleased {
    pub(super) fn new(lease: &Arc<Lease>, deadline: Instant, renewer: &Arc<Renewer>) -> Self {
        Self {
            lease: Arc::clone(lease),
            deadline,
            renewer: Arc::clone(renewer),
            is_settled: false,
        }
    }

    fn take(mut self) -> Result<Hold, Self> {
        if self.deadline <= Instant::now() {
            return Err(self);
        }
        let Some(next) = self.lease.successor(self.deadline) else {
            return Err(self);
        };
        self.is_settled = true;
        // The turns of a set's other names.
        next.put_slot(self.lease.take_slot());
        self.lease.report(trace::released);
        if let Some(meter) = self.lease.meter() {
            meter.handed_over(HandoverKind::NextCaller);
        }
        Ok(self.renewer.hold(next))
    }

    /// Releases the lock, for a caller that waits for the end.
    async fn release(mut self) -> Result<(), LockError> {
        let begun = release::begin_sending(&self.renewer, &self.lease);
        self.is_settled = true;
        release::finish(&self.lease, begun, "release").await
    }

    /// Sends the release, and keeps the turn until the server has confirmed it.
    pub(super) async fn release_in_turn(mut self, turn: Turn) {
        self.lease.put_turn(turn);
        self.lease.note_release_sent();
        self.is_settled = true;
        // The outcome is reported by an event.
        drop(release::send(Arc::clone(&self.renewer), Arc::clone(&self.lease)).await);
    }
}

impl Drop for Unreleased {
    fn drop(&mut self) {
        if !self.is_settled {
            self.lease.report(trace::released);
            self.renewer.release_claim(&self.lease, self.lease.take_slot());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::set::tests::set;
    use crate::lease::tests::{lease, renewer};

    fn is_refused(handover: Handover, names: &[&str], options: &Options) -> Option<Handover> {
        let names: Vec<Arc<str>> = names.iter().map(|name| Arc::from(*name)).collect();
        handover.take(&names, options).err()
    }

    #[tokio::test]
    async fn only_a_caller_of_the_same_names_with_the_same_lease_takes_a_set_over() {
        let options = Options::default();
        let other = Options {
            expiry: options.expiry * 2,
            ..options.clone()
        };
        let mut handover = Handover::Hold(renewer().hold(set(0)));
        for names in [&[][..], &["a"], &["b"], &["a", "b", "c"]] {
            handover = is_refused(handover, names, &options).expect("these are other names");
        }
        handover = is_refused(handover, &["a", "b"], &other).expect("it is another lease");
        assert!(is_refused(handover, &["a", "b"], &options).is_none());
        let single = Handover::Hold(renewer().hold(lease("a", &options)));
        let single = is_refused(single, &["a", "b"], &options).expect("it is a single lock");
        assert!(is_refused(single, &[], &options).is_none());
    }

    /// The store does not know the claim: that is a reply, too.
    #[tokio::test]
    async fn a_release_without_a_claim_has_a_reply() {
        let hold = renewer().hold(lease("n", &Options::default()));
        assert!(Handover::Hold(hold).release().await);
    }
}
