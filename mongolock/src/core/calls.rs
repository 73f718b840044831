//! Callers that wait: how a call begins, and why it ends without the lock.

use super::event::{Cause, Failure, Fault, Join, Notice, Seen, Waiter, Wanted};
use super::lanes::Flight;
use super::limits::UNANSWERED;
use super::slab::Key;
use super::state::{Call, Caller, Claim, Core, Due, Phase, Room, Stage};
use super::time::{Span, Time};
use crate::protocol::Ms;

impl<C: Clone> Core<C> {
    /// A call begins.
    pub(super) fn join(&mut self, now: Time, wanted: Wanted, join: Join<C>) -> Waiter {
        let caller = Caller { join, begun: now };
        let (name, width) = match wanted {
            Wanted::Lock(name) => (name, 0),
            Wanted::Permit(name, width) => (name, width),
            Wanted::All(names) => return self.join_all(now, names, caller),
            Wanted::Leases(leases, rest) => return self.resume(leases, rest, &caller),
        };
        let room = self.room_of(name);
        self.rooms[room].permits.widen(width);
        let call = self.enter(now, Call::new(caller, room, width, None));
        self.touch(now, room);
        Waiter::One(call)
    }

    /// The calls that a shutdown does not let wait.
    pub(super) fn refuse_calls(&mut self, now: Time) {
        if self.phase == Phase::Open {
            return;
        }
        for key in self.calls.keys() {
            let call = self.calls.get(key);
            if call.is_some_and(|call| self.refuses(call.caller.join.is_inside_hold)) {
                self.fail_call(now, key, Cause::ShutDown);
            }
        }
    }

    /// The call goes to the end of the queue. `touch` follows.
    pub(super) fn enter(&mut self, now: Time, mut call: Call<C>) -> Key {
        let room = &mut self.rooms[call.room];
        room.used = now;
        let turn = room.turn.map(|turn| &self.claims[turn]);
        room.is_shared |= !room.queue.is_empty() || turn.is_some_and(Claim::is_held);
        let are_all_own = call.width > 0 && room.permits.owners(call.width).is_some();
        call.has_waited = !room.queue.is_empty() || are_all_own || turn.is_some_and(|turn| !turn.is_asking());
        if room.queue.is_empty() && room.turn.is_none() && !room.order.yields {
            // The result of a look is valid until the pause after it is over.
            if room.pause_until <= now {
                room.permits.doubt_taken();
            }
            let is_reported = self.stream.reports(room.filter);
            room.pause_until = now + if is_reported { room.time_slot(0.0) } else { 0 };
        }
        let room = call.room;
        let key = self.add_call(now, call);
        self.rooms[room].queue.push_back(key);
        key
    }

    pub(super) fn add_call(&mut self, now: Time, call: Call<C>) -> Key {
        let (due, _) = call.caller.limit(now);
        self.asking += usize::from(call.can_end_by_reply());
        let key = self.calls.insert(call);
        self.arm(Due::Call(key), due);
        key
    }

    /// The caller no longer waits.
    pub(super) fn leave(&mut self, now: Time, key: Key) {
        if let Some(call) = self.remove_call(key) {
            self.touch(now, call.room);
        }
    }

    pub(super) fn remove_call(&mut self, key: Key) -> Option<Call<C>> {
        self.disarm(Due::Call(key));
        let call = self.calls.remove(key)?;
        self.asking -= usize::from(call.can_end_by_reply());
        let queue = &mut self.rooms[call.room].queue;
        // Usually the call is the first one; the queue may be long.
        if queue.front() == Some(&key) {
            queue.pop_front();
        } else {
            queue.retain(|other| *other != key);
        }
        Some(call)
    }

    /// The call, and the set that waits with it, ends without the lock. `touch` follows.
    pub(super) fn fail(&mut self, now: Time, key: Key, cause: Cause) {
        let Some(call) = self.remove_call(key) else { return };
        let failure = self.failure(now, call.room, call.caller.begun, cause);
        if let Some(set) = call.set {
            self.leave_set(now, set);
        }
        self.notify(call.caller.join.cell, Notice::Failed(Box::new(failure)));
    }

    /// The reason why a call for a lock fails, with what is known about the lock.
    pub(super) fn failure(&self, now: Time, room: Key, begun: Time, cause: Cause) -> Failure {
        let room = &self.rooms[room];
        let turn = room.turn.map(|turn| &self.claims[turn]);
        let replied = room.replied;
        let asked = turn.and_then(|turn| match turn.stage {
            Stage::Asking if turn.flights > 0 => Some(Some(room.asked)),
            Stage::Asking => Some(None),
            // It waits for the reply to the release.
            Stage::Ending(ref closing) if closing.is_release() => Some(Some(room.used)),
            _ => None,
        });
        let silent_for = match asked {
            None => 0,
            Some(_) if replied == Time::default() => Span::MAX,
            Some(asked) if replied >= begun => asked.map_or(0, |asked| now - asked.max(replied)),
            Some(asked) => now - asked.unwrap_or(begun).max(replied),
        };
        // An older fault is over: a reply has arrived since.
        let is_current = |(at, _): &(Time, Fault)| *at >= begun.min(replied);
        Failure {
            cause,
            silent_for,
            name: Some(room.name.clone()),
            seen: room.seen.clone().map(|(at, seen)| (now - at, seen)),
            fault: room
                .fault
                .clone()
                .filter(is_current)
                .map(|(at, fault)| (now - at, fault)),
        }
    }

