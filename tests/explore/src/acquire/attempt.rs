//! The requests of one claim: what `acquire/claim.rs` of the library does.

use std::time::Duration;

use super::asking::{Asking, Held, Kind, LastEnd, given_up_after, is_out_of_time};
use super::{Call, Outcome};
use crate::id::{Id, Token};
use crate::lease::book::{Answer, NextRelease};
use crate::lease::{Lease, Release, without_margin};
use crate::network::{Body, Failure};
use crate::process::{Cx, Process, Request};
use crate::queue::{Holder, RequestNumber};
use crate::setup::Mutant;
use crate::store::{AcquireReply, AdmissionClass};
use crate::time::Instant;

/// The number of tokens that are reserved when others wait in this process.
const HANDOVERS: i64 = 1000;

#[derive(Clone, Hash)]
pub(crate) struct Attempt {
    pub(crate) id: Id,
    tokens: i64,
    /// The number of the last request, until one has an outcome.
    number: Option<RequestNumber>,
    pub(super) asking: Asking,
    pub(super) requests: Vec<Sent>,
    is_lease: bool,
}

/// The task of one request.
#[derive(Clone, Hash)]
pub(super) enum Sent {
    InFlight(u32),
    /// It has ended; `None` if there was no reply for too long.
    Ended(Option<Reply>),
}

#[derive(Clone, Copy, Hash)]
pub(super) struct Reply {
    sent: Instant,
    limit: Duration,
    result: Result<AcquireReply, Failure>,
}

impl Process {
    /// `Acquire::new_claim`.
    pub(super) fn new_attempt(&mut self, is_try: bool) -> Attempt {
        let class = if is_try {
            AdmissionClass::Woken
        } else {
            AdmissionClass::First
        };
        Attempt {
            id: self.new_id(),
            tokens: 1,
            number: None,
            asking: Asking::new(Kind::Lock, class, is_try),
            requests: Vec::new(),
            is_lease: false,
        }
    }

    /// `Claim::anew`.
    pub(super) fn anew(&mut self, attempt: &Attempt) -> Attempt {
        Attempt {
            tokens: attempt.tokens,
            asking: attempt.asking.anew(),
            ..self.new_attempt(false)
        }
    }

    /// `Claim::send`.
    pub(super) fn send_request(&mut self, cx: &mut Cx<'_>, deadline: Option<Instant>, attempt: &mut Attempt) {
        let now = Instant::now();
        let Some(limit) = attempt.asking.admitted(now, deadline, false) else {
            return;
        };
        if deadline.is_some_and(|deadline| deadline <= now) {
            cx.judge.breach("a request is sent at the deadline of its call");
        }
        let id = attempt.id;
        if !self.book(id).may_take_effect(0) && self.queue.others_wait() {
            attempt.tokens = HANDOVERS;
        }
        if attempt.number.is_none() {
            cx.judge.asks(self.index);
        }
        let front = &mut self.queue.front;
        let number = *attempt.number.get_or_insert_with(|| front.request_sent(now));
        self.book(id).sent(now);
        let body = Body::Claim {
            id,
            tokens: attempt.tokens,
            expiry: cx.setup.expiry,
            is_echo: false,
        };
        let no = self.send(cx, body);
        attempt.requests.push(Sent::InFlight(no));
        self.requests.push(Request {
            no,
            id,
            number,
            sent: now,
            limit,
            until: now + given_up_after(limit),
        });
    }

    /// Requests without a reply end: `task::reply_within`.
    pub(crate) fn give_requests_up(&mut self, cx: &mut Cx<'_>) -> bool {
        let now = Instant::now();
        let overdue = self.requests.iter().find(|request| request.until <= now);
        let Some(no) = overdue.map(|request| request.no) else {
            return false;
        };
        self.claimed(cx, no, None);
        true
    }

