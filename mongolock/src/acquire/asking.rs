//! What a caller with the turn does next: what it sends for one claim and when, and what it does when a request has ended.
//!
//! | the claim's last request | what is sent next |
//! |---|---|
//! | none was sent | a request, among those of its class |
//! | has found the lock held | another one when the caller is woken, with the same id |
//! | has no reply for 2 s | a copy with the same id, and again each 2 s |
//! | has failed | another one after a pause, with the same id; its copies each 2 s |
//! | has ended at a document that another operation blocks | the same, but copies after 7 s: earlier ones would only wait with it |
//!
//! | a request has ended | a lock | a permit | a set |
//! |---|---|---|---|
//! | the claim has its lock | deliver | deliver | deliver |
//! | its lease was over when the reply was read | claim anew | claim anew | claim anew |
//! | a claim that this process has given up has the lock | clear | clear | clear |
//! | another claim has the lock | held | held | held |
//! | the server had too little time, and it is known that the lock is held | pause | leave | leave |
//! | an error that is final; for a single try also that no server can be reached | end | end | end |
//! | another operation blocks the document | pause | leave | leave |
//! | another error | pause | pause | pause, and leave after the last request |
//!
//! [`Next`] says what each of these means. A round of a set keeps the other locks from others, so it has a bounded number of
//! requests. Nothing is sent at or after the deadline.

use std::time::Duration;

use tokio::time::Instant;

use crate::LockError;
use crate::queue::Holder;
use crate::store::{AdmissionClass, ClaimEnd, Dates, driver_error};
use crate::timing::{
    ACQUIRE_LIMIT, ACQUIRE_LIMIT_MIN, ACQUIRE_OVERDUE, CROWDED_LIMIT, NO_REPLY, PERMIT_LIMIT, SLOW_REPLY,
};

/// How many times the request of a round is sent: after that its claims are given back, so that a round whose outcome stays
/// unknown does not keep locks from others.
pub(super) const MOST_REQUESTS: u8 = 3;

/// The requests of one claim, or of the claims of a set with one id.
#[derive(Debug, Clone, Hash)]
pub(super) struct Asking {
    kind: Kind,
    /// Among which commands of the provider the first of the next requests is admitted, if none is in flight.
    class: AdmissionClass,
    /// Whether the call makes a single try.
    is_try: bool,
    /// How the last request has ended.
    last: LastEnd,
    /// Whether the limit of the next request at the server is [`PERMIT_LIMIT`] at most.
    has_short_limit: bool,
    /// The number of requests that may still be sent; `None` if there is no bound. It takes one byte, because each waiting call
    /// has it in its future.
    left: Option<u8>,
}

/// What the claim is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Lock,
    /// Any permit of a semaphore: the call can go on with another one.
    Permit,
    /// A round of a set: the call can make another one.
    Set,
}

/// What the caller sends next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// It sends a request as soon as one of this class is admitted.
    Send(AdmissionClass),
    /// It waits for a reply, until this time at most.
    Wait(Instant),
}

/// How the last request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum LastEnd {
    /// There was a reply, or no request has ended yet.
    Replied,
    /// It has failed.
    Failed,
    /// The server has rejected it for overload.
    Rejected,
    /// Another operation blocks the document.
    Blocked,
}

/// How a request has ended; `H` is the type of the hold.
#[derive(Debug)]
pub(super) enum Outcome<H> {
    /// The claim has its lock, or those of all names of a set.
    Acquired(H),
    /// It had its lock, but the lease was over when the reply was read: the next claim needs a new id.
    AlreadyOver,
    Held(Held),
    /// The server ended the request at its limit, which was too short to tell a slow server from a broken one.
    OutOfTime(LockError),
    Failed(LockError),
    /// The runtime is shutting down, and the provider's tasks with it.
    RuntimeStopped,
}

