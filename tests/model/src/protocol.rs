//! The rules of the commands, as the pipelines of the library have them: what one command does to one document.
//!
//! Each function names the one of `mongolock/src` that it mirrors. A [`Rules`] value says which rule is in force, so that a model can be run with a rule
//! that is wrong.

/// A time of a clock, in steps.
pub(crate) type Time = i16;

/// A fencing token.
pub(crate) type Token = i16;

/// The number of tokens that one step of the server's clock leaves room for; the library has 1000 in a millisecond.
pub(crate) const TOKENS_A_STEP: Token = 16;

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
    /// The mark of work that is done.
    Done(ClaimId),
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

/// How a renewal sets the end of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// It takes the later one of the present end and its own.
    TakesTheLater,
    /// It sets its own end. Wrong: a command that takes effect late takes back what a later one has granted.
    Overwrites,
}

/// What a release does to the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// It ends the lease and keeps the document.
    Keeps,
    /// It deletes the document, as DistributedLock.MongoDB does.
    Deletes,
}

/// Where tokens begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tokens {
    /// They are at least the server's time.
    FollowTheTime,
    /// They count on from the document, and from 1 without one, as those of DistributedLock.MongoDB do.
    Count,
}

/// The rules of one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// How long a lease lasts without a renewal.
    pub(crate) expiry: Time,
    /// For how long after its end a claim that was not released keeps the lock taken.
    pub(crate) takeover_margin: Time,
    /// How long a command may stay in the server.
    pub(crate) late_command: Time,
    /// How a renewal sets the end of a lease.
    pub(crate) renewal: Renewal,
    /// What a release does to the document.
    pub(crate) release: Release,
    /// Where tokens begin.
    pub(crate) tokens: Tokens,
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
            renewal: Renewal::TakesTheLater,
            release: Release::Keeps,
            tokens: Tokens::FollowTheTime,
        }
    }

    /// Whether the lock is free at this time of the server: `store::takeover::free`.
    pub(crate) fn is_free(&self, document: Option<Document>, now: Time) -> bool {
        document.is_none_or(|document| {
            let margin = match document.lock_id {
                LockId::Released => return true,
                LockId::Claim(_) => self.takeover_margin,
                LockId::Done(_) => 0,
            };
            document.expires_at <= now - margin
        })
    }

    /// An acquire request that reserves tokens: `claim_stage` and `acquire_reply` of `store/claims.rs`. `now` is the
    /// server's time when the command began.
    pub(crate) fn claim(
        &self,
        at: &mut Option<Document>,
        claim: ClaimId,
        now: Time,
        reserved: Token,
    ) -> Reply {
        if self.is_free(*at, now) {
            let last = at.map_or(0, |document| document.token);
            let next = self.next_token(last, now);
            *at = Some(Document {
                lock_id: LockId::Claim(claim),
                acquired_at: now,
                expires_at: now + self.expiry,
                token: next + (reserved - 1),
            });
        }
        own(at, claim).map_or(Reply::Held, |document| Reply::Acquired {
            token: document.token,
            remaining: document.expires_at - now,
        })
    }

    /// Replaces the id of a handle whose lease runs by the id of a new hold, `resume_stage` of `store/detached.rs`; `false` if
    /// the new hold does not have the lock.
    pub(crate) fn resume(&self, at: &mut Option<Document>, handle: ClaimId, new: ClaimId, now: Time) -> bool {
        if let Some(document) = own(at, handle)
            && document.expires_at > now
        {
            document.lock_id = LockId::Claim(new);
            document.expires_at = now + self.expiry;
            document.token = self.next_token(document.token, now);
        }
        own(at, new).is_some()
    }

    fn next_token(&self, last: Token, now: Time) -> Token {
        match self.tokens {
            Tokens::FollowTheTime => (last + 1).max(now * TOKENS_A_STEP),
            Tokens::Count => last + 1,
        }
    }

    /// A renewal, `renewal_stage` of `store/claims.rs`; `false` if the claim does not have the lock.
    pub(crate) fn renew(&self, at: &mut Option<Document>, claim: ClaimId, now: Time) -> bool {
        let granted = now + self.expiry;
        let document = own(at, claim).map(|document| {
            document.expires_at = match self.renewal {
                Renewal::TakesTheLater => document.expires_at.min(granted + self.late_command).max(granted),
                Renewal::Overwrites => granted,
            };
        });
        document.is_some()
    }

    /// A release, `release_stage` of `store/claims.rs`.
    pub(crate) fn release(&self, at: &mut Option<Document>, claim: ClaimId, now: Time) {
        match (own(at, claim), self.release) {
            (None, _) => {}
            (Some(document), Release::Keeps) => end(document, now),
            (Some(_), Release::Deletes) => *at = None,
        }
    }

    /// The hold that an operator's read finds at this time of the server, `seen_holds`.
    pub(crate) fn seen(&self, at: Option<Document>, now: Time) -> Option<Seen> {
        let taken = at.filter(|_| !self.is_free(at, now))?;
        Some((taken.lock_id, taken.token))
    }
}

