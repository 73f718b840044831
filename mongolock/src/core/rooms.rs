//! A lock in this process: when its first call asks, and for how long the knowledge about it is kept.

use super::event::{Lane, Rules};
use super::limits::{COPIES, COPY, LINGER, LINGER_LISTENING};
use super::slab::Key;
use super::state::{Claim, Commits, Core, Due, Room, Stage};
use super::time::{Span, Time};
use crate::protocol::Name;

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

    /// Applies the rules to a lock after an event.
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

    /// The claim that has the turn asks when its time has come, or is given up if no call waits for it.
    fn touch_turn(&mut self, now: Time, key: Key, turn: Key) {
        let (room, claim) = (&mut self.rooms[key], &mut self.claims[turn]);
        if !claim.is_asking() {
            return;
        }
        // Whether no call waits for the claim, and whether it is in flight.
        match (room.queue.is_empty(), claim.flights > 0) {
            (false, true) => return self.send_copy(now, turn),
            (false, false) => return self.ask_in_time(now, key, turn),
            (true, true) if claim.copy_at() > now => return,
            _ => {}
        }
        self.give_up(now, turn);
        self.begin_turn(now, key);
    }

    /// A claim in flight may need a copy, or it resumes a lease.
    pub(super) fn asking_due(&mut self, now: Time, key: Key) {
        let claim = &self.claims[key];
        let (room, copy_at) = (claim.room, claim.copy_at());
        if claim.flights > 0 && copy_at > now {
            self.arm(Due::Claim(key), copy_at);
        }
        match self.claims[key].resumes {
            Some(_) => self.resumption_due(now, key),
            None => self.touch(now, room),
        }
    }

    /// Sends a claim once more that has no reply.
    pub(super) fn send_copy(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        let may_be_sent = claim.flights < COPIES && claim.in_lane.is_none() && !claim.is_later;
        if may_be_sent && (claim.flights == 0 || claim.copy_at() <= now) {
            claim.in_lane = Some(Lane::Claims);
            self.lanes[Lane::Claims as usize].apart.push_back(vec![key]);
        }
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
            let claim = self.new_claim(now, key);
            self.give_turn(key, claim);
            self.push(claim, Lane::Claims);
        } else if room.claims.is_empty() {
            self.linger(now, key);
        }
    }

    /// Puts the claim into this lane.
    pub(super) fn push(&mut self, key: Key, lane: Lane) {
        self.claims[key].in_lane = Some(lane);
        self.lanes[lane as usize].waiting.push_back(key);
    }

    /// A claim for the first call. Its random id is made when it is sent.
    pub(super) fn new_claim(&mut self, now: Time, key: Key) -> Key {
        let rules = self.calls[self.rooms[key].queue[0]].caller.rules;
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
            self.listens_no_longer(now);
        }
    }
}

impl Room {
    /// The time for which this process waits for the time slots of others when the lock becomes free.
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
