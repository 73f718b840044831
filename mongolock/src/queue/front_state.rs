use std::time::Duration;

use tokio::time::Instant;

use super::{Holder, Period};
use crate::LockError;
use crate::store::driver_error::{self, Refusals};
use crate::timing::{NO_REPLY_LIMIT, NO_REPLY_LIMIT_MIN, SLOW_REPLY};

/// What this process knows about a lock: it decides the error of a wait that reaches its limit.
#[derive(Debug, Clone, Default)]
pub(crate) enum FrontStatus {
    /// A reply said that the lock is held, or a caller in this process holds it.
    Held(Holder),
    /// The last known holder has the lock no more, and no reply has named another one: this process is giving the lock back, or
    /// a reply found it free, or held by a claim that this process has given up.
    NoHolder,
    /// The last request failed. The error is boxed to keep a queue small, because few queues store one.
    Failed(Box<LockError>),
    /// There was no reply yet, or none for longer than a healthy server needs.
    #[default]
    NoReply,
}

impl FrontStatus {
    /// The holder that a call which ends now names, if a reply has told whether the lock is held; otherwise the status.
    pub(crate) fn holder(self) -> Result<Holder, Self> {
        match self {
            Self::Held(holder) => Ok(holder),
            Self::NoHolder => Ok(Holder::default()),
            other => Err(other),
        }
    }
}

/// The number of a request or a query about one lock, in the order in which this process has sent them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct RequestNumber(u64);

/// What the waiters at the front of one queue have learned from the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct FrontState {
    /// The status after the last reply or error.
    status: FrontStatus,
    /// The time of the first request since the last usable reply.
    no_reply_since: Option<Instant>,
    /// The last request that was sent.
    last_request: RequestNumber,
    /// Since when the server refuses the user.
    refusals: Refusals,
    /// The release of a claim that no call of this process uses any more, if it is sent and not yet confirmed.
    release: Option<RequestNumber>,
    /// Whether the call at the front has left the lock to others, and there was no reply since.
    yields: bool,
}

impl FrontState {
    /// Notes that the call at the front leaves the lock to others: a call whose time ends before the reply to its first request
    /// is overdue has waited for them.
    pub(crate) fn yield_lock(&mut self) {
        self.yields = true;
    }

    /// Notes that a request or a query is to be sent, as soon as it is allowed. The last status stays valid for the time that a
    /// healthy server needs for its reply.
    pub(crate) fn request_due(&mut self, now: Instant) {
        self.no_reply_since.get_or_insert(now);
        self.release = None;
    }

    /// Notes that a request or a query is sent, as [`request_due`](Self::request_due) does, and returns its number.
    pub(crate) fn request_sent(&mut self, now: Instant) -> RequestNumber {
        self.request_due(now);
        self.last_request.0 += 1;
        self.last_request
    }

    /// Notes that a release is sent for which no holder waits: its call has returned, or has given its claim up. Until it is
    /// confirmed, the lock is neither free nor held by another caller. Returns its number.
    pub(crate) fn release_sent(&mut self, now: Instant) -> RequestNumber {
        let number = self.request_sent(now);
        self.release = Some(number);
        if matches!(self.status, FrontStatus::Held(_)) {
            self.status = FrontStatus::NoHolder;
        }
        number
    }

    /// Notes that the server has confirmed such a release. The next caller of this process may still leave the lock to other
    /// processes, and a call that ends meanwhile has not missed a reply.
    pub(crate) fn release_confirmed(&mut self, now: Instant) {
        if let Some(release) = self.release.take() {
            self.replied(now, release);
        }
    }

    /// Notes that the server has confirmed this release. That says nothing of a request that was sent after it: the call goes
    /// on to wait for its reply.
    pub(crate) fn released(&mut self, now: Instant, release: RequestNumber) {
        if self.release == Some(release) {
            self.release_confirmed(now);
        }
    }

    /// Whether a release is on its way for which no holder waits.
    pub(crate) fn is_releasing(&self) -> bool {
        self.release.is_some()
    }

    /// Notes a reply of the server to this request, perhaps to one whose caller has left. It says nothing of the requests
    /// that were sent later: if there is no reply to them yet, their time without a reply begins now.
    pub(crate) fn replied(&mut self, now: Instant, request: RequestNumber) {
        if self.no_reply_since.is_some() {
            self.no_reply_since = (request < self.last_request).then_some(now);
        }
    }

