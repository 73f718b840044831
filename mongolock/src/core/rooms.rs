//! A lock in this process: when the first call asks, and for how long what is known is kept.

use super::event::{Lane, Rules};
use super::limits::{COPIES, COPY, LATE_POLL, LINGER, LINGER_LISTENING};
use super::order::{Order, part_of};
use super::permit_list::PermitList;
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
        self.answer_tries(now, key);
        let Some(room) = self.rooms.get(key) else { return };
        if !room.permits.is_of_lock() {
            return self.touch_permits(now, key);
        }
        match room.turn {
            Some(turn) if self.claims.get(turn).is_some() => self.touch_turn(now, key, turn),
            _ => self.begin_turn(now, key),
        }
    }

    /// The claim that has the turn asks if it is time to, or is given up if no call waits for it.
    fn touch_turn(&mut self, now: Time, key: Key, turn: Key) {
        let (Some(room), Some(claim)) = (self.rooms.get_mut(key), self.claims.get_mut(turn)) else {
            return;
        };
        if !claim.is_asking() {
            return;
        }
        let is_in_flight = claim.flights > 0;
        if room.queue.is_empty() {
            // Without a reply by then it may have the lock, and no call wants it.
            let is_missing = is_in_flight && room.copy_at <= now;
            if !is_in_flight || is_missing {
                claim.is_unclear |= is_missing;
                room.turn = None;
                self.give_up(now, turn);
                self.begin_turn(now, key);
            } else {
                let at = room.copy_at;
                self.arm(Due::Room(key), at);
            }
        } else if is_in_flight {
            self.send_copy(now, key, turn);
        } else {
            self.ask_in_time(now, key, turn);
        }
    }

    /// Sends a claim once more that has no reply.
    pub(super) fn send_copy(&mut self, now: Time, key: Key, turn: Key) {
        let (Some(room), Some(claim)) = (self.rooms.get_mut(key), self.claims.get_mut(turn)) else {
            return;
        };
        if room.copy_at <= now {
            room.copy_at = now + COPY;
            if claim.flights < COPIES && claim.in_lane.is_none() && !claim.is_later {
                claim.in_lane = Some(Lane::Claims);
                self.lanes[Lane::Claims].apart.push_back(vec![turn]);
            }
        }
        let at = room.copy_at;
        self.arm(Due::Room(key), at);
    }

    fn ask_in_time(&mut self, now: Time, key: Key, turn: Key) {
        let asks_at_once = self.rooms.get(key).is_some_and(|room| self.asks_at_once(room));
        let (Some(room), Some(claim)) = (self.rooms.get_mut(key), self.claims.get_mut(turn)) else {
            return;
        };
        if asks_at_once {
            room.looks = false;
            claim.in_lane.take_if(|lane| *lane == Lane::Looks);
        }
        if room.pause_until > now && !asks_at_once {
            let at = room.pause_until;
            self.arm(Due::Room(key), at);
        } else if claim.in_lane.is_none() {
            let lane = if std::mem::take(&mut room.looks) {
                Lane::Looks
            } else {
                Lane::Claims
            };
            claim.in_lane = Some(lane);
            self.lanes[lane].waiting.push_back(turn);
        }
    }

    /// No claim has the turn: the first call gets one, once its pause is over.
    fn begin_turn(&mut self, now: Time, key: Key) {
        let asks_at_once = self.rooms.get(key).is_some_and(|room| self.asks_at_once(room));
        let Some(room) = self.rooms.get_mut(key) else {
            return;
        };
        let waits = !room.queue.is_empty();
        if waits && room.pause_until > now && !asks_at_once {
            let at = room.pause_until;
            return self.arm(Due::Room(key), at);
        }
        if room.pause_until <= now {
            room.order.ends_yielding(now);
        }
        if waits {
            if let Some(claim) = self.new_claim(now, key, false) {
                self.give_turn(key, claim);
                self.push(claim, Lane::Claims);
            }
        } else if room.claims.is_empty() {
            self.linger(now, key);
        }
    }

    /// The claim waits in this lane.
    pub(super) fn push(&mut self, key: Key, lane: Lane) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.in_lane = Some(lane);
            self.lanes[lane].waiting.push_back(key);
        }
    }

    /// A claim for the first call. Its id is drawn when it is sent.
    pub(super) fn new_claim(&mut self, now: Time, key: Key, is_later: bool) -> Option<Key> {
        let rules = self.first(self.rooms.get(key)?)?.rules;
        let claim = Claim::new(now, key, rules);
        self.add_claim(Claim { is_later, ..claim })
    }

    pub(super) fn add_claim(&mut self, claim: Claim<C>) -> Option<Key> {
        let room = self.rooms.get_mut(claim.room)?;
        let key = self.claims.insert(claim);
        room.claims.push(key);
        Some(key)
    }

    pub(super) fn give_turn(&mut self, key: Key, claim: Key) {
        if let Some(room) = self.rooms.get_mut(key) {
            (room.turn, room.is_outdated, room.looks) = (Some(claim), false, false);
        }
    }

    /// The claim does not keep the next call from asking.
    pub(super) fn pass_turn(&mut self, now: Time, key: Key, claim: Key) {
        if let Some(room) = self.rooms.get_mut(key) {
            room.turn.take_if(|turn| *turn == claim);
            room.used = now;
        }
    }

    /// No call waits, and nothing is held: what is known is kept for a while.
    pub(super) fn linger(&mut self, now: Time, key: Key) {
        let Some(room) = self.rooms.get(key) else { return };
        let linger = if room.filter.is_some() {
            LINGER_LISTENING
        } else {
            LINGER
        };
        match room.used + linger {
            at if at > now => self.arm(Due::Room(key), at),
            _ => self.forget(key),
        }
    }

    fn forget(&mut self, key: Key) {
        self.disarm(Due::Room(key));
        if let Some(room) = self.rooms.remove(key) {
            self.names.remove(&room.name);
            if room.filter.is_some() {
                self.listens_no_longer();
            }
        }
    }
}

impl Room {
    fn new(now: Time, name: Name) -> Self {
        Self {
            name,
            queue: std::collections::VecDeque::new(),
            claims: Vec::new(),
            turn: None,
            pause_until: now,
            looks: false,
            copy_at: now,
            misses: 0,
            is_outdated: false,
            seen: None,
            fault: None,
            replied: Time::LONG_AGO,
            asked: Time::LONG_AGO,
            used: now,
            order: Order::new(now),
            permits: PermitList::default(),
            beside: Vec::new(),
            filter: None,
            due: None,
        }
    }

    /// For how long this process leaves it to others when it becomes free.
    pub(super) fn time_slot(&self, luck: f64) -> Span {
        self.order.time_slot(luck, self.permits.free())
    }

    /// Events come too late to this process: it asks at times that do not depend on them.
    pub(super) fn late_poll(&self, now: Time, luck: f64) -> Span {
        let asked = self.copy_at + -COPY;
        (asked + part_of((LATE_POLL * 8 / 10, LATE_POLL * 12 / 10), luck) - now).max(0)
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
                unknown: None,
                postponed: None,
            },
            set: None,
            is_later: false,
            due: None,
        }
    }
}
