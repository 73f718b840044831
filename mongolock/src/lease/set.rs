//! The lease of a set: one deadline, one renewal and one release for several names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::copies::Copies;
use super::{Hold, Lease, QueueSlot, without_margin};
use crate::FencingToken;
use crate::meter::LockMeter;
use crate::options::Options;
use crate::store::LeaseId;
use crate::trace::HoldFields;

/// One name of a set and its claim.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) key: LeaseId,
    pub(crate) token: FencingToken,
    /// The last of the tokens that were reserved for hand-overs in this process.
    pub(super) last_token: FencingToken,
    /// The acquire requests of the claim, if one of them may still take effect.
    pub(super) copies: Option<Copies>,
}

impl Member {
    /// A name that was acquired with these tokens, the first and the last, by requests of which these are the copies.
    pub(crate) fn new(
        key: LeaseId,
        (token, last_token): (FencingToken, FencingToken),
        copies: &Copies,
    ) -> Self {
        Self {
            key,
            token,
            last_token,
            copies: copies.if_unsettled(),
        }
    }
}

/// The beginning of a set's lease.
pub(crate) struct SetGrant {
    /// The names in their order, each once.
    pub(crate) members: Vec<Member>,
    /// The place of the name that stands for the set in errors and events: the first one as the caller has written it.
    pub(crate) first: usize,
    /// The time at which the hold began.
    pub(crate) acquired: Instant,
    /// The time at which the holder stops relying on the lease.
    pub(crate) deadline: Instant,
    pub(crate) slot: QueueSlot,
}

impl Lease {
    pub(crate) fn of_set(grant: SetGrant, options: Arc<Options>) -> Self {
        let first = &grant.members[grant.first];
        let (key, token) = (first.key.clone(), first.token);
        Self {
            members: grant.members.into_boxed_slice(),
            ..Self::beginning(key, token, options, grant.acquired, grant.deadline, grant.slot)
        }
    }

    /// The names of a set in their order; empty for the lease of a single lock.
    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether the lease is that of a set of exactly these names; of a single lock if there are none.
    pub(crate) fn is_set_of(&self, names: &[Arc<str>]) -> bool {
        self.members.iter().map(|member| &member.key.name).eq(names)
    }

    /// The claims of the lease: one for each name.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &LeaseId> {
        let own = self.members.is_empty().then_some(&self.key);
        own.into_iter()
            .chain(self.members.iter().map(|member| &member.key))
    }

    /// The names of the lease and their tokens.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (&Arc<str>, FencingToken)> {
        let own = self.members.is_empty().then_some((&self.key.name, self.token));
        let members = self.members.iter().map(|member| (&member.key.name, member.token));
        own.into_iter().chain(members)
    }

    /// The fencing token of this hold for one of its names.
    pub(crate) fn token_of(&self, name: &str) -> Option<FencingToken> {
        let mut tokens = self.tokens();
        tokens.find(|(own, _)| ***own == *name).map(|(_, token)| token)
    }

    /// Reports an event for each name of the lease.
    pub(crate) fn report(&self, event: impl Fn(&HoldFields<'_>)) {
        if self.members.is_empty() {
            return event(&self.fields());
        }
        for member in &self.members {
            event(&HoldFields {
                name: &member.key.name,
                permit: None,
                lock_id: &member.key.lock_id,
                token: Some(member.token),
                acquired: self.acquired,
            });
        }
    }
}

impl Hold {
    /// The same hold of a set for a caller that has written this name first. A hold that is over stays as it is.
    pub(crate) fn standing_for(mut self, first: usize) -> Self {
        let lease = Arc::clone(&self.lease);
        let Some(member) = lease.members.get(first).filter(|member| member.key != lease.key) else {
            return self;
        };
        self.renewer.forget(&lease);
        let Some(deadline) = lease.begin_release() else {
            return self;
        };
        // From here on the new lease has the duty to release the claims.
        self.is_released = true;
        let mut next = lease.following(deadline, 0);
        (next.key, next.token) = (member.key.clone(), member.token);
        next.put_slot(lease.take_slot());
        self.renewer.hold(next)
    }

