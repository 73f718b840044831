//! What replies and the change stream report about a lock that others have.

use super::event::{Cause, Effect, Fault, FaultKind, Lane, Report, Saw, Seen};
use super::lanes::Flight;
use super::limits;
use super::order::{Mark, part_of};
use super::permit_list::PermitState;
use super::slab::Key;
use super::state::Core;
use super::time::{MS, Span, Time};
use crate::protocol::text::is_claim;
use crate::protocol::{Id, Ms, News, Value, permit_id};

/// The mark of the provider that has made this id, and the time slot that it needs; `None` if the id does not say which
/// claim acquired the lock last. All other programs count as one provider.
fn rival(lock_id: &str) -> Option<(Mark, Span)> {
    match Id::parse(lock_id) {
        _ if !is_claim(lock_id) => None,
        Some(id) if id.has_changed_hands() => None,
        Some(id) => Some((Some(id.mark()), Span::from(id.time_slot()) * MS)),
        None => Some((None, limits::FOREIGN_SLOT)),
    }
}

impl<C: Clone> Core<C> {
    /// A reply says that another claim has the lock.
    pub(super) fn missed(&mut self, now: Time, flight: &Flight, key: Key, seen: &Seen) {
        let room = &self.rooms[key];
        let is_own = self.own(room, &seen.lock_id).is_some();
        let back = self.comes_back(room, &seen.lock_id);
        if let Some(refused) = back.filter(|key| self.claims[*key].is_refused()) {
            self.push(refused, Lane::Ends);
        }
        let room = &mut self.rooms[key];
        let before = room.seen.replace(Box::new((now, seen.clone())));
        if back.is_none() && room.permits.is_of_lock() {
            self.answer_by_reply(now, flight, key, Some(seen), |_| true);
        }
        self.first_waits(key);
        // The result of a look is outdated if a claim was sent after it.
        if flight.lane == Lane::Looks && self.rooms[key].asked_by != flight.number {
            return;
        }
        let (luck, first) = (self.draw(), self.draw_between(limits::FIRST_PAUSE));
        let room = &mut self.rooms[key];
        // The reply to a command that was sent before the stream was open does not include what the stream has reported
        // since.
        let is_reported = self.stream.reports_since(room.filter, room.asked);
        let is_same = before.is_some_and(|before| before.1.lock_id == seen.lock_id);
        // Without a stream only replies show which process has acquired the lock.
        if let Some(rival) = rival(&seen.lock_id).filter(|_| !is_own && !is_reported && !is_same) {
            room.order.acquired_by(now, rival, !room.queue.is_empty());
            if !self.stream.is_possible && rival.0.is_some() && room.permits.is_of_lock() {
                // The lock may soon be free again: the pauses grow anew, from a longer one among more processes.
                room.misses = room.misses.min(room.order.active().max(2).ilog2());
            }
        }
        room.misses += 1;
        let (least, most) = self.conf.retry;
        let pause = match () {
            () if is_reported => None,
            () if self.stream.is_possible => Some(first * Span::from(room.misses.min(limits::MULTIPLIED))),
            () => {
                let longest = (least << room.misses.min(20)).clamp(least, most.max(least));
                Some(part_of((least, longest), luck))
            }
        };
        match () {
            () if flight.number <= room.freed_after => self.ask_now(now, key),
            // An event that came after the command was sent has set a pause, and the reply may be older.
            () if flight.number <= room.taken_after && room.pause_until > now => {}
            () => self.rest(now, key, seen.left, pause),
        }
        let room = &self.rooms[key];
        if let Some(first) = self.first(room) {
            let (cell, name) = (first.join.cell.clone(), room.name.clone());
            let report = Report::Waiting(cell, name, seen.left, room.pause_until - now);
            self.effects.push(Effect::Report(report));
        }
        self.listen(now, key);
    }

    /// Another claim has the lock, so the first caller has waited for another holder. The callers behind it wait in any
    /// case.
    fn first_waits(&mut self, room: Key) {
        if let Some(first) = self.rooms[room].queue.first() {
            self.callers[*first].has_waited = true;
        }
    }