    /// Notes that a reply has named the holder; [`replied`](Self::replied) notes which requests have their reply.
    pub(crate) fn set_holder(&mut self, holder: Holder) {
        self.set_status(FrontStatus::Held(holder));
    }

    /// Notes that a reply has found no holder: the lock is free, or a claim has it that this process has given up. The holder
    /// that an earlier reply has named must not be that of an error any more.
    pub(crate) fn set_no_holder(&mut self) {
        self.set_status(FrontStatus::NoHolder);
    }

    /// Notes that the lock is held, whatever is the reply to the requests in flight: a caller of this process has acquired it,
    /// or an event has told of another holder.
    pub(crate) fn set_held(&mut self, holder: Holder) {
        self.no_reply_since = None;
        self.set_status(FrontStatus::Held(holder));
    }

    /// Notes that a request has failed. The time without a reply goes on, unless the server said that the document is
    /// blocked.
    pub(crate) fn set_failed(&mut self, now: Instant, error: LockError) {
        let mut refusals = self.refusals;
        refusals.note(now, &error);
        if driver_error::is_blocked_document(&error) {
            self.no_reply_since = None;
        }
        self.set_status(FrontStatus::Failed(Box::new(error)));
        self.refusals = refusals;
    }

    fn set_status(&mut self, status: FrontStatus) {
        self.status = status;
        self.refusals = Refusals::default();
        self.release = None;
        self.yields = false;
    }

    /// Notes that one of several permits was acquired, which says nothing of those that hold the others: the last failure is no
    /// longer what is known.
    pub(crate) fn forget_failure(&mut self) {
        if matches!(self.status, FrontStatus::Failed(_)) {
            self.status = FrontStatus::NoReply;
        }
    }

    pub(crate) fn status(&self, now: Instant) -> FrontStatus {
        let is_slow = self.is_reply_slow(now);
        match &self.status {
            FrontStatus::Held(_) | FrontStatus::NoHolder if is_slow => FrontStatus::NoReply,
            FrontStatus::NoReply if self.yields && !is_slow => FrontStatus::Held(Holder::default()),
            status => status.clone(),
        }
    }

    /// For how long the server has refused the user.
    pub(crate) fn refused_for(&self, now: Instant) -> Duration {
        self.refusals.last_for(now)
    }

    /// Whether a reply is missing for longer than a healthy server needs.
    pub(crate) fn is_reply_slow(&self, now: Instant) -> bool {
        self.no_reply_since.is_some_and(|since| now - since >= SLOW_REPLY)
    }

    /// The time since the first request without a reply; zero if there is none.
    pub(crate) fn without_reply(&self, now: Instant) -> Duration {
        self.no_reply_since.map_or(Duration::ZERO, |since| now - since)
    }

    /// When a wait without a limit that began at this time has to end, because the server does not reply; `None` while no reply
    /// is missing. The time without a reply belongs to the name: it does not start anew for later waiters and those behind.
    pub(crate) fn no_reply_ends(&self, begun: Instant) -> Option<Instant> {
        Some((self.no_reply_since? + NO_REPLY_LIMIT).max(begun + NO_REPLY_LIMIT_MIN))
    }

