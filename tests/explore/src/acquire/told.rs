//! The end of a call: what it is told at its deadline or behind others, and what its future drops.

use super::{Call, Phase, Polled};
use crate::lease::Lease;
use crate::process::{Caller, Cx, Process};
use crate::queue::{FrontStatus, Holder};
use crate::time::Instant;
use crate::timing::SLOW_REPLY;

/// What a call returns.
#[derive(Debug, Clone)]
pub(crate) enum Told {
    Hold(Lease),
    Busy(Holder),
    Timeout(Holder),
    Failed,
    NoReply,
}

/// Where `Front::first_status` waits.
#[derive(Clone, Copy, Hash)]
pub(crate) enum Check {
    Begins,
    /// For a change, because a release is on its way.
    Releasing,
    /// For a change, or until this time.
    Until(Instant),
}

impl Check {
    pub(crate) fn until(self) -> Option<Instant> {
        match self {
            Self::Until(until) => Some(until),
            Self::Begins | Self::Releasing => None,
        }
    }
}

impl Process {
    /// `Front::first_status`, and what `turn_unless_busy` makes of it.
    pub(super) fn ask_front(&mut self, cx: &Cx<'_>, call: &mut Call, check: Check) -> Polled {
        let now = Instant::now();
        let is_releasing = self.queue.front.is_releasing();
        let is_known = match check {
            Check::Until(until) if until > now => return Polled::Pending,
            Check::Until(_) => !is_releasing,
            Check::Releasing => return Polled::Pending,
            Check::Begins => false,
        };
        let status = self.front_status(cx.setup);
        let is_unknown = matches!(status, FrontStatus::NoReply | FrontStatus::NoHolder);
        if is_known || (!is_releasing && (!is_unknown || self.queue.front.is_reply_slow(now))) {
            return Polled::Ready(self.of_status(status));
        }
        call.phase = Phase::Asks(if is_releasing {
            Check::Releasing
        } else {
            Check::Until(now + SLOW_REPLY)
        });
        Polled::GoesOn
    }

    /// The end of `turn_unless_busy`.
    fn of_status(&self, status: FrontStatus) -> Told {
        match status {
            FrontStatus::Failed(_) => Told::Failed,
            FrontStatus::NoReply if self.queue.front.is_reply_slow(Instant::now()) => Told::NoReply,
            _ if self.queue.front.is_releasing() => Told::NoReply,
            status => Told::Busy(status.holder().unwrap_or_default()),
        }
    }

    /// `Call::deadline`, and the errors at it.
    pub(super) fn time_is_up(&self, cx: &Cx<'_>, call: &Call) -> Polled {
        let end = call
            .deadline
            .or_else(|| self.queue.front.no_reply_ends(call.begun));
        if end.is_none_or(|end| end > Instant::now()) {
            return Polled::Pending;
        }
        let status = self.front_status(cx.setup);
        if matches!(call.phase, Phase::Asks(_)) {
            return Polled::Ready(self.of_status(status));
        }
        Polled::Ready(match status.holder() {
            Ok(holder) if call.is_try => Told::Busy(holder),
            Ok(holder) => Told::Timeout(holder),
            Err(FrontStatus::Failed(_)) => Told::Failed,
            Err(_) => Told::NoReply,
        })
    }

    /// The end of a call: what its future drops, and `Acquire::deliver`.
    pub(super) fn end_call(&mut self, cx: &mut Cx<'_>, caller: usize, call: Call, told: Told) {
        cx.judge.told(self, &call, &told);
        if let Told::Hold(lease) = told {
            self.drop_pacing(&call);
            self.set_held(Holder::local(&lease.id.text(), lease.acquired));
            self.callers[caller] = Caller::Holds(lease);
            return;
        }
        self.drop_call(cx, caller, call);
    }

    /// A call is cancelled, or ends without a hold: the claim is given up, and then the turn passes.
    pub(crate) fn drop_call(&mut self, cx: &mut Cx<'_>, caller: usize, mut call: Call) {
        self.callers[caller] = Caller::after(cx.setup);
        if let Some(attempt) = call.attempt.take() {
            self.drop_attempt(cx, &attempt);
        }
        self.drop_pacing(&call);
        if matches!(call.phase, Phase::InQueue | Phase::Asks(_)) {
            self.queue.waiting.retain(|waiting| *waiting != caller);
        } else {
            self.queue.end_turn(None);
        }
    }
}
