//! The queue of one name in one process: what `queue/mod.rs`, `front.rs` and `handed_over.rs` of the library do.

use std::collections::VecDeque;

#[path = "../../../../mongolock/src/queue/fairness.rs"]
#[allow(dead_code, reason = "only a part of the library is explored")]
mod fairness;
#[path = "../../../../mongolock/src/queue/front_state.rs"]
#[allow(dead_code, reason = "only a part of the library is explored")]
mod front_state;
#[path = "../../../../mongolock/src/queue/holder.rs"]
#[allow(dead_code, reason = "only a part of the library is explored")]
mod holder;

use fairness::HandoverBudget;
pub(crate) use fairness::Rivals;
use front_state::FrontState;
pub(crate) use front_state::{FrontStatus, RequestNumber};
pub(crate) use holder::{Holder, Period};

use crate::acquire::{Check, Phase};
use crate::hash::ByText;
use crate::lease::Lease;
use crate::process::{Cx, Process};
use crate::setup::{Mutant, Setup};
use crate::time::Instant;

/// The number of acquire requests of one name that may be in flight.
pub(crate) const MAX_REQUESTS: usize = 3;

#[derive(Clone, Hash)]
pub(crate) struct Queue {
    /// Whether a caller, a hold or a release has the turn.
    pub(crate) has_turn: bool,
    /// The callers that wait for it, in their order.
    pub(crate) waiting: VecDeque<usize>,
    pub(crate) handed_over: Option<Lease>,
    pub(crate) front: ByText<FrontState>,
    pub(crate) budget: HandoverBudget,
}

impl Queue {
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut front = FrontState::default();
        if setup.has(Mutant::HeldBeforeFirstReply) {
            front.set_held(Holder::default());
        }
        Self {
            has_turn: false,
            waiting: VecDeque::new(),
            handed_over: None,
            front: ByText(front),
            budget: HandoverBudget::default(),
        }
    }

    /// `Entry::others_wait`.
    pub(crate) fn others_wait(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// `Entry::try_turn`.
    pub(crate) fn try_turn(&mut self) -> bool {
        !std::mem::replace(&mut self.has_turn, true)
    }

    /// `Turn::is_fresh`.
    pub(crate) fn is_fresh(&self) -> bool {
        self.handed_over.is_none() && !self.budget.must_yield()
    }

    /// `Turn::hand_over`, or the end of a turn without a hold.
    pub(crate) fn end_turn(&mut self, handed_over: Option<Lease>) {
        if handed_over.is_some() {
            self.handed_over = handed_over;
        }
        self.has_turn = false;
    }
}

impl Process {
    /// The next caller in the order gets the turn, if it is free.
    pub(crate) fn give_turn(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.queue.has_turn {
            return false;
        }
        let Some(caller) = self.queue.waiting.pop_front() else {
            return false;
        };
        self.queue.has_turn = true;
        self.begin_turn(cx, caller);
        true
    }

    /// The status of the front: `Front::status`.
    pub(crate) fn front_status(&self, setup: &Setup) -> FrontStatus {
        let now = if setup.has(Mutant::HeldStaysValid) {
            Instant::BEGINNING
        } else {
            Instant::now()
        };
        self.queue.front.status(now)
    }

    /// Wakes the tries behind the front: `Front::changed`.
    fn front_changed(&mut self) {
        for call in self.calls() {
            if let Phase::Asks(check) = &mut call.phase {
                *check = Check::Begins;
            }
        }
    }

    /// `Front::set_holder`.
    pub(crate) fn set_holder(&mut self, holder: Holder) {
        self.queue.front.set_holder(holder);
        self.front_changed();
    }

    /// `Front::set_held`.
    pub(crate) fn set_held(&mut self, holder: Holder) {
        self.queue.front.set_held(holder);
        self.front_changed();
    }

    /// `Front::set_failed`.
    pub(crate) fn set_failed(&mut self, error: crate::LockError) {
        self.queue.front.set_failed(Instant::now(), error);
        self.front_changed();
    }
}