    /// Makes one hold of the holds of several names, which were acquired one after the other. If one of them is over, the
    /// new hold is over as well, and dropping it releases the others.
    pub(crate) fn joined(
        holds: Vec<Self>,
        first: usize,
        options: &Arc<Options>,
        meter: Option<&LockMeter>,
    ) -> Option<Self> {
        let renewer = Arc::clone(&holds.first()?.renewer);
        let now = Instant::now();
        let latest = now + without_margin(options.expiry);
        let mut grant = SetGrant {
            members: Vec::with_capacity(holds.len()),
            first,
            acquired: now,
            deadline: latest,
            slot: QueueSlot::Nothing,
        };
        let (mut slots, mut unconfirmed) = (Vec::with_capacity(holds.len()), false);
        for mut hold in holds {
            let lease = Arc::clone(hold.lease());
            renewer.forget(&lease);
            // From here on the new lease has the duty to release the claim.
            hold.is_released = true;
            let deadline = lease.begin_release().unwrap_or(now);
            grant.deadline = grant.deadline.min(deadline);
            unconfirmed |= lease.unconfirmed.load(Ordering::Relaxed);
            slots.push(lease.take_slot());
            grant.members.push(Member {
                key: lease.key.clone(),
                token: lease.token,
                last_token: lease.last_token,
                copies: lease.copies.clone(),
            });
        }
        grant.slot = QueueSlot::Several(slots);
        let lease = Lease::of_set(grant, Arc::clone(options));
        lease.unconfirmed.store(unconfirmed, Ordering::Relaxed);
        lease.delivered.store(true, Ordering::Relaxed);
        lease.measure(meter);
        Some(renewer.hold(lease))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::lease::tests::{EXPIRY, renewer};

    /// A lease of two names, whose tokens are 1 and 2 of 3.
    pub(in crate::lease) fn set(first: usize) -> Lease {
        let member = |(name, token)| Member {
            key: LeaseId {
                name: Arc::from(name),
                lock_id: Arc::from("owner#1"),
            },
            token: FencingToken::new(token),
            last_token: FencingToken::new(3),
            copies: None,
        };
        let grant = SetGrant {
            members: [("a", 1), ("b", 2)].map(member).into(),
            first,
            acquired: Instant::now(),
            deadline: Instant::now() + EXPIRY,
            slot: QueueSlot::Nothing,
        };
        Lease::of_set(grant, Arc::default())
    }

    fn tokens(lease: &Lease) -> Vec<i64> {
        lease.tokens().map(|(_, token)| token.get()).collect()
    }

    #[test]
    fn a_set_has_a_claim_and_a_token_for_each_of_its_names() {
        let lease = set(1);
        assert_eq!((lease.name(), lease.token.get()), ("b", 2));
        let names: Vec<&str> = lease.keys().map(|key| &*key.name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(lease.members().len(), 2);
        let token_of = |name| lease.token_of(name).map(FencingToken::get);
        assert_eq!(["a", "b", "c"].map(token_of), [Some(1), Some(2), None]);
    }

    #[test]
    fn the_next_hold_has_a_greater_token_of_each_name_until_one_has_none_left() {
        let first = set(1);
        let deadline = first.deadline().unwrap();
        let next = first.successor(deadline).unwrap();
        assert_eq!(
            (next.name(), next.token.get(), tokens(&next)),
            ("b", 3, vec![2, 3])
        );
        assert!(next.is_handed_over() && next.deadline() == Some(deadline));
        assert!(next.successor(deadline).is_none(), "`b` has no token left");
    }

    #[tokio::test]
    async fn a_hold_stands_for_the_name_that_its_caller_has_written_first() {
        let hold = renewer().hold(set(1));
        let deadline = hold.lease().deadline();
        let hold = hold.standing_for(0);
        let lease = Arc::clone(hold.lease());
        assert_eq!(
            (lease.name(), lease.token.get(), tokens(&lease)),
            ("a", 1, vec![1, 2])
        );
        assert_eq!(lease.deadline(), deadline);
        assert!(Arc::ptr_eq(hold.standing_for(0).lease(), &lease));
    }
}
