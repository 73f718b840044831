//! One call: what `acquire/mod.rs` and `pacing.rs` of the library do. [`asking`] decides.

#[path = "../../../../mongolock/src/acquire/asking.rs"]
#[allow(dead_code, reason = "only a part of the library is explored")]
mod asking;
mod attempt;
mod pacing;
mod told;

use std::time::Duration;

use asking::{After, Ask, Held, Next};
pub(crate) use attempt::Attempt;
use pacing::Pacing;
pub(crate) use pacing::Pause;
pub(crate) use told::{Check, Told};

use crate::id::Id;
use crate::lease::Lease;
use crate::moment::Moment;
use crate::network::{Body, Failure};
use crate::process::{Caller, Cx, Process};
use crate::queue::{MAX_REQUESTS, RequestNumber};
use crate::setup::Mutant;
use crate::store::{AdmissionClass, ClaimEnd};
use crate::time::Instant;
use crate::timing::{ACQUIRE_OVERDUE, TRY_LIMIT};

/// The time after which a caller with a deadline ends.
const DEADLINE: Duration = Duration::from_secs(3);

type Outcome = asking::Outcome<Lease>;

/// One call that waits.
#[derive(Clone, Hash)]
pub(crate) struct Call {
    pub(crate) begun: Instant,
    pub(crate) deadline: Option<Instant>,
    pub(crate) is_try: bool,
    pub(crate) phase: Phase,
    pub(crate) attempt: Option<Attempt>,
    pacing: Option<Pacing>,
}

/// Where the future of a call waits.
#[derive(Clone, Hash)]
pub(crate) enum Phase {
    /// `Entry::turn`.
    InQueue,
    /// `turn_unless_busy` of a single try, which is in the queue as well.
    Asks(Check),
    /// The pause of `Acquire::search` after `take_yield`.
    Yields { until: Instant },
    /// `Pacing::wait_while_yielding`.
    Place { until: Option<Instant> },
    /// `Acquire::first_outcome`.
    First { overdue: Instant },
    /// `Claim::request`. Without a time it waits for a permit.
    Requests {
        asked: Option<Instant>,
        overdue: Option<Instant>,
    },
    /// `Claim::clear`.
    Clears {
        no: u32,
        until: Instant,
        result: Option<Result<(), Failure>>,
    },
    /// `Claim::outcome_after`.
    Pauses(Pause),
}

/// How far a call has come when it was polled.
enum Polled {
    Pending,
    GoesOn,
    Ready(Told),
}

impl Process {
    /// A call begins: `Acquire::begin`, or the wait for the turn.
    pub(crate) fn call(&mut self, cx: &mut Cx<'_>, caller: usize) {
        let begun = Instant::now();
        let is_try = cx.setup.tries && caller + 1 == cx.setup.callers;
        let deadline = match () {
            () if is_try => Some(begun + TRY_LIMIT),
            () if cx.setup.deadlines && caller == 1 => Some(begun + DEADLINE),
            () => None,
        };
        let mut call = Box::new(Call {
            begun,
            deadline,
            is_try,
            phase: Phase::InQueue,
            attempt: None,
            pacing: None,
        });
        if !self.queue.try_turn() {
            self.queue.waiting.push_back(caller);
            if is_try {
                call.phase = Phase::Asks(Check::Begins);
            }
        } else if !is_try && self.queue.is_fresh() && self.yields_until().is_none() {
            call.phase = self.try_send(cx, &mut call);
        } else {
            return self.take_turn(cx, caller, call);
        }
        self.callers[caller] = Caller::Waits(call);
    }

    /// The first request of a call, if it needs no waiting: `Claim::try_send` and `Acquire::first_outcome`.
    fn try_send(&mut self, cx: &mut Cx<'_>, call: &mut Call) -> Phase {
        let mut attempt = self.new_attempt(call.is_try);
        let may_send = self.requests.len() < MAX_REQUESTS;
        if may_send {
            self.send_request(cx, call.deadline, &mut attempt);
        }
        call.attempt = Some(attempt);
        if may_send {
            let overdue = Instant::now() + ACQUIRE_OVERDUE;
            let overdue = call.deadline.map_or(overdue, |deadline| deadline.min(overdue));
            Phase::First { overdue }
        } else {
            call.pacing = Some(Pacing::new());
            REQUESTS
        }
    }

    /// A caller that has waited gets the turn.
    pub(crate) fn begin_turn(&mut self, cx: &mut Cx<'_>, caller: usize) {
        if let Some(call) = self.take_call(caller) {
            self.take_turn(cx, caller, call);
        }
    }

