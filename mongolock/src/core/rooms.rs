//! A lock in this process: when its first call asks, and for how long the knowledge about it is kept.

use super::event::{Lane, Rules};
use super::lanes::Queue;
use super::limits::{COPIES, COPY, LINGER, LINGER_LISTENING};
use super::slab::Key;
use super::state::{Claim, Commits, Core, Due, Room, Stage};
use super::time::{Span, Time};
use crate::protocol::{Name, Order};

impl<C: Clone> Core<C> {
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
            Some((_, turn)) if turn.in_lane.is_some() && !(asks_at_once && room.is_about_to_look(turn)) => {}
            _ if at > now && !asks_at_once => return self.arm(Due::Room(key), at),
            _ => self.seek(now, key, asks_at_once),
        }
        self.seek_beside(now, key);
    }

    /// Claims that ask although fewer calls wait are given up.
    fn give_up_surplus(&mut self, now: Time, key: Key) {
        loop {
            let room = &self.rooms[key];
            if room.queue.len() >= room.beside.len() + usize::from(room.turn.is_some()) {
                return;
            }
            let claims = &self.claims;
            let may_end = |key: &Key| claims[*key].flights == 0 || claims[*key].copy_at() <= now;
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
        let is_lock = room.permits.is_of_lock();
        let width = self.calls[room.queue[0]].width;
        let has_permit = |turn: Key| self.claims[turn].permit.is_some();
        if !is_lock && !room.turn.is_some_and(has_permit) && room.permits.owners(width).is_some() {
            return;
        }
        let turn = room.turn.unwrap_or_else(|| {
            let claim = self.new_claim(now, key);
            self.give_turn(key, claim);
            claim
        });
        let room = &mut self.rooms[key];
        room.is_outdated = false;
        let looks = std::mem::take(&mut room.looks);
        let asks = if is_lock {
            !looks || asks_at_once
        } else {
            self.claims[turn].permit.is_some() || self.choose(key, turn, width)
        };
        if asks || looks {
            return self.push(turn, if asks { Lane::Claims } else { Lane::Looks });
        }
        // Looks because of silence wait for others; this one is for a call that may have a permit now.
        self.claims[turn].in_lane = Some(Lane::Looks);
        self.go_apart(Lane::Looks, turn);
    }

    /// A claim in flight may need a copy, or one that resumes a lease asks again.
    pub(super) fn asking_due(&mut self, now: Time, key: Key) {
        let claim = &self.claims[key];
        let (room, copy_at) = (claim.room, claim.copy_at());
        if claim.flights > 0 && copy_at > now {
            self.arm(Due::Claim(key), copy_at);
        } else if claim.resumes.is_some() {
            self.send_copy(now, key);
        }
        self.touch(now, room);
    }

    /// Sends a claim once more that has no reply.
    pub(super) fn send_copy(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        let may_be_sent = claim.flights < COPIES && claim.in_lane.is_none() && !claim.is_later;
        if may_be_sent && (claim.flights == 0 || claim.copy_at() <= now) {
            claim.in_lane = Some(Lane::Claims);
            self.go_apart(Lane::Claims, key);
        }
    }

    /// Puts the claim into this lane.
    pub(super) fn push(&mut self, key: Key, lane: Lane) {
        self.claims[key].in_lane = Some(lane);
        self.lane(lane).waiting.push_back(key);
    }

    /// It has a command of its own.
    pub(super) fn go_apart(&mut self, lane: Lane, key: Key) {
        self.lane(lane).apart.push_back((Order::Each, vec![key]));
    }

    pub(super) fn lane(&mut self, lane: Lane) -> &mut Queue {
        &mut self.lanes[lane as usize]
    }

    /// A claim for the first call. Its random id is made when it is sent.
    pub(super) fn new_claim(&mut self, now: Time, key: Key) -> Key {
        let rules = self.calls[self.rooms[key].queue[0]].caller.join.rules;
        self.add_claim(Claim::new(now, key, rules))
    }

    pub(super) fn add_claim(&mut self, claim: Claim<C>) -> Key {
        let room = &mut self.rooms[claim.room];
        let key = self.claims.insert(claim);
        room.claims.push(key);
        key
    }

    pub(super) fn give_turn(&mut self, key: Key, claim: Key) {
        let room = &mut self.rooms[key];
        (room.turn, room.is_outdated, room.looks) = (Some(claim), false, false);
    }

    /// The claim has no turn any more, so the next call may ask.
    pub(super) fn pass_turn(&mut self, now: Time, key: Key, claim: Key) {
        let room = &mut self.rooms[key];
        room.turn.take_if(|turn| *turn == claim);
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
    /// Whether the claim that asks for the lock waits for a look.
    fn is_about_to_look<C>(&self, turn: &Claim<C>) -> bool {
        self.permits.is_of_lock() && turn.in_lane == Some(Lane::Looks)
    }

    /// For how long this process leaves it to others when it becomes free.
    pub(super) fn time_slot(&self, luck: f64) -> Span {
        self.order.time_slot(luck, self.permits.free())
    }
}

impl<C> Claim<C> {
    /// The time at which a copy of the claim is sent if it has no reply.
    pub(super) fn copy_at(&self) -> Time {
        self.sent + COPY
    }

    pub(super) fn new(now: Time, room: Key, rules: Rules) -> Self {
        Self {
            id: None,
            room,
            permit: None,
            rules,
            stage: Stage::Asking,
            token: 0,
            last: 0,
            tokens: 0,
            mark_until: None,
            resumes: None,
            turn_since: now,
            turn_left: 0,
            in_lane: None,
            renews: false,
            flights: 0,
            sent: now,
            ends: 0,
            is_unclear: false,
            dead_at: now,
            commits: Commits {
                open: 0,
                marks: false,
                is_unclear: false,
                mark_ends: None,
                unknown: None,
                postponed: None,
            },
            set: None,
            is_later: false,
            due: None,
        }
    }
}
