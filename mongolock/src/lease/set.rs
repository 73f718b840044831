//! The lease of a set: one deadline, one renewal and one release for several names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::copies::Copies;
use super::{Hold, Lease, QueueSlot, Turn, without_margin};
use crate::FencingToken;
use crate::meter::LockMeter;
use crate::options::Options;
use crate::store::LeaseId;
use crate::trace::HoldFields;

/// One name of a set and its claim.
pub(crate) struct Member {
    pub(crate) key: LeaseId,
    pub(crate) token: FencingToken,
    /// The acquire requests of the claim, if one of them may still take effect.
    pub(super) copies: Option<Arc<Copies>>,
}

impl Member {
    /// A name that was acquired by requests of which these are the copies.
    pub(crate) fn new(key: LeaseId, token: FencingToken, copies: &Arc<Copies>) -> Self {
        Self {
            key,
            token,
            copies: copies.may_take_effect().then(|| Arc::clone(copies)),
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

    /// Notes that a caller has received the hold of a set, and keeps the turns of all its names until the hold ends.
    pub(crate) fn deliver_set(&self, turns: Vec<Turn>, meter: &LockMeter) {
        self.delivered.store(true, Ordering::Relaxed);
        self.measure(meter);
        self.put_slot(QueueSlot::Several(
            turns.into_iter().map(QueueSlot::Turn).collect(),
        ));
        if self.deadline().is_none() {
            drop(self.take_slot());
        }
    }
}

impl Hold {
    /// Makes one hold of the holds of several names, which were acquired one after the other. If one of them is over, the
    /// new hold is over as well, and dropping it releases the others.
    pub(crate) fn joined(
        holds: Vec<Self>,
        first: usize,
        options: &Arc<Options>,
        meter: &LockMeter,
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
mod tests {
    use super::*;
    use crate::lease::tests::EXPIRY;

    #[test]
    fn a_set_has_a_claim_and_a_token_for_each_of_its_names() {
        let member = |(name, token)| Member {
            key: LeaseId {
                name: Arc::from(name),
                lock_id: Arc::from("owner#1"),
            },
            token: FencingToken::new(token),
            copies: None,
        };
        let grant = SetGrant {
            members: [("a", 1), ("b", 2)].map(member).into(),
            first: 1,
            acquired: Instant::now(),
            deadline: Instant::now() + EXPIRY,
            slot: QueueSlot::Nothing,
        };
        let lease = Lease::of_set(grant, Arc::default());
        assert_eq!((lease.name(), lease.token.get()), ("b", 2));
        let names: Vec<&str> = lease.keys().map(|key| &*key.name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(lease.members().len(), 2);
        let token_of = |name| lease.token_of(name).map(FencingToken::get);
        assert_eq!(["a", "b", "c"].map(token_of), [Some(1), Some(2), None]);
    }
}
