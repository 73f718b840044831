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
//! | all data: callers, rooms, claims | `state.rs`, `claim.rs` |
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
use state::{Closing, Due, End, Phase, Stage};

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
}

/// What the engine may ask.
impl<C: Clone> Core<C> {
    /// The cells of the present holds; that of a set for each of its locks.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &C> {
        self.claims.iter().filter_map(|(_, claim)| self.holder(claim))
    }

    /// The cell of this process's hold of a lock, or of a permit of a semaphore.
    pub(crate) fn holder_of(&self, name: &str) -> Option<&C> {
        let room = &self.rooms[*self.names.get(name)?];
        let mut claims = room.claims.iter();
        claims.find_map(|key| self.holder(&self.claims[*key]))
    }

    /// Whether a change stream is open.
    pub(crate) fn is_listening(&self) -> bool {
        self.stream.open.is_some()
    }

    /// Whether a call fails because the provider shuts down.
    pub(crate) fn refuses(&self, is_inside_hold: bool) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Draining => !is_inside_hold,
            Phase::Closed => true,
        }
    }

    /// Whether a resumption of the lease with this id has been given up, and the lease may not have its id back yet.
    pub(crate) fn gives_back(&self, lease_id: &str) -> bool {
        self.claims.iter().any(|(_, claim)| {
            let resumes = claim.resumes.as_deref().is_some_and(|(id, _)| &**id == lease_id);
            // It was given back before its last command has arrived.
            let may_come = matches!(claim.stage, Stage::Released) && claim.flights > 0;
            resumes && (may_come || matches!(claim.stage, Stage::Ending(_)))
        })
    }

    /// Whether the mark of a work that is done is not confirmed yet.
    pub(crate) fn has_marks(&self) -> bool {
        let is_mark = |closing: &Closing| matches!(closing.end, End::Mark(_));
        let mut claims = self.claims.iter();
        claims.any(|(_, claim)| matches!(&claim.stage, Stage::Ending(closing) if is_mark(closing)))
    }
}
