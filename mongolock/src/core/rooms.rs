//! A lock in this process: calls enter its queue, the first of them asks, and what is known of it is kept for some time. A call for
//! several locks asks with one command for as many as are free, in the order of their names.

use super::event::{Join, Lane, Rules, Wanted};
use super::keys::Keys;
use super::limits::{COPIES, LINGER, LINGER_LISTENING};
use super::permit_list::PermitState;
use super::slab::Key;
use super::state::{Caller, Claim, Core, Due, Room};
use super::time::{Span, Time};
use crate::protocol::{Name, RowOrder};

impl<C: Clone> Core<C> {
    /// A call begins.
    pub(super) fn join(&mut self, now: Time, wanted: Wanted, rules: Rules, join: Join<C>) -> Key {
        if *self.blank.rules != rules {
            self.blank.rules = rules.into();
        }
        let (name, width) = match wanted {
            Wanted::Lock(name) => (name, 0),
            Wanted::Permit(name, width) => (name, width),
            Wanted::All(names) => {
                let key = self.add_caller(now, join, names.into(), 0);
                self.advance(now, key);
                return key;
            }
            Wanted::Leases(leases, rest) => return self.resume(now, leases, rest, join),
        };
        let room = self.room_of(name);
        let key = self.add_caller(now, join, Box::default(), width);
        self.enter(now, key, room);
        self.touch(now, room);
        key
    }

    pub(super) fn add_caller(&mut self, now: Time, join: Join<C>, names: Box<[Name]>, width: u32) -> Key {
        let caller = Caller {
            rules: self.blank.rules.clone(),
            join,
            begun: now,
            names,
            width,
            waits: true,
            rooms: Keys::Empty,
            won: Keys::Empty,
            resumed: Box::default(),
            after: 0,
            period: None,
            has_waited: false,
            is_untaken: false,
            due: None,
            asks_outcome: None,
            waiter: None,
            left: 0,
            ended: None,
        };
        self.asking += usize::from(caller.can_end_by_reply());
        let (due, _) = caller.limit(now);
        let key = self.callers.insert(caller);
        self.arm(Due::Caller(key), due);
        key
    }

    /// The caller goes to the end of the queue of a room.
    pub(super) fn enter(&mut self, now: Time, key: Key, room_key: Key) {
        let (caller, room) = (&mut self.callers[key], &mut self.rooms[room_key]);
        room.used = now;
        room.permits.widen(caller.width);
        let turn = room.turn.map(|turn| &self.claims[turn]);
        room.is_shared |= !room.queue.is_empty() || turn.is_some_and(Claim::is_held);
        let are_all_own = caller.width > 0 && room.permits.owners(caller.width).is_some();
        caller.has_waited |=
            !room.queue.is_empty() || are_all_own || turn.is_some_and(|turn| !turn.is_asking());
        if room.queue.is_empty() && room.turn.is_none() && !room.order.yields {
            let is_reported = self.stream.reports(room.filter);
            room.pause_until = now + if is_reported { room.time_slot(0.0) } else { 0 };
        }
        room.queue.push(key);
        if caller.rooms.is_empty() {
            caller.after = self.commands;
        }
        caller.rooms.push(room_key);
    }

    /// If the caller waits for no lock yet, it waits for its next one, and asks with the same command for later locks for
    /// which no call waits in this process.
    pub(super) fn advance(&mut self, now: Time, key: Key) {
        let is_idle = |caller: &&Caller<C>| caller.waits && caller.rooms.is_empty();
        let Some(caller) = self.callers.get(key).filter(is_idle) else {
            return;
        };
        let first = caller.won.len();
        let mut claims = Vec::new();
        for place in first.. {
            let Some(name) = self.callers[key].names.get(place) else {
                break;
            };
            let room = self.room_of(name.clone());
            let is_free = self.may_be_free(room);
            if place > first && !is_free {
                break;
            }
            self.enter(now, key, room);
            if !is_free {
                return self.touch(now, room);
            }
            let claim = self.new_claim(room);
            let own = &mut self.rooms[room];
            (own.turn, own.looks, own.in_looks) = (Some(claim), false, false);
            claims.push(claim);
        }
        self.go_together(Lane::Claims, claims);
    }

