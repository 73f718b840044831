//! What a claim is for, and what differs with it: a lock, one permit of a semaphore, or all locks of a set.

use std::sync::Arc;

use super::asking::Kind;
use crate::engine::Engine;
use crate::few::Few;
use crate::lease::copies::Copies;

/// What a claim is for.
#[derive(Clone)]
pub(super) enum Target {
    Lock,
    /// One lock of a set, which are acquired one by one: it reserves tokens, with which the whole set can be handed over.
    Part,
    /// The permit with this name.
    Permit(Arc<str>),
    Set {
        /// The place of the name that stands for the set.
        first: usize,
        /// The name that the call has waited for, by its place, and the claim that had the lock: if it has it still, the call
        /// goes on to wait for that one.
        awaited: Option<(usize, Arc<str>)>,
    },
}

impl Target {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Lock | Self::Part => Kind::Lock,
            Self::Permit(_) => Kind::Permit,
            Self::Set { .. } => Kind::Set,
        }
    }

    pub(super) fn is_set(&self) -> bool {
        matches!(self, Self::Set { .. })
    }

    /// The name of the permit; locks have those of their queues.
    pub(super) fn permit(&self) -> Option<&Arc<str>> {
        match self {
            Self::Permit(name) => Some(name),
            _ => None,
        }
    }

    /// The place of the name that stands for the claim.
    pub(super) fn title(&self) -> usize {
        match self {
            Self::Set { first, .. } => *first,
            _ => 0,
        }
    }

    /// The name that a call for a set has waited for, and the claim that had the lock.
    pub(super) fn awaited(&self) -> Option<(usize, &Arc<str>)> {
        match self {
            Self::Set {
                awaited: Some((place, lock_id)),
                ..
            } => Some((*place, lock_id)),
            _ => None,
        }
    }

    /// The id of a new claim.
    pub(super) fn new_lock_id(&self, engine: &Engine) -> Arc<str> {
        if self.is_set() {
            engine.mark.new_set_id(&engine.owner)
        } else {
            engine.mark.new_lock_id(&engine.owner)
        }
    }

    /// The copies of the requests for so many names.
    pub(super) fn copies(&self, names: usize) -> Few<Copies> {
        if self.is_set() {
            Few::from(Copies::of_set(names))
        } else {
            Few::one(Copies::default())
        }
    }

    /// Whether the lease can pass to another caller of this process: that of a set to one that waits for its first name, and
    /// that of a permit never.
    pub(super) fn may_hand_over(&self) -> bool {
        !matches!(self, Self::Permit(_))
    }
}
