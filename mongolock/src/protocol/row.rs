//! What a command is made of.

use std::sync::Arc;

use super::sight::Sight;
use super::value::{LockId, Ms, Name, Value};

/// The longest time for which a command stays in the server, in milliseconds. A renewal leaves an end that is later than its own
/// by no more than this: only a clock that was ahead can have set a later one.
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
    /// The lock has no holder: it was released, or its time is over; that of a lease which was not released, for this long.
    Free { margin: Ms },
    /// The document has this id; with a token also this token; and with a margin an end that is later than the time less the
    /// margin, which is that of [`Self::Free`].
    Own {
        id: LockId,
        token: Option<i64>,
        runs: Option<Ms>,
    },
    /// The document has the id and the token that were read, of whatever type, or has none.
    AsRead { lock_id: Value, token: Value },
}

/// What a row writes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Then {
    /// A claim acquires the lock for this long, and reserves this number of tokens.
    Claim { id: LockId, expiry: Ms, tokens: i64 },
    /// The same for a running lease that another id has: it keeps its beginning.
    Adopt { id: LockId, expiry: Ms, tokens: i64 },
    /// The lease lasts for this long from now on. It is not shortened.
    Renew { expiry: Ms },
    /// The same for a detached lease, whose ends can lie farther apart.
    Extend { ttl: Ms },
    /// The lock is released; while its minimum hold runs, the document says by which claim. This number of the claim's tokens was
    /// not handed out.
    End { min_hold: Ms, unused: i64 },
    /// The lease gets another id, and lasts for this long from now on, or until its minimum hold is over.
    Rename { to: LockId, ttl: Ms, min_hold: Ms },
    /// The claim is replaced by the mark that its work is done; it is released if the period of the mark is over.
    Mark { until: Until },
    /// The lock is released by force. A damaged document gets all its fields anew.
    Force,
}

/// Until when a mark stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Until {
    /// Until this time.
    At(Ms),
    /// For this long from now on.
    After(Ms),
}

/// Whether the rows of a command depend on those before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Order {
    Each,
    /// The first row that does not have its document as it wants it ends the command.
    StopAtMiss,
}

/// A field of a type that the server cannot calculate with: the row has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damaged;

/// What is known of a row after its command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    /// Whether the row has changed the document; `None` if the command told only how many did.
    pub(crate) is_applied: Option<bool>,
    /// What the document says then; `None` if there is none, or if the command did not tell.
    pub(crate) sight: Option<Sight>,
}

impl Row {
    /// Whether the row acquires a lock that may have no document yet.
    pub(crate) fn may_insert(&self) -> bool {
        matches!(self.when, When::Free { .. })
    }

    /// Whether a claim gets the lock by it.
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
    /// The reply for a document that the command did not tell.
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

    /// It has this id, and its lease runs.
    pub(crate) fn runs(id: &LockId) -> Self {
        Self::Own {
            id: Arc::clone(id),
            token: None,
            runs: Some(0),
        }
    }
}

impl Then {
    /// The id that a document has because of this row; `None` if it keeps its own or has none.
    pub(crate) fn new_id(&self) -> Option<&LockId> {
        match self {
            Self::Claim { id, .. } | Self::Adopt { id, .. } | Self::Rename { to: id, .. } => Some(id),
            _ => None,
        }
    }
}
