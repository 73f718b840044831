//! A lock in this process: when its first call asks, and for how long the knowledge about it is kept.

use super::event::Lane;
use super::lanes::Queue;
use super::limits::{COPIES, LINGER, LINGER_LISTENING};
use super::slab::Key;
use super::state::{Claim, Core, Due, Room};
use super::time::{Span, Time};
use crate::protocol::{Name, RowOrder};

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
            Some((_, turn)) if turn.waits_in(Lane::Claims) => {}
            _ if room.in_lane && !(asks_at_once && room.permits.is_of_lock()) => {}
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
        self.rooms[key].in_lane = claim.is_none();
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

    /// Sends a claim once more that has no reply.
    pub(super) fn send_copy(&mut self, now: Time, key: Key) {
        let claim = &self.claims[key];
        let is_next = claim.resumes.is_some() || self.is_next(claim.room);
        let may_be_sent = claim.flights < COPIES && !claim.waits_in(Lane::Claims) && is_next;
        if may_be_sent && claim.again_at <= now {
            self.go_apart(Lane::Claims, RowOrder::Each, vec![key]);
        }
    }

    /// Puts the claim into this lane.
    pub(super) fn push(&mut self, key: Key, lane: Lane) {
        self.claims[key].in_lane[lane as usize] = true;
        self.lane(lane).waiting.push_back(key);
    }

    /// Puts the claims into this lane, with a command of their own.
    pub(super) fn go_apart(&mut self, lane: Lane, order: RowOrder, claims: Vec<Key>) {
        for claim in &claims {
            self.claims[*claim].in_lane[lane as usize] = true;
        }
        self.lane(lane).apart.push_back((order, claims));
    }

    pub(super) fn lane(&mut self, lane: Lane) -> &mut Queue {
        &mut self.lanes[lane as usize]
    }

    /// A claim for the first call. Its random id is made when it is sent.
    pub(super) fn new_claim(&mut self, room: Key) -> Key {
        let rules = self.callers[self.rooms[room].queue[0]].join.rules;
        self.add_claim(Claim {
            room,
            rules,
            ..Claim::default()
        })
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
        room.beside.retain(|other| *other != claim);
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
