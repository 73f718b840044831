//! What the commands of the protocol ask for, and what their replies say.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;

use crate::few::Few;
use crate::protocol::{Row, Then, Until, When};
use crate::{FencingToken, LeaseHandle, LockError, LossReason};

/// What errors call an acquire request.
pub(crate) const ACQUIRE_REQUEST: &str = "acquire request";

/// The name of a lock and the id of one claim on it, as they stand in the document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LeaseId {
    pub(crate) name: Arc<str>,
    /// The id of the claim, `<owner>#<uuid>`: it is made for one acquisition and never used again. The names of a set have
    /// one id in common.
    pub(crate) lock_id: Arc<str>,
}

impl LeaseId {
    /// The claims of a detached lease.
    pub(crate) fn of_handle(handle: &LeaseHandle) -> Few<Self> {
        Few::collected(handle.ids().iter().map(|id| Self {
            name: Arc::clone(id),
            lock_id: Arc::clone(handle.lock_id()),
        }))
    }

    /// A change of the lock's document.
    pub(super) fn row(&self, when: When, then: Then) -> Row {
        let name = Arc::clone(&self.name);
        Row { name, when, then }
    }

    /// Another claim on the same lock.
    pub(crate) fn with_id(&self, lock_id: &Arc<str>) -> Self {
        Self {
            name: Arc::clone(&self.name),
            lock_id: Arc::clone(lock_id),
        }
    }
}

/// What an acquire request asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AcquireRequest {
    /// The time for which the lease lasts without a renewal.
    pub(crate) expiry: Duration,
    /// The number of fencing tokens to reserve, one for each hold; the document keeps the last of them.
    pub(crate) tokens: i64,
    /// How long after its end a lease that was not released still keeps the lock taken.
    pub(crate) takeover_margin: Duration,
    /// Whether the reply has to have the [`Dates`].
    pub(crate) wants_dates: bool,
}

impl AcquireRequest {
    /// A lease that lasts for this time, without anything else.
    pub(crate) fn plain(expiry: Duration) -> Self {
        Self {
            expiry,
            tokens: 1,
            takeover_margin: Duration::ZERO,
            wants_dates: false,
        }
    }
}

/// How a claim ends that is no longer needed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClaimEnd {
    /// It is released: the lock is free when its minimum hold is over.
    Released { min_hold: Duration },
    /// It has resumed a detached lease for a call that was given up: the lease gets the id of its handle again, and lasts for
    /// this time from then on, or until its minimum hold is over.
    GivenBack {
        lock_id: Arc<str>,
        ttl: Duration,
        min_hold: Duration,
    },
}

impl ClaimEnd {
    /// A release without a minimum hold.
    pub(crate) const RELEASED: Self = Self::Released {
        min_hold: Duration::ZERO,
    };
}

/// How a claim becomes a detached lease.
#[derive(Debug, Clone)]
pub(crate) struct Detachment {
    /// The id of the detached lease.
    pub(crate) lock_id: Arc<str>,
    /// The time for which it lasts.
    pub(crate) ttl: Duration,
    /// The shortest time for which the lock stays taken, counted from its acquisition.
    pub(crate) min_hold: Duration,
    /// The token in the document of each claim. A late acquire request can give the lock to the claim once more, after the
    /// detached lease has ended; then the document has a greater token, and a late copy of this request changes nothing.
    pub(crate) tokens: Few<FencingToken>,
}

/// The end of a detached lease that was extended, or why it was lost.
pub(crate) type Extended = Result<DateTime, LossReason>;

/// What a reply says about time, by the server's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dates {
    /// The time of the command.
    pub(crate) now: DateTime,
    /// The beginning of the lease in the document.
    pub(crate) acquired_at: DateTime,
    /// The end of the lease in the document.
    pub(crate) expires_at: DateTime,
}

/// A request that marks a lock as done.
#[derive(Debug, Clone)]
pub(crate) struct MarkRequest {
    /// The claim that has the lock.
    pub(crate) key: LeaseId,
    /// The token in the document of the claim: the last one that was reserved. No other claim on the lock has it.
    pub(crate) token: FencingToken,
    /// Until when the mark stands.
    pub(crate) end: Until,
}

/// The server's reply to a request that marks a lock as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkReply {
    /// The document has the mark of the claim.
    Marked,
    /// The claim had the lock until the end of the period, and was released after it.
    Released,
    /// The claim does not have the lock, and has left no mark; or the document does not tell that it had the lock until
    /// the end of the period.
    Gone,
}

/// The server's reply to an acquire request.
#[derive(Debug)]
pub(crate) enum AcquireReply {
    /// The document has the claim's own id.
    Acquired {
        /// The greatest of the reserved tokens.
        last_token: FencingToken,
        /// The remaining time of the lease; `None` if the reply has none, because the driver has repeated the command
        /// and the server has replied from its log.
        remaining: Option<Duration>,
        /// Present if the request asked for it.
        dates: Option<Dates>,
    },
    /// The lease of another holder runs, or the margin after it.
    Held {
        /// The id of the claim that has the lock, empty during a minimum hold; `None` if the reply has none.
        holder: Option<Arc<str>>,
        /// The time since the beginning of the lease; `None` if the reply has none.
        held_for: Option<Duration>,
        /// The time until the lock is free, if it is neither renewed nor released; `None` if the reply has none.
        remaining: Option<Duration>,
        /// Present if the request asked for it and the reply names a holder.
        dates: Option<Dates>,
    },
}

impl AcquireReply {
    /// The reply that the lock is held, where the server does not say by whom.
    pub(crate) const HELD: Self = Self::Held {
        holder: None,
        held_for: None,
        remaining: None,
        dates: None,
    };

    /// Whether the claim has its lock.
    pub(crate) fn is_acquired(&self) -> bool {
        matches!(self, Self::Acquired { .. })
    }
}

/// The replies for the claims of a request in their order. The error is that of the query about several claims. It says
/// nothing about the claims themselves, which the command before it may have made, however the query has failed.
pub(crate) type Claimed = Result<Few<AcquireReply>, LockError>;

/// Which of several claims were renewed.
#[derive(Debug)]
pub(crate) enum RenewReply {
    All,
    /// Only these claims have their locks.
    Only(HashSet<LeaseId>),
}

impl RenewReply {
    pub(crate) fn includes(&self, key: &LeaseId) -> bool {
        match self {
            Self::All => true,
            Self::Only(held) => held.contains(key),
        }
    }
}

/// What the statement that guards a commit does with the claim.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GuardChange {
    /// It keeps the claim.
    Keep,
    /// It renews the claim for this time.
    Renew(Duration),
    /// It replaces the claim by the mark that its work is done, or releases it if the period is over.
    Mark(Until),
}

/// The outcome of the statement that guards a commit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GuardOutcome {
    /// The transaction has changed the documents of the claims: no other client can change them until it ends.
    Guarded,
    /// A claim no longer has its lock.
    Lost,
    /// The claims have their locks, but not in the snapshot of the transaction.
    NotVisible,
}