/// What an operator's read has found of a hold.
pub(crate) type Seen = (LockId, Token);

/// A forced release by an operator, `force_release`: of the hold that was read, whenever that began.
pub(crate) fn force_release(at: &mut Option<Document>, seen: Seen, now: Time) {
    let is_seen = |document: &&mut Document| (document.lock_id, document.token) == seen;
    if let Some(document) = at.as_mut().filter(is_seen) {
        end(document, now);
    }
}

/// A request that marks the work of a claim as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MarkRequest {
    /// The claim that has the lock.
    pub(crate) claim: ClaimId,
    /// The token in the document of the claim.
    pub(crate) token: Token,
    /// When the period of the work ends.
    pub(crate) end: Time,
}

/// What a request for a mark has found in the document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// The claim had the lock.
    pub(crate) had_claim: bool,
    /// The mark of the claim stands, or the claim had the lock until the end of its period and is released.
    pub(crate) is_complete: bool,
    /// The period was over.
    pub(crate) is_over: bool,
}

/// Replaces a claim by the mark of its work, or releases it after its period: `mark_stage` and `MarkRequest::reply`.
pub(crate) fn mark(at: &mut Option<Document>, request: MarkRequest, now: Time) -> Found {
    let MarkRequest { claim, token, end } = request;
    let (is_over, before) = (now >= end, *at);
    let (had_claim, had_mark) = (
        has_id(before, LockId::Claim(claim)),
        has_id(before, LockId::Done(claim)),
    );
    let was_released = before.is_some_and(|document| {
        document.lock_id == LockId::Released && document.token == token && document.expires_at >= end
    });
    if let Some(document) = own(at, claim) {
        if is_over {
            self::end(document, now);
        } else {
            document.lock_id = LockId::Done(claim);
            document.expires_at = end;
        }
    }
    let is_last = before.is_some_and(|document| document.token == token);
    Found {
        had_claim,
        is_complete: had_mark || was_released || (had_claim && (!is_over || is_last)),
        is_over,
    }
}

/// How long a detached lease lasts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DetachedLease {
    /// How long it lasts from the command that detaches it, or gives it back.
    pub(crate) ttl: Time,
    /// How long the lock stays taken at least, from its acquisition.
    pub(crate) min_hold: Time,
}

/// Replaces the id of a hold by the id of a handle, `MongoStore::detach`. With a token it is only the hold of this token: a late
/// acquire request can give the lock to the claim once more.
pub(crate) fn detach(
    at: &mut Option<Document>,
    (old, token): (ClaimId, Option<Token>),
    handle: ClaimId,
    lease: DetachedLease,
    now: Time,
) {
    let is_hold = |document: &&mut Document| token.is_none_or(|token| document.token == token);
    if let Some(document) = own(at, old).filter(is_hold) {
        document.lock_id = LockId::Claim(handle);
        let begun = document.acquired_at.min(now);
        document.expires_at = (now + lease.ttl).max(begun + lease.min_hold);
    }
}

/// Replaces the id of a resumption that was given up by the id of its handle, `Store::end_given_up`.
pub(crate) fn give_back(at: &mut Option<Document>, new: ClaimId, handle: ClaimId, ttl: Time, now: Time) {
    if let Some(document) = own(at, new) {
        document.lock_id = LockId::Claim(handle);
        document.expires_at = now + ttl;
    }
}

/// Sets a later end of a detached lease that runs, `extend_stage`, but none later than `most` from now.
pub(crate) fn extend(at: &mut Option<Document>, handle: ClaimId, ttl: Time, most: Time, now: Time) {
    if let Some(document) = own(at, handle).filter(|document| document.expires_at > now) {
        document.expires_at = document.expires_at.min(now + most).max(now + ttl);
    }
}

/// Whether the document has this id.
pub(crate) fn has_id(document: Option<Document>, id: LockId) -> bool {
    document.is_some_and(|document| document.lock_id == id)
}

/// The document of this claim, as long as the claim has the lock.
pub(crate) fn own(at: &mut Option<Document>, claim: ClaimId) -> Option<&mut Document> {
    at.as_mut()
        .filter(|document| document.lock_id == LockId::Claim(claim))
}

fn end(document: &mut Document, now: Time) {
    document.lock_id = LockId::Released;
    document.expires_at = now;
}
