//! Callers that wait: how a call begins, and why it ends without the lock.

use super::event::{Cause, Failure, Join, Notice, Seen, Waiter};
use super::lanes::Flight;
use super::limits::UNANSWERED;
use super::slab::Key;
use super::state::{Call, Core, Due, Phase, Room};
use super::time::{MS, Time};
use crate::protocol::{Ms, Name};

impl<C: Clone> Core<C> {
    /// A call for a lock, or for one of so many permits.
    pub(super) fn join(&mut self, now: Time, name: Name, width: u32, join: Join<C>) -> Option<Waiter> {
        let join = self.unless_shut_down(join)?;
        let room = self.room_of(now, name);
        if width > 0 {
            self.rooms.get_mut(room)?.permits.widen(width);
        }
        let call = self.enter(now, Call::new(now, room, width, join))?;
        self.touch(now, room);
        Some(Waiter::One(call))
    }

    /// The call, unless it begins too late: then it fails.
    pub(super) fn unless_shut_down(&mut self, join: Join<C>) -> Option<Join<C>> {
        let may_begin = match self.phase {
            Phase::Open => true,
            Phase::Draining => join.is_inside_hold,
            Phase::Closed => false,
        };
        if may_begin {
            return Some(join);
        }
        let (seen, fault) = (None, None);
        let cause = Cause::ShutDown;
        self.notify(join.cell, Notice::Failed(Failure { cause, seen, fault }));
        None
    }

    /// The call goes to the end of the queue. `touch` follows.
    pub(super) fn enter(&mut self, now: Time, call: Call<C>) -> Option<Key> {
        let (key, due) = (call.room, call.deadline.unwrap_or(now + UNANSWERED));
        self.asking += usize::from(call.can_end_by_reply());
        let call = self.calls.insert(call);
        self.arm(Due::Call(call), due);
        let is_reported = self
            .rooms
            .get(key)
            .is_some_and(|room| self.stream.reports(room.filter));
        let room = self.rooms.get_mut(key)?;
        room.used = now;
        if room.queue.is_empty() && room.turn.is_none() && !room.order.yields() {
            let slot = if is_reported { room.time_slot(0.0) } else { 0 };
            room.pause_until = now + slot;
        }
        room.queue.push_back(call);
        Some(call)
    }

    /// The caller waits no longer.
    pub(super) fn leave(&mut self, now: Time, key: Key) {
        if let Some(call) = self.remove_call(key) {
            self.touch(now, call.room);
        }
    }

    pub(super) fn remove_call(&mut self, key: Key) -> Option<Call<C>> {
        self.disarm(Due::Call(key));
        let call = self.calls.remove(key)?;
        self.asking -= usize::from(call.can_end_by_reply());
        if let Some(room) = self.rooms.get_mut(call.room) {
            room.queue.retain(|other| *other != key);
        }
        Some(call)
    }

    /// The call ends without the lock.
    pub(super) fn fail_call(&mut self, now: Time, key: Key, cause: Cause) {
        if let Some(room) = self.fail(now, key, cause) {
            self.touch(now, room);
        }
    }

    /// The same, without what follows for the lock, which is returned. The set of the call ends with it.
    pub(super) fn fail(&mut self, now: Time, key: Key, cause: Cause) -> Option<Key> {
        let call = self.remove_call(key)?;
        let room = self.rooms.get(call.room)?;
        let seen = room.seen.as_ref().map(|(at, seen)| (now - *at, seen.clone()));
        let fault = room.fault.as_ref().map(|(at, fault)| (now - *at, fault.clone()));
        if let Some(set) = call.set {
            self.leave_set(now, set);
        }
        self.notify(call.cell, Notice::Failed(Failure { cause, seen, fault }));
        Some(call.room)
    }

    pub(super) fn call_due(&mut self, now: Time, key: Key) {
        let Some(call) = self.calls.get(key) else { return };
        let replied = self
            .rooms
            .get(call.room)
            .map_or(call.begun, |room| room.replied.max(call.begun));
        let limit = match call.deadline {
            Some(deadline) => (deadline, Cause::Timeout),
            None => (replied + UNANSWERED, Cause::Unanswered),
        };
        let period = call.period.map(|period| (period.ends, Cause::PeriodOver));
        let (at, cause) = period
            .into_iter()
            .chain([limit])
            .min_by_key(|(at, _)| *at)
            .unwrap_or(limit);
        if at > now {
            self.arm(Due::Call(key), at);
        } else {
            self.fail_call(now, key, cause);
        }
    }