    /// The time for which the first call of a room has waited.
    pub(super) fn waited(&self, now: Time, key: Key) -> Span {
        self.first(&self.rooms[key])
            .map_or(0, |caller| now - caller.begun)
    }

    /// Applies the result of a look.
    pub(super) fn looked_at(&mut self, now: Time, flight: &Flight, key: Key, saw: &Saw) {
        let Some(room) = self.rooms.get_mut(key) else {
            return;
        };
        room.replied = now;
        let margin = self.conf.margin;
        let seen = |(number, sight): &(u32, _)| Some((*number, Seen::of(Some(sight), margin)?));
        let held: Vec<(u32, Seen)> = saw.iter().filter_map(seen).collect();
        let is_sound = saw.iter().all(|(_, sight)| sight.document.is_sound());
        match &held[..] {
            held if !self.rooms[key].permits.is_of_lock() => self.looked_at_permits(now, flight, key, held),
            // Of a damaged document the reply to a claim says what is wrong with it.
            [(_, seen)] if is_sound => self.missed(now, flight, key, seen),
            _ => self.ask_now(now, key),
        }
        self.touch(now, key);
    }

    /// The lock may be free: the next command is a claim, at once.
    pub(super) fn ask_now(&mut self, now: Time, key: Key) {
        let room = &mut self.rooms[key];
        (room.pause_until, room.looks) = (now, false);
    }

    /// A command for the lock has failed.
    pub(super) fn note_fault(&mut self, now: Time, key: Key, fault: &Fault) {
        let begun = self.first(&self.rooms[key]).map_or(now, |caller| caller.begun);
        let failing_for = now - self.rooms[key].replied.max(begun);
        let longer = (failing_for / limits::PAUSE_PART).min(self.conf.retry.1);
        let luck = self.draw();
        let pause = part_of(limits::PAUSE, luck).max(part_of((longer / 2, longer), luck));
        let room = &mut self.rooms[key];
        room.fault = Some(Box::new((now, fault.clone())));
        (room.pause_until, room.looks) = (room.pause_until.max(now + pause), false);
        let first = room.queue.first().copied();
        if fault.kind == FaultKind::Unreachable {
            self.fail_calls(now, key, |_, caller| caller.join.is_try.then_some(Cause::Refused));
        } else if let Some(first) = first.filter(|_| fault.kind == FaultKind::Refused) {
            self.fail(now, first, key, Cause::Refused);
        }
    }

    /// The change stream reports a change of a lock. It changes when a call asks and, after an acquisition, the order
    /// between processes.
    pub(super) fn news(&mut self, now: Time, news: &News) {
        let Some(key) = self.names.get(permit_id::awaited(&news.name)).copied() else {
            return;
        };
        let number = permit_id::number(&news.name);
        let sight = news.sight.as_ref();
        let Some(seen) = Seen::of(sight, self.conf.margin) else {
            return self.freed(now, key, number);
        };
        let rival = rival(&seen.lock_id);
        // Reports of this process's own acquisitions arrive late, when the claim may have been removed.
        if rival.is_some_and(|(mark, _)| mark == Some(self.conf.mark)) {
            return;
        }
        let is_acquired = sight.is_some_and(|sight| sight.document.acquired_at != Value::Missing);
        let is_held = self.rooms[key]
            .turn
            .is_some_and(|turn| self.claims[turn].is_held());
        let room = &mut self.rooms[key];
        if let Some(rival) = rival.filter(|_| is_acquired) {
            room.order
                .acquired_by(now, rival, !room.queue.is_empty() && !is_held);
        }
        // Only a lock's turn can hold it.
        if !is_held {
            self.taken(now, key, number, seen);
        }
    }

