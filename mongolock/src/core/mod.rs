//! The state machine of the locks: it makes decisions and performs nothing. It never waits, and has no clock, task,
//! driver or text of an error.
//!
//! [`Core::handle`] takes an event. It first handles the timers that are due, and then appends the effects that the
//! engine performs. An event only records what has happened. [`Core::touch`] then applies the rules to the lock, so
//! that each rule is written once. The key of a removed value finds nothing, so late replies and timers need not be
//! cancelled.
//!
//! | concept | file |
//! |---|---|
//! | events and effects | `event.rs` |
//! | events in, timers, notices out | this file |
//! | all data: callers, rooms, claims; questions about it | `state.rs`, `claim.rs` |
//! | how a call begins, and when the first caller of a lock, of several locks or of a permit asks | `rooms.rs` |
//! | callers that wait, and why they fail | `calls.rs` |
//! | what replies and events say of a lock that others have | `news.rs`, `order.rs` |
//! | the change stream | `stream.rs` |
//! | claims that win, and the replies to releases | `claims.rs` |
//! | leases: renewal, loss | `leases.rs` |
//! | the end of a hold: hand-over, release, mark, detachment; releases of claims that may be late | `releases.rs`, `once.rs` |
//! | resumption | `resuming.rs` |
//! | transactions under a hold | `commits.rs` |
//! | delivery, also of several locks | `sets.rs` |
//! | permits | `permits.rs`, `permit_list.rs` |
//! | which command is sent when, with which rows, and what its failure means | `lanes.rs`, `places.rs`, `sending.rs`, `replies.rs` |
//! | limits | `limits.rs` |

mod calls;
mod claim;
mod claims;
mod commits;
mod event;
mod keys;
mod lanes;
mod leases;
pub(crate) mod limits;
mod news;
mod once;
mod order;
mod permit_list;
mod permits;
mod places;
mod releases;
mod replies;
mod resuming;
mod rooms;
mod sending;
mod sets;
mod slab;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod time;

pub(crate) use claims::relied_on;
pub use event::LossReason;
pub(crate) use event::{
    CallFailure, Cause, Effect, EndResult, Ended, Ending, Event, FailedCommand, Fault, FaultKind, Grant,
    Join, Lane, Notice, Report, Rules, Saw, Seen, Wanted,
};
pub(crate) use once::OncePolicy;
pub(crate) use places::Places;
pub(crate) use slab::Key;
pub(crate) use state::{Conf, Core, Luck};
pub(crate) use time::{MS, Span, Time, span};

use limits::AT_ONCE;
use state::{Claim, Due, LeaseTimes, Phase, Stage};

impl<C: Clone> Core<C> {
    /// Runs the timers that are due, then the event, and then sends as many commands as may be in flight. A call that waits gets
    /// a key.
    pub(crate) fn handle(&mut self, now: Time, luck: &mut dyn Luck, event: Event<C>) -> Option<Key> {
        self.luck = luck.chance();
        self.tick(now);
        let caller = self.take(now, event);
        if self.phase != Phase::Open {
            self.refuse_calls(now);
        }
        self.pump(now, luck);
        if self.phase != Phase::Open && self.is_idle() {
            self.effects.push(Effect::Idle);
        }
        caller
    }

    fn take(&mut self, now: Time, event: Event<C>) -> Option<Key> {
        match event {
            Event::Join(wanted, rules, join) => return Some(self.join(now, wanted, rules, join)),
            Event::Leave(caller) => self.leave(now, caller, None),
            Event::End(hold, how, awaited) => self.end_hold(now, hold, &how, awaited),
            Event::CommitBegins { hold, marks } => self.commit_begins(now, hold, marks),
            Event::CommitEnds {
                hold,
                marks,
                was_made,
                awaited,
            } => self.commit_ends(now, hold, marks, was_made, awaited),
            Event::Renew(name) => self.renew_now(name.as_ref()),
            Event::Discard(leases) => self.discard(now, leases),
            Event::Ran(flight, result) => self.ran(now, flight, result),
            Event::Looked(flight, result) => self.looked(now, flight, result),
            Event::Opened(number) => self.opened(now, number),
            Event::Closed { number, is_lasting } => self.closed(now, number, is_lasting),
            Event::News(news) => self.news(now, &news),
            Event::Tick => {}
            Event::Shutdown { is_closed } => self.shut_down(now, is_closed),
        }
        None
    }

