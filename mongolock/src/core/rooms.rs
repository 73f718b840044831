//! A lock in this process: when the first call asks, and for how long what is known is kept.

use super::event::{Lane, Rules};
use super::limits::{self, COPY};
use super::order::{Order, part_of};
use super::slab::Key;
use super::state::{Claim, Commits, Core, Due, Room, Stage};
use super::time::{Span, Time};
use crate::protocol::Name;

impl<C: Clone> Core<C> {
    pub(super) fn room_of(&mut self, now: Time, name: Name) -> Key {
        if let Some(key) = self.names.get(&name) {
            return *key;
        }
        let key = self.rooms.insert(Room::new(now, name.clone()));
        self.names.insert(name, key);
        key
    }

    /// Does what follows for a lock from what has happened.
    pub(super) fn touch(&mut self, now: Time, key: Key) {
        if self.rooms.get(key).is_none() {
            return;
        }
        self.answer_tries(now, key);
        let room = &self.rooms[key];
        match room.turn {
            _ if !room.permits.is_of_lock() => self.touch_permits(now, key),
            Some(turn) => self.touch_turn(now, key, turn),
            None => self.begin_turn(now, key),
        }
    }

    /// The claim that has the turn asks if it is time to, or is given up if no call waits for it.
    fn touch_turn(&mut self, now: Time, key: Key, turn: Key) {
        let (room, claim) = (&mut self.rooms[key], &mut self.claims[turn]);
        if !claim.is_asking() {
            return;
        }
        let is_in_flight = claim.flights > 0;
        match (room.queue.is_empty(), is_in_flight) {
            (false, true) => return self.send_copy(now, key, turn),
            (false, false) => return self.ask_in_time(now, key, turn),
            (true, true) if room.copy_at > now => {
                let at = room.copy_at;
                return self.arm(Due::Room(key), at);
            }
            _ => {}
        }
        // Without a reply by now it may have the lock, and no call wants it.
        claim.is_unclear |= is_in_flight;
        room.turn = None;
        self.give_up(now, turn);
        self.begin_turn(now, key);
    }

    /// Sends a claim once more that has no reply.
    pub(super) fn send_copy(&mut self, now: Time, key: Key, turn: Key) {
        let (room, claim) = (&mut self.rooms[key], &mut self.claims[turn]);
        if room.copy_at <= now {
            room.copy_at = now + COPY;
            if claim.flights < limits::COPIES && claim.in_lane.is_none() && !claim.is_later {
                claim.in_lane = Some(Lane::Claims);
                self.lanes[Lane::Claims].apart.push_back(vec![turn]);
            }
        }
        let at = room.copy_at;
        self.arm(Due::Room(key), at);
    }

    fn ask_in_time(&mut self, now: Time, key: Key, turn: Key) {
        let asks_at_once = self.asks_at_once(&self.rooms[key]);
        let (room, claim) = (&mut self.rooms[key], &mut self.claims[turn]);
        if asks_at_once {
            room.looks = false;
            claim.in_lane.take_if(|lane| *lane == Lane::Looks);
        }
        if room.pause_until > now && !asks_at_once {
            let at = room.pause_until;
            self.arm(Due::Room(key), at);
        } else if claim.in_lane.is_none() {
            let looks = std::mem::take(&mut room.looks);
            self.push(turn, if looks { Lane::Looks } else { Lane::Claims });
        }
    }

    /// No claim has the turn: the first call gets one, once its pause is over.
    fn begin_turn(&mut self, now: Time, key: Key) {
        let asks_at_once = self.asks_at_once(&self.rooms[key]);
        let room = &mut self.rooms[key];
        let (waits, at) = (!room.queue.is_empty(), room.pause_until);
        if waits && at > now && !asks_at_once {
            return self.arm(Due::Room(key), at);
        }
        if at <= now {
            room.order.ends_yielding(now);
        }
        if waits {
            let claim = self.new_claim(now, key, false);
            self.give_turn(key, claim);
            self.push(claim, Lane::Claims);
        } else if room.claims.is_empty() {
            self.linger(now, key);
        }
    }

    /// The claim waits in this lane.
    pub(super) fn push(&mut self, key: Key, lane: Lane) {
        self.claims[key].in_lane = Some(lane);
        self.lanes[lane].waiting.push_back(key);
    }

    /// A claim for the first call. Its id is drawn when it is sent.
    pub(super) fn new_claim(&mut self, now: Time, key: Key, is_later: bool) -> Key {
        let rules = self.calls[self.rooms[key].queue[0]].caller.rules;
        let claim = Claim::new(now, key, rules);
        self.add_claim(Claim { is_later, ..claim })
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

    /// The claim does not keep the next call from asking.
    pub(super) fn pass_turn(&mut self, now: Time, key: Key, claim: Key) {
        let room = &mut self.rooms[key];
        room.turn.take_if(|turn| *turn == claim);
        room.used = now;
    }

    /// No call waits, and nothing is held: what is known is kept for a while.
    pub(super) fn linger(&mut self, now: Time, key: Key) {
        let room = &self.rooms[key];
        let is_reported = room.filter.is_some();
        let at = room.used
            + if is_reported {
                limits::LINGER_LISTENING
            } else {
                limits::LINGER
            };
        if at > now {
            return self.arm(Due::Room(key), at);
        }
        self.disarm(Due::Room(key));
        self.names.remove(&self.rooms[key].name);
        self.rooms.remove(key);
        if is_reported {
            self.listens_no_longer();
        }
    }
}

impl Room {
    fn new(now: Time, name: Name) -> Self {
        Self {
            name,
            pause_until: now,
            copy_at: now,
            used: now,
            order: Order::new(now),
            ..Self::default()
        }
    }

    /// For how long this process leaves it to others when it becomes free.
    pub(super) fn time_slot(&self, luck: f64) -> Span {
        self.order.time_slot(luck, self.permits.free())
    }

    /// Events come too late to this process: it asks at times that do not depend on them.
    pub(super) fn late_poll(&self, now: Time, luck: f64) -> Span {
        let asked = self.copy_at + -COPY;
        let every = limits::LATE_POLL;
        (asked + part_of((every * 8 / 10, every * 12 / 10), luck) - now).max(0)
    }
}

impl<C> Claim<C> {
    pub(super) fn new(now: Time, room: Key, rules: Rules) -> Self {
        Self {
            id: None,
            room,
            permit: None,
            rules,
            stage: Stage::Asking,
            token: 0,
            last: 0,
            mark_until: None,
            resumes: None,
            turn_since: now,
            turn_left: 0,
            in_lane: None,
            renews: false,
            flights: 0,
            sent: now,
            is_unclear: false,
            dead_at: now,
            commits: Commits {
                open: 0,
                marks: false,
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
