//! What one command does to one document. The rules are the library's own: its `protocol/apply.rs` is compiled here as it is.
//! Written here are the condition of each row, which is that of `core/sending.rs`, and the rules that are wrong on purpose.
//!
//! The documents of the models are small. For a command they become documents of the library.

use std::sync::Arc;

use self::library::{LATE_COMMAND, Ms, Row, Then, Value, When};

#[path = "../../../mongolock/src/protocol"]
#[allow(dead_code, unused_imports, reason = "the models need a part of it")]
mod library {
    mod apply;
    mod document;
    mod row;
    mod sight;
    mod text;
    mod value;

    pub(super) use apply::apply;
    pub(super) use document::Document;
    pub(super) use row::{LATE_COMMAND, Row, Then, When};
    pub(super) use value::{Ms, Value};
}

/// A time of a clock, in steps.
pub(crate) type Time = i16;

/// A fencing token.
pub(crate) type Token = i32;

/// The id of one claim: a number that is given to one acquisition and never again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClaimId(pub(crate) u8);

/// The `lockId` of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum LockId {
    /// The empty id of a released lock.
    Released,
    /// A claim.
    Claim(ClaimId),
}

/// The document of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Document {
    /// The holder of the lock.
    pub(crate) lock_id: LockId,
    /// When the lease began, by the server's clock.
    pub(crate) acquired_at: Time,
    /// When the lease ends, by the server's clock.
    pub(crate) expires_at: Time,
    /// The last of the tokens that were reserved.
    pub(crate) token: Token,
}

/// The rules of one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// How long a lease lasts without a renewal.
    pub(crate) expiry: Time,
    /// For how long after its end a claim that was not released keeps the lock taken.
    pub(crate) takeover_margin: Time,
    /// How long a command may stay in the server: so many steps are the [`LATE_COMMAND`] of the library.
    pub(crate) late_command: Time,
    /// Whether a release deletes the document, and tokens count on from it, and from 1 without one, as DistributedLock.MongoDB
    /// does. Those of the library are at least the server's time.
    pub(crate) is_peer: bool,
}

/// The reply to an acquire request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reply {
    /// The document has the claim.
    Acquired {
        /// The last of the reserved tokens.
        token: Token,
        /// The rest of the lease.
        remaining: Time,
    },
    /// The lock is held.
    Held,
}

impl Rules {
    /// The rules of the library, for leases of this length.
    pub(crate) const fn with_expiry(expiry: Time) -> Self {
        Self {
            expiry,
            takeover_margin: 0,
            late_command: 2,
            is_peer: false,
        }
    }

    /// An acquire request that reserves tokens. `now` is the server's time when the command began.
    pub(crate) fn claim(
        self,
        at: &mut Option<Document>,
        claim: ClaimId,
        now: Time,
        reserved: Token,
    ) -> Reply {
        let last = at.map_or(0, |document| document.token);
        let margin = self.ms(self.takeover_margin);
        let then = Then::Claim {
            id: claim.text(),
            expiry: self.ms(self.expiry),
            tokens: reserved.into(),
        };
        let is_claimed = self.apply(at, When::Free { margin }, then, now);
        own(at, claim).map_or(Reply::Held, |document| {
            if is_claimed && self.is_peer {
                document.token = last + reserved;
            }
            Reply::Acquired {
                token: document.token,
                remaining: document.expires_at - now,
            }
        })
    }

    /// A release.
    pub(crate) fn release(self, at: &mut Option<Document>, claim: ClaimId, now: Time) {
        let (min_hold, unused) = (0, 0);
        let then = Then::End { min_hold, unused };
        if self.apply(at, When::is(&claim.text()), then, now) && self.is_peer {
            *at = None;
        }
    }

    /// Runs a row that began at this time of the server, and returns whether its condition held.
    fn apply(self, at: &mut Option<Document>, when: When, then: Then, now: Time) -> bool {
        let name = Arc::default();
        let mut document = at.map(|document| self.in_ms(document));
        let applied = library::apply(&Row { name, when, then }, &mut document, self.ms(now));
        *at = document.map(|document| self.in_steps(&document).expect("a model has such documents"));
        applied.expect("no field is damaged")
    }

    /// The milliseconds of these steps.
    fn ms(self, steps: Time) -> Ms {
        Ms::from(steps) * (LATE_COMMAND / Ms::from(self.late_command))
    }

    /// The document of the library.
    fn in_ms(self, document: Document) -> library::Document {
        library::Document {
            lock_id: Value::Text(document.lock_id.text()),
            acquired_at: Value::Date(self.ms(document.acquired_at)),
            expires_at: Value::Date(self.ms(document.expires_at)),
            token: Value::Long(document.token.into()),
        }
    }

    /// The document of the models; `None` for one that no row of theirs writes.
    fn in_steps(self, document: &library::Document) -> Option<Document> {
        let steps = |date: &Value| Time::try_from(date.date()? / self.ms(1)).ok();
        Some(Document {
            lock_id: LockId::of(document.lock_id.text()?)?,
            acquired_at: steps(&document.acquired_at)?,
            expires_at: steps(&document.expires_at)?,
            token: document.token.long()?.try_into().ok()?,
        })
    }
}

impl ClaimId {
    fn text(self) -> Arc<str> {
        self.0.to_string().into()
    }
}

impl LockId {
    fn text(self) -> Arc<str> {
        match self {
            Self::Released => Arc::default(),
            Self::Claim(claim) => claim.text(),
        }
    }

    fn of(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self::Released),
            number => number.parse().ok().map(ClaimId).map(Self::Claim),
        }
    }
}

/// The document of this claim, as long as the claim has the lock.
pub(crate) fn own(at: &mut Option<Document>, claim: ClaimId) -> Option<&mut Document> {
    at.as_mut()
        .filter(|document| document.lock_id == LockId::Claim(claim))
}
