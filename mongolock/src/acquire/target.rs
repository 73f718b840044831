//! What a claim is for, and what differs with it: a lock, one permit of a semaphore, all locks of a set, or a detached lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::asking::Kind;
use crate::engine::Engine;
use crate::few::Few;
use crate::lease::copies::Copies;
use crate::store::ClaimEnd;
use crate::{LeaseHandle, protocol};

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
    /// The lease that a handle stands for.
    Detached(Arc<Resumption>),
}

/// A lease that a claim resumes.
pub(super) struct Resumption {
    pub(super) handle: LeaseHandle,
    /// Whether the lease has lost some of its locks for good, and not all, so that it is no longer of use.
    is_broken: AtomicBool,
}

impl Resumption {
    pub(super) fn new(handle: LeaseHandle) -> Self {
        Self {
            handle,
            is_broken: AtomicBool::new(false),
        }
    }

    /// Notes that the lease has lost some of its locks: the claims are released then, and not given back.
    pub(super) fn note_broken(&self) {
        self.is_broken.store(true, Relaxed);
    }
}

impl Target {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Lock | Self::Part | Self::Detached(_) => Kind::Lock,
            Self::Permit(_) => Kind::Permit,
            Self::Set { .. } => Kind::Set,
        }
    }

    /// Whether the claims are those of all names of a set, with one id.
    pub(super) fn is_set(&self) -> bool {
        match self {
            Self::Lock | Self::Part | Self::Permit(_) => false,
            Self::Set { .. } => true,
            Self::Detached(lease) => lease.handle.ids().len() > 1,
        }
    }

    /// The detached lease that is resumed.
    pub(super) fn detached(&self) -> Option<&Arc<Resumption>> {
        match self {
            Self::Detached(lease) => Some(lease),
            _ => None,
        }
    }

    /// Whether a release of the claim ends a turn in the line: no caller had the locks of a set that were given back, and a
    /// detached lease keeps its locks.
    pub(super) fn is_noted_in_line(&self) -> bool {
        matches!(self, Self::Lock | Self::Part | Self::Permit(_))
    }

    /// How a claim ends that is given up.
    pub(super) fn end(&self) -> ClaimEnd {
        match self {
            Self::Detached(lease) if lease.is_broken.load(Relaxed) => ClaimEnd::Released {
                min_hold: lease.handle.min_hold(),
            },
            Self::Detached(lease) => ClaimEnd::GivenBack {
                lock_id: Arc::clone(lease.handle.lock_id()),
                ttl: lease.handle.ttl(),
                min_hold: lease.handle.min_hold(),
            },
            _ => ClaimEnd::RELEASED,
        }
    }

    /// The name of the permit; locks have those of their queues.
    pub(super) fn permit(&self) -> Option<&Arc<str>> {
        match self {
            Self::Permit(name) => Some(name),
            Self::Detached(lease) => lease.handle.permit().and_then(|_| lease.handle.ids().first()),
            _ => None,
        }
    }

    /// The place of the name that stands for the claim.
    pub(super) fn title(&self) -> usize {
        match self {
            Self::Set { first, .. } => *first,
            Self::Detached(lease) => lease.handle.title(),
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
        let (mark, owner) = (&engine.mark, &engine.owner);
        match self {
            Self::Lock | Self::Part => mark.new_lock_id(owner, protocol::Kind::Single),
            Self::Permit(_) => mark.new_lock_id(owner, protocol::Kind::Permit),
            Self::Set { .. } => mark.new_lock_id(owner, protocol::Kind::Set),
            // The owner stays, so that the end of its session ends this hold as well.
            Self::Detached(lease) if self.is_set() => {
                mark.new_lock_id(lease.handle.owner(), protocol::Kind::ResumedSet)
            }
            Self::Detached(lease) => mark.new_lock_id(lease.handle.owner(), protocol::Kind::Resumed),
        }
    }

    /// The copies of the requests for so many names.
    pub(super) fn copies(&self, names: usize) -> Few<Copies> {
        Copies::of_claims(self.is_set(), names)
    }

    /// Whether the lease can pass to another caller of this process: that of a set to one that waits for its first name, and
    /// that of a permit or of a call that has resumed a lease never.
    pub(super) fn may_hand_over(&self) -> bool {
        !matches!(self, Self::Permit(_) | Self::Detached(_))
    }
}
