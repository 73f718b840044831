//! The hold of a set: one lease, with one deadline, one renewal and one release, for several names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::{Grant, Hold, Lease, without_margin};
use crate::meter::LockMeter;
use crate::options::Options;
use crate::sync::lock;

impl Hold {
    /// The same hold of a set for a caller that has written this name first. A hold that is over stays as it is.
    pub(crate) fn standing_for(mut self, title: usize) -> Self {
        let lease = Arc::clone(&self.lease);
        if lease.title == title {
            return self;
        }
        self.renewer.forget(&lease);
        let Some(deadline) = lease.begin_release() else {
            return self;
        };
        // From here on the new lease has the duty to release the claims.
        self.is_released = true;
        self.renewer.hold(lease.following(deadline, 0, title))
    }

    /// Makes one hold of the holds of several names, which were acquired one after the other. If one of them is over, the
    /// new hold is over as well, and dropping it releases the others.
    pub(crate) fn joined(
        holds: Vec<Self>,
        title: usize,
        options: &Arc<Options>,
        meter: Option<&LockMeter>,
    ) -> Option<Self> {
        let renewer = Arc::clone(&holds.first()?.renewer);
        let acquired = Instant::now();
        let mut deadline = acquired + without_margin(options.expiry);
        let (mut keys, mut parts, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        let mut unconfirmed = false;
        for mut hold in holds {
            let lease = Arc::clone(hold.lease());
            renewer.forget(&lease);
            // From here on the new lease has the duty to release the claim.
            hold.is_released = true;
            deadline = deadline.min(lease.begin_release().unwrap_or(acquired));
            unconfirmed |= lease.unconfirmed.load(Ordering::Relaxed);
            keys.extend_from_slice(&lease.keys);
            parts.extend_from_slice(&lease.parts);
            slots.extend(lock(&lease.slots).iter_mut().map(std::mem::take));
        }
        let grant = Grant {
            keys: keys.into(),
            parts: parts.into(),
            title,
            acquired,
            deadline,
            once: None,
            back: None,
            slots: slots.into(),
        };
        let lease = Lease::new(grant, Arc::clone(options));
        lease.unconfirmed.store(unconfirmed, Ordering::Relaxed);
        let hold = renewer.hold(lease);
        hold.deliver(None, meter);
        Some(hold)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::few::Few;
    use crate::lease::tests::{EXPIRY, renewer};
    use crate::lease::{Entry, Part, QueueSlot, Queues};
    use crate::store::LeaseId;
    use crate::{FencingToken, LossReason};

    /// A lease of two names, whose tokens are 1 and 2 of 3.
    pub(in crate::lease) fn set(title: usize) -> Lease {
        let key = |name| LeaseId {
            name: Arc::from(name),
            lock_id: Arc::from("owner#1"),
        };
        let part = |token| Part {
            token: FencingToken::new(token),
            last_token: FencingToken::new(3),
            copies: None,
        };
        let grant = Grant {
            keys: Few::Several(["a", "b"].map(key).into()),
            parts: Few::Several([1, 2].map(part).into()),
            title,
            acquired: Instant::now(),
            deadline: Instant::now() + EXPIRY,
            once: None,
            back: None,
            slots: Few::Several([QueueSlot::Nothing, QueueSlot::Nothing].into()),
        };
        Lease::new(grant, Arc::default())
    }

    fn tokens(lease: &Lease) -> Vec<i64> {
        lease.tokens().map(|(_, token)| token.get()).collect()
    }

    #[test]
    fn a_set_has_a_claim_and_a_token_for_each_of_its_names() {
        let lease = set(1);
        assert_eq!((lease.name(), lease.token().get()), ("b", 2));
        let names: Vec<&str> = lease.keys().iter().map(|key| &*key.name).collect();
        assert_eq!(names, ["a", "b"]);
        let token_of = |name| lease.token_of(name).map(FencingToken::get);
        assert_eq!(["a", "b", "c"].map(token_of), [Some(1), Some(2), None]);
    }

    #[test]
    fn the_next_hold_has_a_greater_token_of_each_name_until_one_has_none_left() {
        let first = set(1);
        let deadline = first.deadline().unwrap();
        let next = first.successor(deadline).unwrap();
        assert_eq!(
            (next.name(), next.token().get(), tokens(&next)),
            ("b", 3, vec![2, 3])
        );
        assert!(next.is_handed_over() && next.deadline() == Some(deadline));
        assert!(next.successor(deadline).is_none(), "`b` has no token left");
    }

    #[test]
    fn the_first_turn_of_a_set_passes_while_the_others_stay() {
        let queues = Queues::new();
        let entries = ["a", "b"].map(|name| queues.join(&Arc::from(name)));
        let lease = set(0);
        lease.deliver(entries.iter().filter_map(Entry::try_turn), None);
        drop(lease.take_turn().expect("both turns are there"));
        assert!(lease.take_turn().is_none(), "one of the turns is missing");
        assert!(entries[1].try_turn().is_none(), "the other one stays");
        lease.put_turn(entries[0].try_turn().expect("it has passed on"));
        lease.lose(LossReason::Gone);
        assert!(
            entries.iter().all(|entry| entry.try_turn().is_some()),
            "no turn is left"
        );
    }

    #[tokio::test]
    async fn a_hold_stands_for_the_name_that_its_caller_has_written_first() {
        let hold = renewer().hold(set(1));
        let deadline = hold.lease().deadline();
        let hold = hold.standing_for(0);
        let lease = Arc::clone(hold.lease());
        assert_eq!(
            (lease.name(), lease.token().get(), tokens(&lease)),
            ("a", 1, vec![1, 2])
        );
        assert_eq!(lease.deadline(), deadline);
        assert!(Arc::ptr_eq(hold.standing_for(0).lease(), &lease));
    }
}