/// A lock that another claim has.
#[derive(Debug)]
pub(super) struct Held {
    /// The place of its name in the set; zero for a lock alone.
    pub(super) index: usize,
    pub(super) holder: Holder,
    /// The time that the request took.
    pub(super) request: Duration,
    /// Present if the work under the lock may succeed only once.
    pub(super) dates: Option<Dates>,
}

/// What the caller does when a request has ended.
#[derive(Debug)]
pub(super) enum Next<H> {
    /// The call ends with this hold.
    Deliver(H),
    /// It claims with a new id, at once. The old claim releases itself.
    ClaimAnew,
    /// It asks again at once, with the same id.
    Again,
    /// A wait rests, and a single try ends. A call for any permit looks for another one. A round is given back.
    Held(Held),
    /// It asks again after a pause, with the same id. The error is noted as the status of the lock.
    Pause(Option<LockError>),
    /// It gives this claim up, and goes on with another permit, or with another round after a pause.
    Leave(Option<LockError>),
    End(LockError),
    /// It ends, because nothing is sent any more.
    Stop,
}

/// What follows the end of a request.
#[derive(Debug)]
pub(super) enum After<H> {
    /// The caller ends the claim of this process that has the lock in this way, and asks again then.
    Clear(Held, ClaimEnd),
    Next(Next<H>),
}

impl<H> Outcome<H> {
    /// The outcome when it is read; the lease may have ended since the request has ended.
    pub(super) fn read(self, is_over: impl FnOnce(&H) -> bool) -> Self {
        match self {
            Self::Acquired(hold) if is_over(&hold) => Self::AlreadyOver,
            other => other,
        }
    }
}

impl LastEnd {
    pub(super) fn of(error: &LockError) -> Self {
        if driver_error::is_blocked_document(error) {
            Self::Blocked
        } else if error.is_rejection() {
            Self::Rejected
        } else {
            Self::Failed
        }
    }
}

impl Asking {
    /// The requests of a claim. The first one has this class.
    pub(super) fn new(kind: Kind, class: AdmissionClass, is_try: bool) -> Self {
        Self {
            kind,
            class,
            is_try,
            last: LastEnd::Replied,
            has_short_limit: false,
            left: (kind == Kind::Set).then_some(MOST_REQUESTS),
        }
    }

