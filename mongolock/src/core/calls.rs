//! Callers that wait, and why their calls end without their locks.

use super::event::{CallFailure, Cause, Fault, Notice, Seen};
use super::lanes::Flight;
use super::slab::Key;
use super::state::{Caller, Core, Due, Room, Stage};
use super::time::{Span, Time, span};
use crate::protocol::Ms;
use crate::protocol::text::is_mark;
use crate::timing::REQUEST_LIMIT;

impl<C: Clone> Core<C> {
    /// The callers that a shutdown does not let wait.
    pub(super) fn refuse_calls(&mut self, now: Time) {
        for key in self.callers.keys() {
            let caller = self.callers.get(key).filter(|caller| caller.waits);
            if caller.is_some_and(|caller| self.refuses(caller.join.is_inside_hold)) {
                self.fail_call(now, key, Cause::ShutDown);
            }
        }
    }

    /// The caller no longer waits: it has got its locks or gives up.
    pub(super) fn stops_waiting(&mut self, key: Key) {
        self.disarm(Due::Caller(key));
        let caller = &mut self.callers[key];
        caller.waits = false;
        self.asking -= usize::from(caller.can_end_by_reply());
    }

    /// The caller leaves the queues of its rooms. What follows for them is done by `touch`, which the caller of this function does for the
    /// room `here`.
    pub(super) fn leave_queues(&mut self, now: Time, key: Key, here: Option<Key>) {
        let caller = &mut self.callers[key];
        let rooms = std::mem::take(&mut caller.rooms);
        for room in rooms.iter() {
            self.rooms[*room].queue.remove(key);
            if here != Some(*room) {
                self.touch(now, *room);
            }
        }
    }

    /// The caller no longer waits. The leases that it was resuming get their ids back.
    pub(super) fn leave(&mut self, now: Time, key: Key, here: Option<Key>) {
        let caller = self.callers.get_mut(key);
        let Some(caller) = caller.filter(|caller| caller.waits) else {
            return;
        };
        caller.is_untaken = true;
        self.stops_waiting(key);
        self.leave_queues(now, key, here);
        self.end_all(now, key, None);
    }

    /// The caller ends without its locks because of this room. `touch` follows for the room.
    pub(super) fn fail(&mut self, now: Time, key: Key, room: Key, cause: Cause) {
        let Some(caller) = self.callers.get(key).filter(|caller| caller.waits) else {
            return;
        };
        let failure = self.failure(now, room, caller.begun, cause);
        let cell = caller.join.cell.clone();
        self.leave(now, key, Some(room));
        self.notify(cell, Notice::Failed(Box::new(failure)));
    }

    /// The reason why a call for a lock fails, with what is known about the lock.
    fn failure(&self, now: Time, room: Key, begun: Time, cause: Cause) -> CallFailure {
        let room = &self.rooms[room];
        let turn = room.turn.map(|turn| &self.claims[turn]);
        let replied = room.replied;
        let silent_since = match turn.map(|turn| &turn.stage) {
            // It waits for the reply to the release.
            Some(Stage::Ending(closing)) if closing.is_release() => Some(room.used),
            Some(Stage::Asking) | None if room.asked > replied => Some(room.asked),
            Some(Stage::Asking) if begun > replied => Some(begun),
            _ => None,
        };
        let silent_for = match silent_since {
            None => 0,
            Some(_) if replied == Time::default() => Span::MAX,
            Some(since) => now - since.max(replied),
        };
        // An older fault is over: a reply has arrived since.
        let is_current = |(at, _): &&(Time, Fault)| *at >= begun.min(replied);
        let fault = room.fault.as_deref().filter(is_current);
        CallFailure {
            cause,
            silent_for,
            name: Some(room.name.clone()),
            seen: room.seen.as_deref().map(|(at, seen)| (now - *at, seen.clone())),
            fault: fault.map(|(at, fault)| (now - *at, fault.clone())),
        }
    }

    /// Fails the caller, and applies the consequences for the lock for which it waits.
    pub(super) fn fail_call(&mut self, now: Time, key: Key, cause: Cause) {
        if let Some(room) = self.room_awaited_by(&self.callers[key]) {
            self.fail(now, key, room, cause);
            self.touch(now, room);
        }
    }

    /// The room of the next lock of a caller that waits.
    fn room_awaited_by(&self, caller: &Caller<C>) -> Option<Key> {
        let asks = |claim: &Key| Some(&self.claims[*claim]).filter(|claim| claim.is_asking());
        let resumed = || caller.won.iter().find_map(asks).map(|claim| claim.room);
        caller.rooms.first().copied().or_else(resumed)
    }