    fn taken(&mut self, now: Time, key: Key, number: Option<u32>, seen: Seen) {
        let luck = self.draw();
        if let Some(number) = number {
            self.take_back_claim(now, key, number);
            self.rooms[key].permits.set_unless_own(number, PermitState::Taken);
        } else {
            self.first_waits(key);
            let room = &mut self.rooms[key];
            (room.freed_after, room.taken_after, room.in_looks) = (0, self.commands, false);
            // A claim that was about to be sent would find the lock held.
            if let Some(turn) = room.turn {
                self.claims[turn].in_lane[Lane::Claims as usize] = false;
            }
        }
        let room = &mut self.rooms[key];
        // What is known of the other permits may be older than the stream.
        let is_known = number.is_none() || self.stream.reports_since(room.filter, room.asked);
        if room.permits.is_full() && is_known {
            let left = seen.left;
            room.seen = Some(Box::new((now, seen)));
            self.rest(now, key, left, None);
        } else {
            room.pause_until = room.pause_until.min(now + room.time_slot(luck));
        }
        self.touch(now, key);
    }

    fn freed(&mut self, now: Time, key: Key, number: Option<u32>) {
        let room = &mut self.rooms[key];
        let turn = room.turn.map(|turn| &self.claims[turn]);
        if turn.is_some_and(|turn| !turn.is_asking()) {
            return;
        }
        (room.seen, room.freed_after) = (None, self.commands);
        if let Some(number) = number {
            room.permits.set_unless_own(number, PermitState::Free);
        }
        if !room.queue.is_empty() {
            self.ask_in_slot(now, key);
            self.touch(now, key);
        }
    }

    /// The lock is free: the first call asks in the time slot of this process, and does not look first.
    pub(super) fn ask_in_slot(&mut self, now: Time, key: Key) {
        let (luck, waited) = (self.draw(), self.waited(now, key));
        let room = &mut self.rooms[key];
        if room.order.yields || room.order.is_far(waited) {
            return;
        }
        room.pause_until = now + room.time_slot(luck);
        (room.looks, room.in_looks) = (false, false);
    }

    /// Another claim has it: the first call asks after this pause, or when the lease ends. Without a pause of its own the change stream
    /// reports the release: then the call looks after a long silence, or asks often if it is too far away for an event.
    pub(super) fn rest(&mut self, now: Time, key: Key, left: Option<Ms>, pause: Option<Span>) {
        let (luck, waited) = (self.draw(), self.waited(now, key));
        let about = |span: Span| part_of((span * 8 / 10, span * 12 / 10), luck);
        let room = &mut self.rooms[key];
        // A look would find the lock free too late: other processes are faster with a claim.
        let (pause, asks_seldom) = match pause {
            Some(pause) => (pause, self.names.len() > limits::SINGLE_LOCKS),
            // The pause counts from the last command, because events may arrive too late.
            None if room.order.is_far(waited) => {
                ((room.asked + about(limits::LATE_POLL) - now).max(0), false)
            }
            None => (about(limits::CHECK_EVERY), true),
        };
        let spread = room.time_slot(luck) + part_of((0, limits::SPREAD), luck);
        let free = left.map_or(pause, |left| (left + 1).saturating_mul(MS).saturating_add(spread));
        room.pause_until = now + pause.min(free);
        room.looks = asks_seldom && pause <= free;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::IdKind;

    /// The id of a claim says which process has acquired the lock, that of a resumption or a detachment does not.
    #[test]
    fn a_change_of_hands_counts_as_no_acquisition() {
        let mark = [7; 6];
        let of_kind = |kind| rival(&Id::new(mark, kind, 9).text("anna"));
        for kind in [IdKind::Single, IdKind::Set, IdKind::Permit] {
            assert_eq!(of_kind(kind), Some((Some(mark), 9 * MS)), "{kind:?}");
        }
        assert_eq!(of_kind(IdKind::Resumed), None);
        for is_of_set in [false, true] {
            assert_eq!(rival(&Id::of_handle("a handle", is_of_set).text("anna")), None);
        }
        assert_eq!(rival(""), None, "it is released");
        assert_eq!(
            rival("0b8e3f3a-6d0c-4a53-a3a4-5f0f6a5c3c11"),
            Some((None, limits::FOREIGN_SLOT))
        );
    }
}