    /// The caller with the turn: `Acquire::search`.
    fn take_turn(&mut self, cx: &mut Cx<'_>, caller: usize, mut call: Box<Call>) {
        match self.queue.handed_over.take().map(Lease::taken_over) {
            Some(Ok(lease)) => return self.end_call(cx, caller, *call, Told::Hold(lease)),
            // Time does not pass between a hand-over and the caller that takes it.
            Some(Err(_)) => cx.judge.breach("a hold that is over is handed over"),
            None => {}
        }
        if !call.is_try
            && let Some(pause) = self.queue.budget.take_yield(Moment::present())
        {
            let until = Instant::now() + pause;
            call.phase = Phase::Yields { until };
        } else {
            self.wait_while_yielding(cx, &mut call);
        }
        self.callers[caller] = Caller::Waits(call);
    }

    /// `Pacing::wait_while_yielding`.
    fn wait_while_yielding(&mut self, cx: &mut Cx<'_>, call: &mut Call) {
        call.pacing = Some(Pacing::new());
        if !call.is_try && self.lines.has_line() {
            self.enter_line(cx, call.begun);
        }
        let until = if call.is_try { None } else { self.yields_until() };
        let Some(until) = until else {
            return self.begin_requests(call);
        };
        self.queue.front.yield_lock();
        cx.judge.yields(self.index);
        self.subscribe(cx, call);
        self.rest_while_yielding(until);
        let until = call.deadline.map(Pacing::most_for_others);
        call.phase = Phase::Place { until };
    }

    fn begin_requests(&mut self, call: &mut Call) {
        call.attempt = Some(self.new_attempt(call.is_try));
        call.phase = REQUESTS;
    }

    /// Polls the future of a call, and returns whether it has gone on.
    pub(crate) fn poll(&mut self, cx: &mut Cx<'_>, caller: usize) -> bool {
        let Some(mut call) = self.take_call(caller) else {
            return false;
        };
        let polled = match self.advance(cx, &mut call) {
            // `bounded` looks at the time last.
            Polled::Pending => self.time_is_up(cx, &call),
            polled => polled,
        };
        let has_run = !matches!(polled, Polled::Pending);
        match polled {
            Polled::Ready(told) => self.end_call(cx, caller, *call, told),
            Polled::Pending | Polled::GoesOn => self.callers[caller] = Caller::Waits(call),
        }
        has_run
    }

    fn advance(&mut self, cx: &mut Cx<'_>, call: &mut Call) -> Polled {
        let now = Instant::now();
        match call.phase.clone() {
            Phase::InQueue => Polled::Pending,
            Phase::Asks(check) => self.ask_front(cx, call, check),
            Phase::Yields { until } if until > now => Polled::Pending,
            Phase::Yields { .. } => {
                self.wait_while_yielding(cx, call);
                Polled::GoesOn
            }
            Phase::Place { until } => {
                if !self.notifier.take_wake() && until.is_none_or(|until| until > now) {
                    return Polled::Pending;
                }
                self.rest_ends();
                self.begin_requests(call);
                Polled::GoesOn
            }
            Phase::First { overdue } => match self.next_outcome(cx, call) {
                Some(Outcome::Acquired(lease)) => Polled::Ready(Told::Hold(lease)),
                None if overdue > now => Polled::Pending,
                outcome => {
                    call.pacing = Some(Pacing::new());
                    self.goes_on(cx, call, outcome)
                }
            },
            Phase::Requests { asked, .. } => match self.next_outcome(cx, call) {
                Some(outcome) => self.step(cx, call, outcome),
                None => self.request(cx, call, asked),
            },
            Phase::Clears { until, result, .. } => self.clear(call, until, result),
            Phase::Pauses(pause) => match self.next_outcome(cx, call) {
                None if !self.has_ended(pause) => Polled::Pending,
                outcome => self.goes_on(cx, call, outcome),
            },
        }
    }

    /// The loop of `Acquire::search`: the outcome that is there, or another request.
    fn goes_on(&mut self, cx: &mut Cx<'_>, call: &mut Call, outcome: Option<Outcome>) -> Polled {
        let Some(outcome) = outcome else {
            call.phase = REQUESTS;
            return Polled::GoesOn;
        };
        self.step(cx, call, outcome)
    }

