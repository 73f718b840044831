//! A semaphore: at most so many holders. Each permit is a lock of its own, and a claim names one of them. All of them have one room: a
//! call waits for any, and the turn ends with the claim and not with the hold.

use super::event::{Lane, Seen};
use super::lanes::Flight;
use super::limits::{COPY, FIRST_PAUSE};
use super::order::Mark;
use super::permit_list::Permit;
use super::slab::Key;
use super::state::{Claim, Core, Due};
use super::time::{Span, Time};
use crate::protocol::Name;

/// The character between the name of a semaphore and the number of a permit. A name that ends with it stands for all permits.
pub(super) const SEPARATOR: char = '\u{1f}';

/// Of a permit what stands for all permits of its semaphore, and its number; of any other lock its name.
pub(super) fn parts(name: &str) -> (&str, Option<u32>) {
    let end = name.rfind(SEPARATOR).map(|at| at + SEPARATOR.len_utf8());
    let found = end.and_then(|end| Some((&name[..end], name[end..].parse().ok()?)));
    found.map_or((name, None), |(all, number)| (all, Some(number)))
}

impl<C: Clone> Core<C> {
    /// The room of a document, and the number of the permit that it is.
    pub(super) fn room_of_document(&mut self, now: Time, name: &Name) -> (Key, Option<u32>) {
        match parts(name) {
            (all, Some(number)) => (self.room_of(now, all.into()), Some(number)),
            (_, None) => (self.room_of(now, name.clone()), None),
        }
    }

    /// The name of the document of a claim.
    pub(super) fn document_of(&self, claim: &Claim<C>) -> Option<Name> {
        let name = &self.rooms.get(claim.room)?.name;
        Some(match claim.permit {
            Some(number) => format!("{name}{number}").into(),
            None => name.clone(),
        })
    }

    /// Does what follows for a semaphore from what has happened.
    pub(super) fn touch_permits(&mut self, now: Time, key: Key) {
        self.give_up_surplus(now, key);
        let Some(room) = self.rooms.get(key) else { return };
        let Some(width) = self.first(room).map(|call| call.width) else {
            if room.claims.is_empty() {
                self.linger(now, key);
            }
            return;
        };
        let asks_at_once = self.asks_at_once(room);
        let claim = room.turn.and_then(|turn| Some((turn, self.claims.get(turn)?)));
        match claim {
            Some((turn, claim)) if claim.flights > 0 => self.send_copy(now, key, turn),
            Some((_, claim)) if claim.in_lane.is_some() => {}
            _ if room.pause_until > now && !asks_at_once => {
                let at = room.pause_until;
                return self.arm(Due::Room(key), at);
            }
            claim => {
                let has_permit = claim.is_some_and(|(_, claim)| claim.permit.is_some());
                let is_all_own = room.permits.owners(width).is_some();
                if let Some(room) = self.rooms.get_mut(key) {
                    room.order.ends_yielding(now);
                }
                if !has_permit && is_all_own {
                    return;
                }
                self.seek(now, key, width);
            }
        }
        self.seek_beside(now, key);
    }

    /// Claims that ask although fewer calls wait are given up.
    fn give_up_surplus(&mut self, now: Time, key: Key) {
        while let Some(room) = self.rooms.get(key)
            && room.queue.len() < room.beside.len() + usize::from(room.turn.is_some())
        {
            // Without a reply by then it may have the permit, and no call wants it.
            let may_end = |key: &Key| {
                let claim = self.claims.get(*key);
                claim.is_none_or(|claim| claim.flights == 0 || claim.sent + COPY <= now)
            };
            let beside = room.beside.iter().copied().rfind(&may_end);
            let turn = room.turn.filter(|turn| room.queue.is_empty() && may_end(turn));
            let Some(key_of_claim) = beside.or(turn) else {
                let asking = room.beside.iter().chain(&room.turn);
                let sent = asking.filter_map(|key| Some(self.claims.get(*key)?.sent)).min();
                if let Some(sent) = sent {
                    self.arm(Due::Room(key), sent + COPY);
                }
                return;
            };
            if let Some(claim) = self.claims.get_mut(key_of_claim) {
                claim.is_unclear |= claim.flights > 0;
            }
            self.stops_asking(key_of_claim);
            self.give_up(now, key_of_claim);
        }
    }

