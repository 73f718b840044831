//! What a caller with the turn sends for one claim, and when.
//!
//! | the claim's last request | what is sent next |
//! |---|---|
//! | none was sent | a request, among those of its class |
//! | has found the lock held | another one when the caller is woken, with the same id |
//! | has no reply for 2 s | a copy with the same id, and again each 2 s |
//! | has failed | another one after a pause, with the same id; its copies each 2 s |
//! | has ended at a document that another operation blocks | the same, but copies after 7 s: earlier ones would only wait with it |
//!
//! A round of a set ends when it finds a lock held, and at a blocked document, because it keeps the other locks from others;
//! it sends a bounded number of requests. Nothing is sent at or after the deadline.

use std::time::Duration;

use tokio::time::Instant;

use crate::LockError;
use crate::store::{AdmissionClass, driver_error};
use crate::timing::{
    ACQUIRE_LIMIT, ACQUIRE_LIMIT_MIN, ACQUIRE_OVERDUE, CROWDED_LIMIT, NO_REPLY, PERMIT_LIMIT,
};

/// The requests of one claim, or of the claims of a set with one id.
#[derive(Debug)]
pub(super) struct Asking {
    /// Among which commands of the provider each request is admitted; `None` for a single try.
    class: Option<AdmissionClass>,
    /// How the last request has ended.
    last: LastEnd,
    /// Whether the limit of the next request at the server is [`PERMIT_LIMIT`] at most.
    has_short_limit: bool,
    /// Whether a request was sent.
    has_sent: bool,
    /// The number of requests that may still be sent; `None` if there is no bound. It takes one byte, because each waiting call
    /// has it in its future.
    left: Option<u8>,
}

/// What the caller does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// It sends a request as soon as one of this class is admitted.
    Send(AdmissionClass),
    /// It waits for a reply, until this time at most.
    Wait(Instant),
}

/// How the last request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastEnd {
    /// There was a reply, or no request has ended yet.
    Replied,
    /// It has failed.
    Failed,
    /// Another operation blocks the document.
    Blocked,
}

impl LastEnd {
    pub(super) fn of(error: &LockError) -> Self {
        if driver_error::is_blocked_document(error) {
            Self::Blocked
        } else {
            Self::Failed
        }
    }
}

impl Asking {
    /// At most `most` requests, any number without it. The first one has this class; `None` is that of a single try, which does
    /// not wait behind the first requests of waiting calls.
    pub(super) fn new(class: Option<AdmissionClass>, most: Option<u8>) -> Self {
        Self {
            class,
            last: LastEnd::Replied,
            has_short_limit: false,
            has_sent: false,
            left: most,
        }
    }

    pub(super) fn set_class(&mut self, class: Option<AdmissionClass>) {
        self.class = class;
    }

    /// Has the next request have [`PERMIT_LIMIT`] at the server at most: the call can go on with another permit.
    pub(super) fn limit_shortly(&mut self) {
        self.has_short_limit = true;
    }

    /// The requests of the next claim of the same call.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.class, None)
    }

    /// Whether no request was sent yet.
    pub(super) fn is_new(&self) -> bool {
        !self.has_sent
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
        if self.last != LastEnd::Replied {
            AdmissionClass::Repeated
        } else if in_flight == 0 {
            self.class.unwrap_or(AdmissionClass::Woken)
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
        self.has_sent = true;
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

    /// Notes that a reply has found the lock held: the next request is that of a caller that was woken.
    pub(super) fn found_held(&mut self) {
        self.class = self.class.map(|_| AdmissionClass::Woken);
    }
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
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn asking() -> (Asking, Instant) {
        let first = Some(AdmissionClass::First);
        (Asking::new(first, None), Instant::now())
    }

    #[test]
    fn a_copy_is_sent_each_time_a_reply_is_overdue() {
        let (mut asking, mut now) = asking();
        assert_eq!(asking.next(now, None, 0), Ask::Send(AdmissionClass::First));
        for in_flight in 1..4 {
            assert_eq!(asking.admitted(now, None, false), Some(ACQUIRE_LIMIT));
            let (asked, overdue) = (Some(now), now + ACQUIRE_OVERDUE);
            assert_eq!(asking.next(now, asked, in_flight), Ask::Wait(overdue));
            now = overdue;
            assert_eq!(
                asking.next(now, asked, in_flight),
                Ask::Send(AdmissionClass::Copy)
            );
        }
    }

    #[test]
    fn the_class_of_the_next_request_follows_from_the_last_one() {
        let (mut asking, now) = asking();
        asking.admitted(now, None, false);
        asking.found_held();
        assert_eq!(asking.next(now, None, 0), Ask::Send(AdmissionClass::Woken));
        assert_eq!(
            asking.next(now, None, 1),
            Ask::Send(AdmissionClass::Copy),
            "an earlier one has no reply yet"
        );
        asking.ended(LastEnd::Failed);
        assert_eq!(asking.next(now, None, 1), Ask::Send(AdmissionClass::Repeated));
        let single_try = Asking::new(None, None);
        assert_eq!(single_try.next(now, None, 0), Ask::Send(AdmissionClass::Woken));
    }

    #[test]
    fn copies_come_later_while_another_operation_blocks_the_document() {
        let (mut asking, now) = asking();
        asking.ended(LastEnd::Blocked);
        asking.admitted(now, None, false);
        let overdue = now + ACQUIRE_LIMIT + ACQUIRE_OVERDUE;
        assert_eq!(asking.next(now, Some(now), 1), Ask::Wait(overdue));
    }

    #[test]
    fn a_round_sends_a_bounded_number_of_requests() {
        let (mut asking, mut now, mut asked) = (Asking::new(None, Some(2)), Instant::now(), None);
        for in_flight in 0..2 {
            assert!(matches!(asking.next(now, asked, in_flight), Ask::Send(_)));
            asking.admitted(now, None, false);
            asked = Some(now);
            now += ACQUIRE_OVERDUE;
        }
        assert!(!asking.may_repeat());
        assert_eq!(asking.next(now, asked, 2), Ask::Wait(now + ACQUIRE_OVERDUE));
    }

    #[test]
    fn the_limit_at_the_server_is_a_part_of_the_time_that_is_left() {
        let (mut asking, now) = asking();
        let mut limit = |left: Duration| asking.admitted(now, Some(now + left), false);
        assert_eq!(limit(Duration::ZERO), None, "nothing is sent at the deadline");
        assert_eq!(limit(SECOND * 60), Some(ACQUIRE_LIMIT));
        assert_eq!(limit(SECOND), Some(SECOND * 4 / 5));
        assert_eq!(limit(ACQUIRE_LIMIT_MIN), Some(ACQUIRE_LIMIT_MIN));
        assert_eq!(asking.admitted(now, None, true), Some(CROWDED_LIMIT));
        asking.limit_shortly();
        let limits = [(); 2].map(|()| asking.admitted(now, None, false));
        assert_eq!(limits, [Some(PERMIT_LIMIT), Some(ACQUIRE_LIMIT)]);
    }
}