    /// The period that the last known holder's call has learned, if it meets the condition.
    pub(crate) fn period(&self, take: impl Fn(Period) -> Option<Period>) -> Option<Period> {
        match &self.status {
            FrontStatus::Held(holder) => holder.period().and_then(take),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state, and the time at which it began.
    fn begun() -> (FrontState, Instant) {
        (FrontState::default(), Instant::now())
    }

    #[test]
    fn the_status_is_held_only_after_a_reply() {
        let (mut front, now) = begun();
        assert!(
            matches!(front.status(now), FrontStatus::NoReply),
            "there was no reply yet"
        );
        front.request_sent(now);
        assert!(matches!(front.status(now), FrontStatus::NoReply));
        front.set_failed(now, LockError::NoProvider);
        assert!(matches!(front.status(now), FrontStatus::Failed(_)));
        front.set_held(Holder::default());
        front.request_sent(now);
        assert!(
            matches!(front.status(now), FrontStatus::Held(_)),
            "a reply takes some time"
        );
        let later = now + SLOW_REPLY;
        front.request_sent(later);
        assert!(
            matches!(front.status(later), FrontStatus::NoReply),
            "the time goes on for the next waiter at the front"
        );
    }

    /// While too many commands are in flight, none is sent.
    #[test]
    fn held_is_not_the_status_while_a_request_may_not_be_sent() {
        let (mut front, now) = begun();
        front.set_held(Holder::default());
        front.request_due(now);
        let later = now + SLOW_REPLY;
        assert!(matches!(front.status(later), FrontStatus::NoReply));
        assert_eq!(front.without_reply(later), SLOW_REPLY);
    }

    /// A call that leaves the lock to others has waited for them, and not for the request that it has just sent.
    #[test]
    fn held_is_the_status_while_a_call_yields() {
        let (mut front, now) = begun();
        front.yield_lock();
        assert!(matches!(front.status(now), FrontStatus::Held(_)));
        front.request_sent(now);
        assert!(matches!(front.status(now), FrontStatus::Held(_)));
        assert!(
            matches!(front.status(now + SLOW_REPLY), FrontStatus::NoReply),
            "a reply is missing"
        );
        front.set_failed(now, LockError::NoProvider);
        front.forget_failure();
        assert!(matches!(front.status(now), FrontStatus::NoReply));
    }

    #[test]
    fn a_confirmed_release_is_a_reply() {
        let (mut front, now) = begun();
        front.set_held(Holder::default());
        front.release_sent(now);
        assert!(front.is_releasing());
        front.release_confirmed(now);
        assert!(!front.is_releasing());
        let later = now + SLOW_REPLY;
        assert!(!front.is_reply_slow(later) && front.without_reply(later).is_zero());
    }

    /// The caller goes on after a while without a reply to a release. The late reply says that the server is there, and not
    /// who has the lock.
    #[test]
    fn a_late_reply_to_a_release_does_not_answer_the_next_request() {
        let (mut front, now) = begun();
        front.set_held(Holder::default());
        let release = front.release_sent(now);
        let later = now + SLOW_REPLY;
        front.request_sent(later);
        front.released(later, release);
        assert!(matches!(front.status(later), FrontStatus::NoReply));
        assert_eq!(front.without_reply(later), SLOW_REPLY);
        let release = front.release_sent(later);
        front.released(later, release);
        assert!(matches!(front.status(later), FrontStatus::NoHolder));
    }

    /// The reply to the request of a caller that has left says nothing of the next caller's request.
    #[test]
    fn a_reply_does_not_answer_the_other_requests_in_flight() {
        let (mut front, now) = begun();
        front.set_held(Holder::default());
        let (left, next) = (front.request_sent(now), front.request_sent(now));
        let later = now + SLOW_REPLY;
        front.replied(later, left);
        assert!(
            matches!(front.status(later), FrontStatus::Held(_)),
            "the server is there"
        );
        let last = later + SLOW_REPLY;
        assert!(matches!(front.status(last), FrontStatus::NoReply));
        front.replied(last, next);
        assert!(matches!(front.status(last), FrontStatus::Held(_)));
    }

    /// A request on a dead connection has no reply for long. That says nothing if a later one has one.
    #[test]
    fn an_earlier_request_without_a_reply_does_not_matter_after_a_later_reply() {
        let (mut front, now) = begun();
        front.set_held(Holder::default());
        let (dead, copy) = (front.request_sent(now), front.request_sent(now));
        front.replied(now, copy);
        let later = now + SLOW_REPLY;
        assert!(matches!(front.status(later), FrontStatus::Held(_)));
        front.replied(later, dead);
        assert!(
            matches!(front.status(later + SLOW_REPLY), FrontStatus::Held(_)),
            "no request is without a reply"
        );
    }

    /// The status of a semaphore is that of all its permits.
    #[test]
    fn a_failure_is_forgotten_after_a_success() {
        let (mut front, now) = begun();
        front.set_failed(now, LockError::NoProvider);
        front.forget_failure();
        assert!(matches!(front.status(now), FrontStatus::NoReply));
        front.set_held(Holder::default());
        front.forget_failure();
        assert!(matches!(front.status(now), FrontStatus::Held(_)));
    }

    #[test]
    fn a_wait_without_a_limit_ends_a_while_after_the_first_request_without_a_reply() {
        let (mut front, now) = begun();
        assert_eq!(front.no_reply_ends(now), None);
        front.request_sent(now);
        assert_eq!(front.no_reply_ends(now), Some(now + NO_REPLY_LIMIT));
        let late = now + NO_REPLY_LIMIT;
        assert_eq!(
            front.no_reply_ends(late),
            Some(late + NO_REPLY_LIMIT_MIN),
            "a later waiter has some time as well"
        );
        let blocked = driver_error::blocked("n", mongodb::error::Error::custom("blocked"));
        front.set_failed(now, blocked);
        assert_eq!(front.no_reply_ends(late), None, "the server has answered");
    }
}