    /// Calls for work that may succeed once in each period belong to the period in which they began, by the server's first reply.
    pub(super) fn note_period(&mut self, now: Time, flight: &Flight, room: Key, server: Ms) {
        let Some(room) = self.rooms.get(room).filter(|_| self.asking > 0) else {
            return;
        };
        for key in room.queue.clone() {
            let Some(call) = self.calls.get_mut(key).filter(|call| call.period.is_none()) else {
                continue;
            };
            let waited = (flight.sent - call.begun).max(0);
            call.period = call.rules.once.and_then(|once| once.period(now, server, waited));
            if let Some(period) = call.period {
                self.arm(Due::Call(key), period.ends);
            }
        }
    }

    /// A single try ends as soon as this process has the lock, or all of its permits.
    pub(super) fn answer_tries(&mut self, now: Time, key: Key) {
        let Some(room) = self.rooms.get(key).filter(|_| self.asking > 0) else {
            return;
        };
        let is_held = |key: Key| self.claims.get(key).is_some_and(|claim| claim.is_held());
        let is_busy = |call: &Call<C>| match call.width {
            0 => room.turn.is_some_and(is_held),
            width => room
                .permits
                .owners(width)
                .is_some_and(|mut owners| owners.all(is_held)),
        };
        let tries = self.calls_in(room, |call| (call.is_try && is_busy(call)).then_some(Cause::Busy));
        self.fail_calls(now, tries);
    }

    /// The same for a reply to a command that was sent after the call had begun: another claim has the lock, or so many permits. What
    /// the change stream reports answers no call, because it may be old.
    pub(super) fn answer_by_reply(
        &mut self,
        now: Time,
        flight: &Flight,
        key: Key,
        seen: Option<&Seen>,
        is_full: impl Fn(u32) -> bool,
    ) {
        let Some(room) = self.rooms.get(key).filter(|_| self.asking > 0) else {
            return;
        };
        let is_mark = seen.is_some_and(Seen::is_mark);
        let calls = self.calls_in(room, |call| {
            let is_new = call.asked == Some(flight.key) || call.begun < flight.sent;
            let cause = match () {
                () if is_mark && call.rules.once.is_some() => Cause::Done,
                () if call.is_try => Cause::Busy,
                () => return None,
            };
            (is_new && is_full(call.width)).then_some(cause)
        });
        self.fail_calls(now, calls);
    }

    fn calls_in(&self, room: &Room, cause: impl Fn(&Call<C>) -> Option<Cause>) -> Vec<(Key, Cause)> {
        let ends = |key: &Key| Some((*key, cause(self.calls.get(*key)?)?));
        room.queue.iter().filter_map(ends).collect()
    }

    fn fail_calls(&mut self, now: Time, calls: Vec<(Key, Cause)>) {
        for (call, cause) in calls {
            self.fail(now, call, cause);
        }
    }

    /// Whether a single try waits for one of these permits.
    pub(super) fn has_tries(&self, key: Key) -> bool {
        let is_try = |call: &Key| self.calls.get(*call).is_some_and(|call| call.is_try);
        self.asking > 0
            && self
                .rooms
                .get(key)
                .is_some_and(|room| room.queue.iter().any(is_try))
    }

    /// A single try leaves out the pause once, whichever call is before it: it waits for what one command says that is sent after its
    /// beginning.
    pub(super) fn asks_at_once(&self, room: &Room) -> bool {
        let is_new = |call: &Key| {
            self.calls
                .get(*call)
                .is_some_and(|call| call.is_try && call.asked.is_none())
        };
        self.asking > 0 && room.queue.iter().any(is_new)
    }

    /// A command that asks is sent for this lock: its reply can end the calls that have begun.
    pub(super) fn note_asked(&mut self, flight: Key, room: Key) {
        let Some(room) = self.rooms.get(room).filter(|_| self.asking > 0) else {
            return;
        };
        for call in &room.queue {
            if let Some(call) = self.calls.get_mut(*call).filter(|call| call.can_end_by_reply()) {
                call.asked.get_or_insert(flight);
            }
        }
    }
}

impl<C> Call<C> {
    pub(super) fn new(now: Time, room: Key, width: u32, join: Join<C>) -> Self {
        Self {
            room,
            width,
            rules: join.rules,
            begun: now,
            deadline: join.limit.map(|limit| now + limit),
            period: None,
            is_try: join.is_try,
            asked: None,
            set: None,
            cell: join.cell,
            due: None,
        }
    }

    /// The rest of its time, in milliseconds.
    pub(super) fn left(&self, now: Time) -> Option<Ms> {
        self.deadline.map(|deadline| (deadline - now) / MS)
    }
}