    /// Fails the call, and applies the consequences for the lock.
    pub(super) fn fail_call(&mut self, now: Time, key: Key, cause: Cause) {
        if let Some(room) = self.calls.get(key).map(|call| call.room) {
            self.fail(now, key, cause);
            self.touch(now, room);
        }
    }

    pub(super) fn call_due(&mut self, now: Time, key: Key) {
        let call = &self.calls[key];
        let limit = call.caller.limit(self.rooms[call.room].replied);
        let (at, cause) = match call.period {
            Some(period) if period.ends < limit.0 => (period.ends, Cause::PeriodOver),
            _ => limit,
        };
        if at > now {
            self.arm(Due::Call(key), at);
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
        for key in self.rooms[room].queue.clone() {
            let call = &mut self.calls[key];
            let waited = (flight.sent - call.caller.begun).max(0);
            if let (None, Some(once)) = (call.period, call.caller.join.rules.once)
                && let Some(period) = once.period(now, server, waited)
            {
                call.period = Some(period);
                self.arm(Due::Call(key), period.ends);
            }
        }
    }

    /// A single attempt ends as soon as this process has the lock, or all of its permits.
    pub(super) fn answer_tries(&mut self, now: Time, key: Key) {
        self.fail_calls(now, key, |core, call| {
            let room = &core.rooms[key];
            let is_held = |key: Key| core.claims[key].is_held();
            let owners = room.permits.owners(call.width);
            let is_busy = match call.width {
                0 => room.turn.is_some_and(is_held),
                _ => owners.is_some_and(|mut owners| owners.all(is_held)),
            };
            (call.caller.join.is_try && is_busy).then_some(Cause::Busy)
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
        let is_mark = seen.is_some_and(Seen::is_mark);
        self.fail_calls(now, key, |_, call| {
            let is_new = call.asked == Some(flight.key) || call.caller.begun < flight.sent;
            let cause = match call.caller.join.rules.once {
                Some(_) if is_mark => Cause::Done,
                _ if call.caller.join.is_try => Cause::Busy,
                _ => return None,
            };
            (is_new && is_full(call.width)).then_some(cause)
        });
    }

    pub(super) fn fail_calls(
        &mut self,
        now: Time,
        room: Key,
        cause: impl Fn(&Self, &Call<C>) -> Option<Cause>,
    ) {
        if self.asking == 0 {
            return;
        }
        let calls = self.rooms[room].queue.iter();
        let cause = |key: &Key| Some((*key, cause(self, &self.calls[*key])?));
        let ends: Vec<(Key, Cause)> = calls.filter_map(cause).collect();
        for (call, cause) in ends {
            self.fail(now, call, cause);
        }
    }

    /// Whether a single attempt waits.
    pub(super) fn has_tries(&self, room: &Room) -> bool {
        let is_try = |call: &Key| self.calls[*call].caller.join.is_try;
        self.asking > 0 && room.queue.iter().any(is_try)
    }

    /// Whether the room asks without the pause, once, because a single attempt waits anywhere in the queue: it needs
    /// the reply to one command that was sent after it began.
    pub(super) fn asks_at_once(&self, room: &Room) -> bool {
        let is_new = |call: &Call<C>| call.caller.join.is_try && call.asked.is_none();
        self.asking > 0 && room.queue.iter().any(|call| is_new(&self.calls[*call]))
    }

    /// Another claim has the lock, so the first call has waited for another holder. The calls behind it wait in any
    /// case.
    pub(super) fn first_waits(&mut self, room: Key) {
        if let Some(first) = self.rooms[room].queue.front() {
            self.calls[*first].has_waited = true;
        }
    }

    /// A command that asks for this lock is sent: its reply can end the calls that have begun.
    pub(super) fn note_asked(&mut self, flight: Key, room: Key) {
        if self.asking == 0 {
            return;
        }
        for call in &self.rooms[room].queue {
            self.calls[*call].asked.get_or_insert(flight);
        }
    }
}

impl<C> Caller<C> {
    pub(super) fn deadline(&self) -> Option<Time> {
        self.join.limit.map(|limit| self.begun + limit)
    }

    /// When its call fails, and why, if its lock had its last reply then.
    pub(super) fn limit(&self, replied: Time) -> (Time, Cause) {
        match self.deadline() {
            Some(deadline) => (deadline, Cause::Timeout),
            None => (replied.max(self.begun) + UNANSWERED, Cause::Unanswered),
        }
    }
}

impl<C> Call<C> {
    pub(super) fn new(caller: Caller<C>, room: Key, width: u32, set: Option<Key>) -> Self {
        Self {
            caller,
            room,
            width,
            period: None,
            asked: None,
            set,
            has_waited: false,
            due: None,
        }
    }
}