    /// The end of `Request::run`.
    pub(crate) fn claimed(
        &mut self,
        cx: &mut Cx<'_>,
        no: u32,
        result: Option<Result<AcquireReply, Failure>>,
    ) {
        let Some(index) = self.requests.iter().position(|request| request.no == no) else {
            return;
        };
        let (request, now) = (self.requests.remove(index), Instant::now());
        // The server has answered if the document is blocked as well.
        if let Some(Ok(_) | Err(Failure::Blocked)) = result {
            self.queue.front.replied(now, request.number);
        }
        let answer = match &result {
            Some(Ok(reply)) => Answer::of(Some(Ok(reply))),
            Some(Err(failure)) => Answer::of(Some(Err(&failure.error()))),
            None => Answer::of(None),
        };
        let sent = if cx.setup.has(Mutant::SlowReplyCountsAsCertain) {
            now
        } else {
            request.sent
        };
        let book = self.book(request.id);
        book.ended();
        if book.answered(now, sent, 0, answer) == NextRelease::Now {
            self.release_in_background(Release::of_claim(request.id, cx.setup.expiry, false));
        }
        let Request { sent, limit, .. } = request;
        let reply = result.map(|result| Reply { sent, limit, result });
        let attempts = self.calls().filter_map(|call| call.attempt.as_mut());
        for request in attempts.flat_map(|attempt| &mut attempt.requests) {
            if matches!(request, Sent::InFlight(own) if *own == no) {
                *request = Sent::Ended(reply);
            }
        }
    }

    /// `Claim::next_outcome`, if a request has ended.
    pub(super) fn next_outcome(&mut self, cx: &mut Cx<'_>, call: &mut Call) -> Option<Outcome> {
        let attempt = call.attempt.as_mut()?;
        loop {
            let is_ended = |request: &Sent| matches!(request, Sent::Ended(_));
            let index = attempt.requests.iter().position(is_ended)?;
            if let Sent::Ended(Some(reply)) = attempt.requests.swap_remove(index) {
                return Some(self.outcome(cx, attempt, reply));
            }
        }
    }

    /// `Claim::outcome`.
    fn outcome(&mut self, cx: &mut Cx<'_>, attempt: &mut Attempt, reply: Reply) -> Outcome {
        let now = Instant::now();
        attempt.number = None;
        let last = |failure: Failure| LastEnd::of(&failure.error());
        attempt
            .asking
            .ended(reply.result.map_or_else(last, |_| LastEnd::Replied));
        let answer = match reply.result {
            Ok(answer) => answer,
            Err(failure) if is_out_of_time(&failure.error(), reply.limit) => {
                return Outcome::OutOfTime(failure.error());
            }
            Err(failure) => return Outcome::Failed(failure.error()),
        };
        match answer {
            AcquireReply::Acquired {
                last_token,
                remaining,
            } => {
                let deadline = reply.sent + without_margin(remaining.min(cx.setup.expiry));
                if now >= deadline && !cx.setup.has(Mutant::LeaseThatIsOverIsDelivered) {
                    return Outcome::AlreadyOver;
                }
                attempt.is_lease = true;
                self.note_acquisition(cx, now - reply.sent);
                Outcome::Acquired(Lease {
                    id: attempt.id,
                    token: Token(last_token.0 - (attempt.tokens - 1)),
                    last_token,
                    deadline,
                    has_copies: self.book(attempt.id).may_take_effect(0),
                    acquired: reply.sent,
                })
            }
            AcquireReply::Held { holder, remaining } => Outcome::Held(Held {
                index: 0,
                holder: Holder::new(now, holder.map(Id::text), None, Some(remaining)),
                request: now - reply.sent,
                dates: None,
            }),
        }
    }

    /// `Engine::note_acquisition`.
    fn note_acquisition(&mut self, cx: &mut Cx<'_>, request: Duration) {
        let waiting = self.queue.waiting.len();
        self.queue.budget.begin_row(Instant::now(), request, waiting);
        self.line_acquired(cx, request);
    }

    /// The drop of a `Claim`.
    pub(super) fn drop_attempt(&mut self, cx: &Cx<'_>, attempt: &Attempt) {
        let is_in_flight = self.requests.iter().any(|request| request.id == attempt.id);
        if attempt.is_lease || !self.book(attempt.id).give_up(0) {
            return;
        }
        if is_in_flight && cx.setup.has(Mutant::CancelledClaimIsNotReleased) {
            return;
        }
        self.release_in_background(Release::of_claim(attempt.id, cx.setup.expiry, true));
    }
}