    /// Whether no call of this process waits for it, and it is not left to another process.
    fn may_be_free(&self, key: Key) -> bool {
        let room = &self.rooms[key];
        let is_idle = room.turn.is_none() && room.queue.is_empty() && !room.order.yields;
        is_idle && !(self.stream.reports(room.filter) && room.time_slot(0.0) > 0)
    }

    pub(super) fn room_of(&mut self, name: Name) -> Key {
        if let Some(key) = self.names.get(&name) {
            return *key;
        }
        let key = self.rooms.insert(Room {
            name: name.clone(),
            ..Room::default()
        });
        self.names.insert(name, key);
        key
    }

    /// Does what follows for a lock, or for a semaphore, from what has happened.
    pub(super) fn touch(&mut self, now: Time, key: Key) {
        if self.rooms.get(key).is_none() {
            return;
        }
        self.answer_tries(now, key);
        let turn = self.rooms[key].turn;
        // It is held or being released. A semaphore has no turn then.
        if turn.is_some_and(|turn| !self.claims[turn].is_asking()) {
            return;
        }
        self.give_up_surplus(now, key);
        let room = &self.rooms[key];
        if room.queue.is_empty() {
            if room.claims.is_empty() {
                self.linger(now, key);
            }
            return;
        }
        let (at, asks_at_once) = (room.pause_until, self.asks_at_once(room));
        match room.turn.map(|turn| (turn, &self.claims[turn])) {
            Some((turn, claim)) if claim.flights > 0 => self.send_copy(now, turn),
            Some((_, turn)) if turn.waits_in(Lane::Claims) => {}
            _ if room.in_looks && !(asks_at_once && room.permits.is_of_lock()) => {}
            _ if at > now && !asks_at_once => return self.arm(Due::Room(key), at),
            _ => self.seek(now, key, asks_at_once),
        }
        self.seek_beside(key);
    }

    /// Claims that ask although fewer calls wait are given up.
    fn give_up_surplus(&mut self, now: Time, key: Key) {
        loop {
            let room = &self.rooms[key];
            if room.queue.len() >= room.beside.len() + usize::from(room.turn.is_some()) {
                return;
            }
            let claims = &self.claims;
            let may_end = |key: &Key| claims[*key].flights == 0 || claims[*key].again_at <= now;
            let beside = room.beside.iter().copied().rfind(may_end);
            let turn = room.turn.filter(|turn| room.queue.is_empty() && may_end(turn));
            let Some(surplus) = beside.or(turn) else { return };
            self.give_up(now, surplus);
        }
    }

    /// The turn asks for the lock or for a permit that may be free, or it looks.
    fn seek(&mut self, now: Time, key: Key, asks_at_once: bool) {
        let room = &mut self.rooms[key];
        if room.pause_until <= now {
            room.order.ends_yielding(now);
        }
        let (turn, is_lock) = (room.turn, room.permits.is_of_lock());
        let width = self.callers[room.queue[0]].width;
        if turn.is_none() && !is_lock && room.permits.owners(width).is_some() {
            return;
        }
        let looks = std::mem::take(&mut room.looks);
        let claim = match turn {
            _ if is_lock && looks && !asks_at_once => None,
            Some(turn) => Some(turn),
            None => self.claim_for(key, width),
        };
        self.rooms[key].in_looks = claim.is_none();
        if let Some(claim) = claim {
            self.rooms[key].turn = Some(claim);
            self.push(claim, Lane::Claims);
        } else if looks {
            self.lane(Lane::Looks).waiting.push_back(key);
        } else {
            // Looks because of silence wait for others; this one is for a call that may have a permit now.
            self.lane(Lane::Looks)
                .apart
                .push_back((RowOrder::Each, vec![key]));
        }
    }