    /// Those of another claim of the same call.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.kind, self.class, self.is_try)
    }

    /// Has the next request have [`PERMIT_LIMIT`] at the server at most: the call can go on with another permit.
    pub(super) fn limit_shortly(&mut self) {
        self.has_short_limit = true;
    }

    /// Whether another request may be sent.
    pub(super) fn may_repeat(&self) -> bool {
        self.left != Some(0)
    }

    /// What a caller does now that wants to know whether the lock is free. Its last request for that was admitted at the time
    /// `asked`, if one was, and this number of its requests has no reply.
    pub(super) fn next(&self, now: Instant, asked: Option<Instant>, in_flight: usize) -> Ask {
        let Some(asked) = asked else {
            return Ask::Send(self.next_class(in_flight));
        };
        let overdue = asked + self.overdue_after();
        if overdue > now {
            return Ask::Wait(overdue);
        }
        if self.may_repeat() {
            return Ask::Send(AdmissionClass::Copy);
        }
        Ask::Wait(now + self.overdue_after())
    }

    /// Among which commands the first of the next requests is admitted.
    fn next_class(&self, in_flight: usize) -> AdmissionClass {
        if matches!(self.last, LastEnd::Failed | LastEnd::Blocked) {
            AdmissionClass::Repeated
        } else if in_flight == 0 {
            self.class
        } else {
            AdmissionClass::Copy
        }
    }

    fn overdue_after(&self) -> Duration {
        if self.last == LastEnd::Blocked {
            ACQUIRE_LIMIT + ACQUIRE_OVERDUE
        } else {
            ACQUIRE_OVERDUE
        }
    }

    /// Notes that a request is admitted, and returns its limit at the server; `None` if none is sent, because the deadline has
    /// come. `is_crowded` says that it takes one of the last places among the commands in flight.
    pub(super) fn admitted(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        is_crowded: bool,
    ) -> Option<Duration> {
        if deadline.is_some_and(|deadline| deadline <= now) {
            return None;
        }
        self.left = self.left.map(|left| left.saturating_sub(1));
        let longest = if std::mem::take(&mut self.has_short_limit) {
            PERMIT_LIMIT
        } else if is_crowded {
            CROWDED_LIMIT
        } else {
            ACQUIRE_LIMIT
        };
        Some(limit_until(now, deadline).min(longest))
    }

    /// Notes how a request has ended.
    pub(super) fn ended(&mut self, last: LastEnd) {
        self.last = last;
    }

    /// What follows this outcome, if the server has refused the user for `refused_for`. `given_up` returns how a claim ends that
    /// this process has given up, and `knows_holder` says whether it is known that the lock is held.
    pub(super) fn next_after<H>(
        &mut self,
        outcome: Outcome<H>,
        refused_for: Duration,
        given_up: impl FnOnce(&str) -> Option<ClaimEnd>,
        knows_holder: impl FnOnce(Kind) -> bool,
    ) -> After<H> {
        After::Next(match outcome {
            Outcome::Acquired(hold) => Next::Deliver(hold),
            Outcome::AlreadyOver => Next::ClaimAnew,
            Outcome::Held(held) => {
                // The next request is that of a caller that was woken.
                self.class = AdmissionClass::Woken;
                match held.holder.lock_id().and_then(|id| given_up(id)) {
                    Some(end) => return After::Clear(held, end),
                    None => Next::Held(held),
                }
            }
            Outcome::OutOfTime(_) if knows_holder(self.kind) => match self.kind {
                Kind::Lock => Next::Pause(None),
                Kind::Permit | Kind::Set => Next::Leave(None),
            },
            Outcome::OutOfTime(error) | Outcome::Failed(error) => self.next_after_error(error, refused_for),
            Outcome::RuntimeStopped => Next::Stop,
        })
    }

    /// What the caller does after this error of a request, or of the release of a claim that this process has given up.
    pub(super) fn next_after_error<H>(&self, error: LockError, refused_for: Duration) -> Next<H> {
        if ends_call(&error, self.is_try, refused_for) {
            return Next::End(error);
        }
        let is_blocked = driver_error::is_blocked_document(&error);
        let goes_on_elsewhere = match self.kind {
            Kind::Lock => false,
            Kind::Permit => is_blocked,
            Kind::Set => is_blocked || !self.may_repeat(),
        };
        if goes_on_elsewhere {
            Next::Leave(Some(error))
        } else {
            Next::Pause(Some(error))
        }
    }
}

/// Whether a call ends with this error, if the server has refused the user for this time. A single try would fail in the same way
/// again if no server can be reached. After other errors that pass it goes on, because an election ends soon.
pub(super) fn ends_call(error: &LockError, is_try: bool, refused_for: Duration) -> bool {
    driver_error::is_useless(error, refused_for) || (is_try && driver_error::is_unreachable(error))
}

/// Whether a request that has ended with this error had too little time at the server: one with more time might have met the
/// end of what it waited for.
pub(super) fn is_out_of_time(error: &LockError, limit: Duration) -> bool {
    limit < SLOW_REPLY && driver_error::is_delayed(error)
}

/// The limit of a request at the server: a part of the caller's remaining time, so that the reply arrives before the
/// deadline.
fn limit_until(now: Instant, deadline: Option<Instant>) -> Duration {
    deadline.map_or(ACQUIRE_LIMIT, |deadline| {
        let left = deadline.saturating_duration_since(now);
        left.mul_f64(0.8).clamp(ACQUIRE_LIMIT_MIN, ACQUIRE_LIMIT)
    })
}

/// The time after which an acquire request with this limit at the server is given up if it has no reply.
pub(super) fn given_up_after(limit: Duration) -> Duration {
    limit.max(CROWDED_LIMIT) + NO_REPLY
}

#[cfg(test)]
#[path = "asking/tests.rs"]
mod tests;