    /// Handles the timers that are due. A large number is handled in parts: the rest is due again at once.
    fn tick(&mut self, now: Time) {
        for _ in 0..AT_ONCE {
            let Some((_, due)) = self.due.first().copied().filter(|(at, _)| *at <= now) else {
                return;
            };
            self.due.pop_first();
            self.due_of(due).and_then(Option::take);
            match due {
                Due::Caller(key) => self.call_due(now, key),
                Due::Claim(key) => self.claim_due(now, key),
                Due::Room(key) => self.touch(now, key),
                Due::Lanes => {}
                Due::Stream => self.open_stream(now),
            }
        }
    }

    fn shut_down(&mut self, now: Time, is_closed: bool) {
        self.phase = if is_closed { Phase::Closed } else { Phase::Draining };
        if !is_closed {
            return;
        }
        for claim in self.claims.keys() {
            self.lose(now, claim, LossReason::ShutDown);
        }
    }

    /// Does what is due for a claim, and sets its timer.
    fn claim_due(&mut self, now: Time, key: Key) {
        let Some(claim) = self.claims.get(key) else {
            return;
        };
        match claim.stage {
            Stage::Asking if claim.resumes.is_some() => self.send_copy(now, key),
            Stage::Asking => self.touch(now, claim.room),
            Stage::Held => self.lease_due(now, key),
            Stage::Ending(_) => {
                self.lease_due(now, key);
                self.end_due(now, key);
            }
            // When the last claim in flight has ended, it is removed, or released again when no late one can take effect
            // any more. An earlier release may still get its reply; only one that was sent since then ends the claim.
            Stage::Released if claim.flights > 0 => {}
            Stage::Released if claim.unclear_until.is_none() => self.remove_claim(now, key),
            Stage::Released if claim.unclear_until <= Some(now) => self.release(now, key, None),
            Stage::Released => {}
        }
        self.arm_claim(now, key);
    }

    /// Sets the timer of a claim.
    fn arm_claim(&mut self, now: Time, key: Key) {
        let claim = self.claims.get(key);
        if let Some(at) = claim.and_then(|claim| claim.next_due(now)) {
            self.arm(Due::Claim(key), at);
        }
    }

    fn due_of(&mut self, due: Due) -> Option<&mut Option<Time>> {
        match due {
            Due::Caller(key) => self.callers.get_mut(key).map(|caller| &mut caller.due),
            Due::Claim(key) => self.claims.get_mut(key).map(|claim| &mut claim.due),
            Due::Room(key) => self.rooms.get_mut(key).map(|room| &mut room.due),
            Due::Lanes => Some(&mut self.lanes_due),
            Due::Stream => Some(&mut self.stream.due),
        }
    }

    /// Sets a timer. If an earlier timer is set, it is kept: a timer that fires too early sets itself again.
    fn arm(&mut self, due: Due, at: Time) {
        let Some(armed) = self.due_of(due) else { return };
        let before = *armed;
        if before.is_none_or(|before| before > at) {
            *armed = Some(at);
            if let Some(before) = before {
                self.due.remove(&(before, due));
            }
            self.due.insert((at, due));
        }
    }

    fn disarm(&mut self, due: Due) {
        if let Some(at) = self.due_of(due).and_then(Option::take) {
            self.due.remove(&(at, due));
        }
    }

    /// Notifies a caller, if there is one.
    fn notify(&mut self, cell: impl Into<Option<C>>, notice: Notice) {
        self.effects
            .extend(cell.into().map(|cell| Effect::Notify(cell, notice)));
    }
}

impl Claim {
    /// When something is due for it next. What is due by now waits for something else, as for a place in a lane.
    fn next_due(&self, now: Time) -> Option<Time> {
        let renew_at = |lease: LeaseTimes| (!self.waits_in(Lane::Renewals)).then_some(lease.renew_at);
        let (own, also) = match &self.stage {
            Stage::Asking if self.flights > 0 || self.resumes.is_some() => (Some(self.again_at), None),
            Stage::Released if self.flights == 0 => (self.unclear_until, None),
            Stage::Ending(closing) => {
                let answer_by = closing.of.map(|_| closing.answer_by);
                ((!self.waits_in(Lane::Ends)).then_some(self.again_at), answer_by)
            }
            _ => (None, None),
        };
        let times = [
            own,
            also,
            self.lease.map(|lease| lease.until),
            self.lease.and_then(renew_at),
            self.commits.unknown.as_ref().map(|unknown| unknown.limit),
        ];
        let is_to_come = |at: &Time| *at > now && *at < Time::NEVER;
        times.into_iter().flatten().filter(is_to_come).min()
    }
}