    /// While the turn asks for a permit, the calls behind it ask for others that may be free.
    pub(super) fn seek_beside(&mut self, key: Key) {
        loop {
            let room = &self.rooms[key];
            let may_ask = room.turn.is_some() && !room.permits.is_full();
            let Some(caller) = room.queue.get(room.beside.len() + 1).filter(|_| may_ask) else {
                return;
            };
            let width = self.callers[*caller].width;
            let Some(claim) = self.claim_for(key, width) else {
                return;
            };
            self.rooms[key].beside.push(claim);
            self.push(claim, Lane::Claims);
        }
    }

    /// Sends a claim once more that has no reply.
    pub(super) fn send_copy(&mut self, now: Time, key: Key) {
        let claim = &self.claims[key];
        let is_next = claim.resumes.is_some() || self.is_next(claim.room);
        let may_be_sent = claim.flights < COPIES && !claim.waits_in(Lane::Claims) && is_next;
        if may_be_sent && claim.again_at <= now {
            self.go_apart(Lane::Claims, RowOrder::Each, vec![key]);
        }
    }

    /// A claim for the first call. Its random id is made when it is sent.
    pub(super) fn new_claim(&mut self, room: Key) -> Key {
        let rules = self.callers[self.rooms[room].queue[0]].rules.clone();
        self.add_claim(Claim {
            room,
            rules,
            ..self.blank.clone()
        })
    }

    /// A claim for a lock, or for a permit that may be free, from a random one on; `None` if there is none.
    pub(super) fn claim_for(&mut self, key: Key, width: u32) -> Option<Key> {
        let start = u32::try_from(self.draw_between((0, width.into()))).unwrap_or(0);
        let room = &self.rooms[key];
        let permit = room.permits.choose(width, room.misses == 0, start);
        if permit.is_none() && !room.permits.is_of_lock() {
            return None;
        }
        let claim = self.new_claim(key);
        self.claims[claim].permit = permit;
        if let Some(number) = permit {
            self.rooms[key].permits.set(number, PermitState::Own(claim));
        }
        Some(claim)
    }

    pub(super) fn add_claim(&mut self, claim: Claim) -> Key {
        let room = &mut self.rooms[claim.room];
        let key = self.claims.insert(claim);
        room.claims.push(key);
        key
    }

    /// Whether the next call of its room waits for this claim. One for a permit has no turn while it is held; one that
    /// resumes a lease gives it back to its handle.
    pub(super) fn has_turn(&self, key: Key) -> bool {
        let claim = &self.claims[key];
        let is_of_permit = claim.permit.is_some() && claim.resumes.is_none();
        is_of_permit || self.rooms[claim.room].turn == Some(key)
    }

    /// The claim no longer asks, and has no turn any more: the next caller may ask.
    pub(super) fn pass_turn(&mut self, now: Time, key: Key, claim: Key) {
        let room = &mut self.rooms[key];
        room.turn.take_if(|turn| *turn == claim);
        room.beside.remove(claim);
        room.used = now;
    }

    /// No call waits, and nothing is held: the room is kept for some time.
    pub(super) fn linger(&mut self, now: Time, key: Key) {
        let room = &self.rooms[key];
        let listens = room.filter.is_some();
        let at = room.used + if listens { LINGER_LISTENING } else { LINGER };
        if at > now {
            return self.arm(Due::Room(key), at);
        }
        self.disarm(Due::Room(key));
        self.names.remove(&self.rooms[key].name);
        self.rooms.remove(key);
        if listens {
            self.listens_no_longer(now, key);
        }
    }
}

impl Room {
    /// For how long this process leaves it to others when it becomes free.
    pub(super) fn time_slot(&self, luck: f64) -> Span {
        self.order.time_slot(luck, self.permits.free())
    }
}