    /// The turn asks for a permit that may be free, or looks for one.
    fn seek(&mut self, now: Time, key: Key, width: u32) {
        if self.rooms.get(key).is_some_and(|room| room.turn.is_none()) {
            let Some(claim) = self.new_claim(now, key, false) else {
                return;
            };
            self.give_turn(key, claim);
        }
        let start = self.draw_permit(width);
        let Some(room) = self.rooms.get_mut(key) else {
            return;
        };
        let claim = room
            .turn
            .and_then(|turn| Some((turn, self.claims.get_mut(turn)?)));
        let Some((turn, claim)) = claim else { return };
        room.is_outdated = false;
        if claim.permit.is_none() {
            claim.permit = room.permits.choose(width, room.misses == 0, start);
        }
        if let Some(number) = claim.permit {
            room.permits.set(number, Permit::Own(turn));
            return self.push(turn, Lane::Claims);
        }
        claim.in_lane = Some(Lane::Looks);
        // Looks because of silence wait for others; this one is for a call that may have a permit now.
        match std::mem::take(&mut room.looks) {
            true => self.lanes[Lane::Looks].waiting.push_back(turn),
            false => self.lanes[Lane::Looks].apart.push_back(vec![turn]),
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number below the width"
    )]
    fn draw_permit(&mut self, width: u32) -> u32 {
        (f64::from(width) * self.draw()) as u32
    }

    /// While the turn asks for a permit, the calls behind it ask for others that may be free.
    fn seek_beside(&mut self, now: Time, key: Key) {
        while let Some(room) = self.rooms.get(key)
            && let Some(turn) = room.turn.and_then(|turn| self.claims.get(turn))
            && turn.permit.is_some()
            && let Some(call) = room.queue.get(room.beside.len() + 1)
            && let Some(width) = self.calls.get(*call).map(|call| call.width)
        {
            let start = self.draw_permit(width);
            let Some(room) = self.rooms.get(key) else { return };
            let Some(number) = room.permits.choose(width, room.misses == 0, start) else {
                return;
            };
            let Some(key_of_claim) = self.new_claim(now, key, false) else {
                return;
            };
            if let (Some(room), Some(claim)) = (self.rooms.get_mut(key), self.claims.get_mut(key_of_claim)) {
                claim.permit = Some(number);
                room.permits.set(number, Permit::Own(key_of_claim));
                room.beside.push(key_of_claim);
                self.push(key_of_claim, Lane::Claims);
            }
        }
    }

    /// The turn of a claim for a permit is over, whether it has got it or not.
    pub(super) fn stops_asking(&mut self, key: Key) {
        if let Some(claim) = self.claims.get(key)
            && let Some(room) = self.rooms.get_mut(claim.room)
            && !room.permits.is_of_lock()
        {
            room.turn.take_if(|turn| *turn == key);
            room.beside.retain(|other| *other != key);
        }
    }

    /// Another claim has the permit, or its document is blocked.
    pub(super) fn permit_missed(&mut self, now: Time, flight: &Flight, key: Key, seen: Option<Seen>) {
        let pause = self.draw_between(FIRST_PAUSE);
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let room_key = claim.room;
        let Some(room) = self.rooms.get_mut(room_key) else {
            return;
        };
        let has_turn = room.turn == Some(key);
        if let Some(number) = claim.permit {
            // It may have been released while the command was in flight.
            let is_taken = seen.is_some() && !room.is_outdated;
            room.permits.set_if_of(
                number,
                key,
                if is_taken { Permit::Taken } else { Permit::Unknown },
            );
        }
        claim.is_unclear |= claim.flights > 0;
        if has_turn && !claim.is_unclear {
            (claim.permit, claim.in_lane) = (None, None);
        } else {
            self.stops_asking(key);
            self.give_up(now, key);
        }
        if let Some(seen) = &seen {
            self.answer_by_reply(now, flight, room_key, Some(seen), |width| width == 1);
        }
        // Whether all are held, only a look can tell a single try.
        let has_tries = self.has_tries(room_key);
        let Some(room) = self.rooms.get_mut(room_key) else {
            return;
        };
        let is_reported = self.stream.reports_since(room.filter, room.asked);
        let is_known = room.permits.is_full() && (is_reported || room.permits.are_others_own());
        if let Some(seen) = seen.filter(|_| is_known && !has_tries) {
            return self.missed(now, flight, room_key, seen);
        }
        room.misses += 1;
        if has_turn {
            // Others were faster each time.
            let pause = if room.misses > 6 && !is_reported { pause } else { 0 };
            (room.pause_until, room.looks) = (now + pause, false);
        }
        if room.misses >= 2 {
            self.listen(now, room_key);
        }
    }