    pub(super) fn call_due(&mut self, now: Time, key: Key) {
        let caller = &self.callers[key];
        let replied = self.room_awaited_by(caller).map(|room| self.rooms[room].replied);
        let limit = caller.limit(replied.unwrap_or(caller.begun));
        let (at, cause) = match &caller.period {
            Some(period) if period.ends < limit.0 => (period.ends, Cause::PeriodOver),
            _ => limit,
        };
        if at > now {
            self.arm(Due::Caller(key), at);
        } else {
            self.fail_call(now, key, cause);
        }
    }

    /// A call for work that may succeed once in each period belongs to the period in which it began. The server's first
    /// reply determines this period.
    pub(super) fn note_period(&mut self, now: Time, flight: &Flight, room: Key, server: Ms) {
        if self.asking == 0 {
            return;
        }
        for key in self.rooms[room].queue.clone().iter() {
            let caller = &mut self.callers[*key];
            let waited = (flight.sent - caller.begun).max(0);
            if let (None, Some(once)) = (&caller.period, caller.rules.once)
                && let Some(period) = once.period(now, server, waited)
            {
                caller.period = Some(Box::new(period));
                self.arm(Due::Caller(*key), period.ends);
            }
        }
    }

    /// A single attempt ends as soon as this process has the lock, or all of its permits.
    pub(super) fn answer_tries(&mut self, now: Time, key: Key) {
        self.fail_calls(now, key, |core, caller| {
            let room = &core.rooms[key];
            let is_held = |key: Key| core.claims[key].is_held();
            let owners = room.permits.owners(caller.width);
            let is_busy = match caller.width {
                0 => room.turn.is_some_and(is_held),
                _ => owners.is_some_and(|mut owners| owners.all(is_held)),
            };
            (caller.join.is_try && is_busy).then_some(Cause::Busy)
        });
    }

    /// Ends single attempts by a reply that says that another claim has the lock, or how many permits other claims
    /// have. The command must have been sent after the call began. Events of the change stream do not end a call,
    /// because they may be old.
    pub(super) fn answer_by_reply(
        &mut self,
        now: Time,
        flight: &Flight,
        key: Key,
        seen: Option<&Seen>,
        is_full: impl Fn(u32) -> bool,
    ) {
        let is_mark = seen.is_some_and(|seen| is_mark(&seen.lock_id));
        self.fail_calls(now, key, |_, caller| {
            let is_new = caller.after < flight.number;
            let cause = match caller.rules.once {
                Some(_) if is_mark => Cause::Done,
                _ if caller.join.is_try => Cause::Busy,
                _ => return None,
            };
            (is_new && is_full(caller.width)).then_some(cause)
        });
    }

    pub(super) fn fail_calls(
        &mut self,
        now: Time,
        room: Key,
        cause: impl Fn(&Self, &Caller<C>) -> Option<Cause>,
    ) {
        if self.asking == 0 {
            return;
        }
        let callers = self.rooms[room].queue.iter();
        let cause = |key: &Key| Some((*key, cause(self, &self.callers[*key])?));
        let ends: Vec<(Key, Cause)> = callers.filter_map(cause).collect();
        for (caller, cause) in ends {
            self.fail(now, caller, room, cause);
        }
    }

    /// Whether the room asks without the pause, once, because a single attempt waits anywhere in the queue: it needs
    /// the reply to one command that was sent after it began.
    pub(super) fn asks_at_once(&self, room: &Room) -> bool {
        let is_new = |caller: &Caller<C>| caller.join.is_try && caller.after >= room.asked_by;
        self.asking > 0 && room.queue.iter().any(|caller| is_new(&self.callers[*caller]))
    }
}

impl<C> Caller<C> {
    pub(super) fn is_set(&self) -> bool {
        self.names.len() > 1
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.join.limit.map(|limit| self.begun + limit)
    }

    /// When its call fails, and why, if its lock had its last reply then.
    pub(super) fn limit(&self, replied: Time) -> (Time, Cause) {
        match self.deadline() {
            Some(deadline) => (deadline, Cause::Timeout),
            None => (replied.max(self.begun) + span(REQUEST_LIMIT), Cause::Unanswered),
        }
    }

    /// Whether a reply can end its call.
    pub(super) fn can_end_by_reply(&self) -> bool {
        self.join.is_try || self.rules.once.is_some()
    }
}
