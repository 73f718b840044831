//! A semaphore: each permit is a lock of its own, and a claim names one permit. All permits have one room: a call waits
//! for any of them, and the turn ends when the claim has its permit, not when the hold ends.

use super::event::{Effect, Report, Seen};
use super::lanes::Flight;
use super::limits::FIRST_PAUSE;
use super::permit_list::PermitState;
use super::slab::Key;
use super::state::Core;
use super::time::Time;
use crate::protocol::{Name, permit_id};

impl<C: Clone> Core<C> {
    /// The room of a document, and the number of the permit that it is.
    pub(super) fn room_of_document(&mut self, name: &Name) -> (Key, Option<u32>) {
        let room = self.room_of(permit_id::awaited(name).into());
        (room, permit_id::number(name))
    }

    /// Another claim has the permit, or its document is blocked.
    pub(super) fn permit_missed(&mut self, now: Time, flight: &Flight, key: Key, seen: Option<Seen>) {
        let pause = self.draw_between(FIRST_PAUSE);
        let claim = &mut self.claims[key];
        let room_key = claim.room;
        let room = &mut self.rooms[room_key];
        let has_turn = room.turn == Some(key);
        if let Some(number) = claim.permit {
            // The permit may have been released while the command was in flight.
            let is_taken = seen.is_some() && flight.number > room.freed_after;
            let permit = if is_taken {
                PermitState::Taken
            } else {
                PermitState::Unknown
            };
            room.permits.set_if_of(number, key, permit);
        }
        self.give_up(now, key);
        if let Some(seen) = &seen {
            self.rooms[room_key].seen = Some(Box::new((now, seen.clone())));
            self.answer_by_reply(now, flight, room_key, Some(seen), |width| width == 1);
        }
        // A single attempt needs a look, which shows whether all permits are held.
        let is_try = |caller: &Key| self.callers[*caller].join.is_try;
        let has_tries = self.asking > 0 && self.rooms[room_key].queue.iter().any(is_try);
        let room = &mut self.rooms[room_key];
        let is_reported = self.stream.reports_since(room.filter, room.asked);
        let is_known = room.permits.is_full() && (is_reported || room.permits.are_others_own());
        if let Some(seen) = seen.filter(|_| is_known && !has_tries) {
            return self.missed(now, flight, room_key, &seen);
        }
        room.misses += 1;
        if has_turn {
            // Other processes were faster each time.
            let pause = if room.misses > 6 && !is_reported { pause } else { 0 };
            (room.pause_until, room.looks) = (now + pause, false);
        }
        self.listen(now, room_key);
    }

    /// Applies the result of a look at all permits.
    pub(super) fn looked_at_permits(&mut self, now: Time, flight: &Flight, key: Key, held: &[(u32, Seen)]) {
        if let Some((_, seen)) = held.first() {
            self.rooms[key].seen = Some(Box::new((now, seen.clone())));
        }
        // A single attempt ends if all of its permits are held. One that this process is releasing does not count as held.
        let comes_back = |seen: &Seen| self.comes_back(&self.rooms[key], &seen.lock_id).is_some();
        let numbers = held.iter().filter(|(_, seen)| !comes_back(seen));
        let numbers: Vec<u32> = numbers.map(|(number, _)| *number).collect();
        let is_full = |width: u32| numbers.iter().filter(|number| **number < width).count() >= width as usize;
        self.answer_by_reply(now, flight, key, None, is_full);
        let width = self
            .first(&self.rooms[key])
            .map_or(u32::MAX, |caller| caller.width);
        if let Some((seen, _)) = held.iter().find(|(number, _)| *number >= width) {
            let name = self.rooms[key].name.clone();
            let report = Report::PermitsDiffer(name, width, *seen);
            self.effects.push(Effect::Report(report));
        }
        let room = &mut self.rooms[key];
        room.permits.set_taken(held.iter().map(|(number, _)| *number));
        let room = &self.rooms[key];
        let of_others = held
            .iter()
            .filter(|(_, seen)| self.own(room, &seen.lock_id).is_none());
        match of_others.min_by_key(|(_, seen)| seen.left).or(held.first()) {
            Some((_, seen)) if room.permits.is_full() && flight.number > room.freed_after => {
                self.missed(now, flight, key, seen);
            }
            _ => self.ask_now(now, key),
        }
    }

    /// A claim of this process has released its permit, or has never had it.
    pub(super) fn free_permit(&mut self, key: Key, is_free: bool) {
        let claim = &self.claims[key];
        if let Some(number) = claim.permit {
            let permit = if is_free {
                PermitState::Free
            } else {
                PermitState::Unknown
            };
            let room = &mut self.rooms[claim.room];
            room.permits.set_if_of(number, key, permit);
            if is_free {
                // A look in flight may have seen the permit as held.
                room.freed_after = self.commands;
            }
        }
    }

    /// A claim that was about to be sent would find the permit held.
    pub(super) fn take_back_claim(&mut self, now: Time, key: Key, number: u32) {
        let room = &mut self.rooms[key];
        let Some(PermitState::Own(owner)) = room.permits.get(number) else {
            return;
        };
        let claim = &mut self.claims[owner];
        if !claim.is_asking() || claim.may_come() || claim.resumes.is_some() {
            return;
        }
        room.permits.set(number, PermitState::Taken);
        self.give_up(now, owner);
    }
}
