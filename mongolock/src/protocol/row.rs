//! Rows: the parts of a command.

use std::sync::Arc;

use super::sight::Sight;
use super::value::{LockId, Ms, Name, Value};

/// The longest time for which a command stays in the server, in milliseconds. A renewal does not change an end that is
/// later than its own by at most this time: only a clock that was ahead can have set a later one.
pub(crate) const LATE_COMMAND: Ms = 60_000;

/// The longest time for which a detached lease can last, in milliseconds.
pub(crate) const LONGEST: Ms = 7 * 24 * 60 * 60 * 1000;

/// One change of one document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: Name,
    pub(crate) when: When,
    pub(crate) then: Then,
}

/// The condition of a row, by the document and the server's clock.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum When {
    /// The lock has no holder: it was released, or its time is over. If a lease was not released, its time must be over
    /// for this margin.
    Free { margin: Ms },
    /// The document has this id; if there is a token, also this token; and if there is a margin, the lease and that
    /// margin, as in [`Self::Free`], are not over.
    Own {
        id: LockId,
        token: Option<i64>,
        runs: Option<Ms>,
    },
    /// The document has the id and the token that were read, which may have any type or be missing.
    AsRead { lock_id: Value, token: Value },
}

/// What a row writes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Then {
    /// A claim acquires the lock for this time, and reserves this number of tokens.
    Claim { id: LockId, expiry: Ms, tokens: i64 },
    /// The same for a lease that has not ended and has another id: its beginning is kept.
    Adopt { id: LockId, expiry: Ms, tokens: i64 },
    /// The lease lasts for this time from now on. It is never shortened.
    Renew { expiry: Ms },
    /// The same for a detached lease, whose ends can differ by more.
    Extend { ttl: Ms },
    /// The lock is released. During its minimum hold the document keeps the id of the claim. `unused` is the number of
    /// the claim's tokens that no hold had.
    End { min_hold: Ms, unused: i64 },
    /// The lease gets another id, and lasts for this time from now on, or until its minimum hold is over.
    Rename { to: LockId, ttl: Ms, min_hold: Ms },
    /// The claim is replaced by the mark that its work is done; it is released if the period of the mark is over.
    Mark { until: Until },
    /// The lock is released by force. In a damaged document all fields are written again.
    Force,
}

/// The end of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Until {
    /// Until this time.
    At(Ms),
    /// This time from now on.
    After(Ms),
}

/// Whether the rows of a command depend on those before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RowOrder {
    Each,
    /// The command ends at the first row whose condition is not met.
    StopAtMiss,
}

/// A field has a type with which the server cannot calculate: the row has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damaged;

/// The result of a row after its command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    /// Whether the row has changed the document; `None` if the reply has only the number of changed documents.
    pub(crate) is_applied: Option<bool>,
    /// The document after the row; `None` if there is none, or if the reply does not have it.
    pub(crate) sight: Option<Sight>,
}

impl Row {
    /// Whether the row acquires a lock that may have no document yet.
    pub(crate) fn may_insert(&self) -> bool {
        matches!(self.when, When::Free { .. })
    }

    /// Whether the row makes a claim the holder.
    pub(crate) fn acquires(&self) -> bool {
        matches!(self.then, Then::Claim { .. } | Then::Adopt { .. })
    }

    /// Whether a command that stops at a miss ends with this row.
    pub(crate) fn is_missed(&self, reply: &Reply) -> bool {
        match self.then.new_id() {
            Some(id) => !reply.has(id),
            None => reply.is_applied == Some(false),
        }
    }
}

impl Reply {
    /// The reply of a command that does not return the document.
    pub(crate) const UNSEEN: Self = Self {
        is_applied: Some(false),
        sight: None,
    };

    /// Whether the document has this id.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.sight.as_ref().is_some_and(|sight| sight.has(id))
    }
}

impl When {
    /// The document has this id.
    pub(crate) fn is(id: &LockId) -> Self {
        Self::Own {
            id: Arc::clone(id),
            token: None,
            runs: None,
        }
    }

    /// The document has this id, and its lease has not ended.
    pub(crate) fn runs(id: &LockId) -> Self {
        Self::Own {
            id: Arc::clone(id),
            token: None,
            runs: Some(0),
        }
    }
}

impl Then {
    /// The id that this row writes into the document; `None` if the row keeps the id or removes it.
    pub(crate) fn new_id(&self) -> Option<&LockId> {
        match self {
            Self::Claim { id, .. } | Self::Adopt { id, .. } | Self::Rename { to: id, .. } => Some(id),
            _ => None,
        }
    }
}