    /// What a look at all permits says.
    pub(super) fn looked_at_permits(&mut self, now: Time, flight: &Flight, key: Key, held: &[(u32, Seen)]) {
        self.answer_by_look(now, flight, key, held);
        let Some(room) = self.rooms.get_mut(key) else {
            return;
        };
        room.permits.set_taken(held.iter().map(|(number, _)| *number));
        let Some(room) = self.rooms.get(key) else { return };
        let of_others = held.iter().filter(|(_, seen)| !self.is_own(room, &seen.lock_id));
        let first = of_others.min_by_key(|(_, seen)| seen.left).or(held.first());
        match first {
            Some((_, seen)) if room.permits.is_full() && !room.is_outdated => {
                self.missed(now, flight, key, seen.clone());
            }
            _ => self.ask_now(now, key),
        }
    }

    /// A single try ends if all of its permits are held. One that is only on its way back to this process is not.
    fn answer_by_look(&mut self, now: Time, flight: &Flight, key: Key, held: &[(u32, Seen)]) {
        let Some(room) = self.rooms.get(key) else { return };
        let is_held = |seen: &Seen| {
            let own = room.claims.iter().filter_map(|key| self.claims.get(*key));
            own.filter(|claim| claim.has_id(&seen.lock_id))
                .all(Claim::is_held)
        };
        let numbers = held
            .iter()
            .filter(|(_, seen)| is_held(seen))
            .map(|(number, _)| *number);
        let numbers: Vec<u32> = numbers.collect();
        let is_full = |width: u32| numbers.iter().filter(|number| **number < width).count() >= width as usize;
        self.answer_by_reply(now, flight, key, None, is_full);
    }

    /// A claim of this process has left its permit, or has never had it.
    pub(super) fn free_permit(&mut self, key: Key, is_free: bool) {
        if let Some(claim) = self.claims.get(key)
            && let Some(number) = claim.permit
            && let Some(room) = self.rooms.get_mut(claim.room)
        {
            let permit = if is_free { Permit::Free } else { Permit::Unknown };
            room.permits.set_if_of(number, key, permit);
        }
    }

    /// The change stream reports that another process has a permit.
    pub(super) fn permit_taken(
        &mut self,
        now: Time,
        key: Key,
        number: u32,
        seen: Seen,
        rival: Option<(Mark, Span)>,
    ) {
        let luck = self.draw();
        let Some(room) = self.rooms.get_mut(key) else {
            return;
        };
        if let Some(rival) = rival {
            let waits = !room.queue.is_empty();
            room.order.acquired_by(now, rival, waits);
        }
        self.take_back_claim(now, key, number);
        let waited = self
            .rooms
            .get(key)
            .and_then(|room| self.first(room))
            .map_or(0, |call| now - call.begun);
        let Some(room) = self.rooms.get_mut(key) else {
            return;
        };
        room.permits.set_unless_own(number, Permit::Taken);
        if room.permits.is_full() {
            room.rest_after_news(now, seen, waited, luck);
        } else {
            room.pause_until = room.pause_until.min(now + room.time_slot(luck));
        }
        self.touch(now, key);
    }

    /// A claim that was about to be sent would find the permit held.
    fn take_back_claim(&mut self, now: Time, key: Key, number: u32) {
        let Some(room) = self.rooms.get_mut(key) else {
            return;
        };
        let Some(Permit::Own(owner)) = room.permits.get(number) else {
            return;
        };
        let Some(claim) = self.claims.get_mut(owner) else {
            return;
        };
        if !claim.is_asking() || claim.flights > 0 || claim.is_unclear || claim.resumes.is_some() {
            return;
        }
        room.permits.set(number, Permit::Taken);
        if room.turn == Some(owner) {
            (claim.permit, claim.in_lane) = (None, None);
        } else {
            self.stops_asking(owner);
            self.give_up(now, owner);
        }
    }

    /// The change stream reports that a permit was released.
    pub(super) fn permit_freed(&mut self, now: Time, key: Key, number: u32) {
        let luck = self.draw();
        let begun = self
            .rooms
            .get(key)
            .and_then(|room| self.first(room))
            .map(|call| call.begun);
        let Some(room) = self.rooms.get_mut(key) else {
            return;
        };
        room.permits.set_unless_own(number, Permit::Free);
        (room.seen, room.is_outdated) = (None, room.turn.is_some());
        let Some(begun) = begun else { return };
        if !room.order.yields() && !room.order.is_far(now - begun) {
            (room.pause_until, room.looks) = (now + room.time_slot(luck), false);
            if let Some(claim) = room.turn.and_then(|turn| self.claims.get_mut(turn)) {
                claim.in_lane.take_if(|lane| *lane == Lane::Looks);
            }
        }
        self.touch(now, key);
    }
}