    /// `Claim::request`.
    fn request(&mut self, cx: &mut Cx<'_>, call: &mut Call, asked: Option<Instant>) -> Polled {
        let now = Instant::now();
        let Some(mut attempt) = call.attempt.take() else {
            return Polled::Pending;
        };
        let ask = attempt.asking.next(now, asked, attempt.requests.len());
        let is_withheld = ask == Ask::Send(AdmissionClass::Copy) && cx.setup.has(Mutant::NoCopy);
        let overdue = match ask {
            Ask::Wait(overdue) => Some(overdue),
            Ask::Send(_) if is_withheld => None,
            Ask::Send(_) => {
                if asked.is_none() {
                    self.queue.front.request_due(now);
                    cx.judge.would_ask(self.index);
                }
                if self.requests.len() < MAX_REQUESTS {
                    self.send_request(cx, call.deadline, &mut attempt);
                    call.attempt = Some(attempt);
                    call.phase = Phase::Requests {
                        asked: Some(now),
                        overdue: None,
                    };
                    return Polled::GoesOn;
                }
                None
            }
        };
        call.attempt = Some(attempt);
        call.phase = Phase::Requests { asked, overdue };
        Polled::Pending
    }

    /// `Acquire::step` and `Call::next_after`.
    fn step(&mut self, cx: &mut Cx<'_>, call: &mut Call, outcome: Outcome) -> Polled {
        let Some(mut attempt) = call.attempt.take() else {
            return Polled::Pending;
        };
        let outcome =
            outcome.read(|lease| lease.is_over() && !cx.setup.has(Mutant::LeaseThatIsOverIsDelivered));
        if let Outcome::Held(held) = &outcome {
            let id = held.holder.lock_id();
            self.line_found_held(cx.setup, id, held.request);
            if let Some(id) = id {
                cx.judge.named(self, Id::of(id));
            }
        }
        let given_up = |id: &str| {
            let id = Id::of(id)?;
            self.has_given_up(cx, id).then_some(ClaimEnd)
        };
        let knows_holder = |_| self.front_status(cx.setup).holder().is_ok();
        let next = match attempt
            .asking
            .next_after(outcome, Duration::ZERO, given_up, knows_holder)
        {
            After::Clear(held, _) => {
                call.attempt = Some(attempt);
                self.begin_clear(cx, call, &held);
                return Polled::GoesOn;
            }
            After::Next(next) => next,
        };
        if let Next::ClaimAnew = next {
            let anew = self.anew(&attempt);
            self.drop_attempt(cx, &std::mem::replace(&mut attempt, anew));
        }
        call.attempt = Some(attempt);
        self.follow(cx, call, next)
    }

    fn follow(&mut self, cx: &mut Cx<'_>, call: &mut Call, next: Next<Lease>) -> Polled {
        match next {
            Next::Deliver(lease) => return Polled::Ready(Told::Hold(lease)),
            Next::ClaimAnew | Next::Again => call.pause(Duration::ZERO),
            Next::Held(held) => {
                self.set_holder(held.holder.clone());
                if call.is_try {
                    return Polled::Ready(Told::Busy(held.holder));
                }
                self.queue.budget.shrink();
                let remaining = held.holder.remaining(Instant::now());
                let pause = self.after_held(cx, call, remaining);
                call.pause(pause);
            }
            Next::Pause(error) | Next::Leave(error) => {
                let pause = call.after_error();
                if let Some(error) = error {
                    self.set_failed(error);
                }
                call.pause(pause);
            }
            Next::End(_) | Next::Stop => return Polled::Ready(Told::Failed),
        }
        Polled::GoesOn
    }

    /// `Claim::clear`.
    fn begin_clear(&mut self, cx: &mut Cx<'_>, call: &mut Call, held: &Held) {
        let Some(id) = held.holder.lock_id().and_then(|id| Id::of(id)) else {
            return call.pause(Duration::ZERO);
        };
        let now = Instant::now();
        self.queue.front.set_no_holder();
        let number = self.queue.front.release_sent(now);
        let no = self.send(cx, Body::Release(id));
        self.clears.push((no, number));
        call.phase = Phase::Clears {
            no,
            until: now + ACQUIRE_OVERDUE,
            result: None,
        };
    }

    /// The reply to the release of a claim that a waiter has met. The waiter may have gone on.
    pub(crate) fn clear_replied(&mut self, no: u32, number: RequestNumber, reply: Result<bool, Failure>) {
        if reply.is_ok() {
            self.queue.front.released(Instant::now(), number);
        }
        for call in self.calls() {
            if let Phase::Clears { no: own, result, .. } = &mut call.phase
                && *own == no
            {
                *result = Some(reply.map(drop));
            }
        }
    }

    /// The end of `Claim::clear`.
    fn clear(&mut self, call: &mut Call, until: Instant, result: Option<Result<(), Failure>>) -> Polled {
        match result {
            None if until > Instant::now() => return Polled::Pending,
            None | Some(Ok(())) => call.pause(Duration::ZERO),
            Some(Err(failure)) => {
                let pause = call.after_error();
                self.set_failed(failure.error());
                call.pause(pause);
            }
        }
        Polled::GoesOn
    }
}

const REQUESTS: Phase = Phase::Requests {
    asked: None,
    overdue: None,
};
