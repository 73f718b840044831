//! What replies and the change stream say of a lock that others have.

use super::event::{Cause, Fault, FaultKind, Saw, Seen};
use super::lanes::Flight;
use super::limits::{FIRST_PAUSE, FIRST_PAUSES, PAUSE, SILENCE, SPREAD};
use super::order::{Mark, part_of};
use super::slab::Key;
use super::state::{Core, Room};
use super::time::{MS, Span, Time};
use crate::protocol::text::is_claim;
use crate::protocol::{Id, News, Value};

/// The mark of the provider that has this id, and the time slot that it needs; `None` if the id does not say who has acquired the lock
/// last. All other programs are one.
fn rival(lock_id: &str) -> Option<(Mark, Span)> {
    if !is_claim(lock_id) {
        return None;
    }
    match Id::parse(lock_id) {
        Some(id) if id.has_changed_hands() => None,
        Some(id) => Some((Some(id.mark()), Span::from(id.time_slot()) * MS)),
        None => Some((None, 0)),
    }
}

/// The pause of a lock about which nothing is heard: calls of many processes do not ask together.
fn silence(luck: f64) -> Span {
    part_of((SILENCE * 8 / 10, SILENCE * 12 / 10), luck)
}

impl<C: Clone> Core<C> {
    /// Another claim has the lock, says a reply.
    pub(super) fn missed(&mut self, now: Time, flight: &Flight, key: Key, seen: Seen) {
        let Some(room) = self.rooms.get(key) else { return };
        let is_own = self.is_own(room, &seen.lock_id);
        if !is_own && room.permits.is_of_lock() {
            self.answer_by_reply(now, flight, key, Some(&seen), |_| true);
        }
        let luck = self.draw();
        let Some(room) = self.rooms.get(key) else { return };
        // What was asked before the stream was open does not say what it has reported since.
        let is_reported = self.stream.reports_since(room.filter, room.asked);
        let waited = self.first(room).map_or(0, |call| now - call.begun);
        let pause = self.pause_after_miss(now, key, is_reported, waited, luck);
        let Some(room) = self.rooms.get_mut(key) else {
            return;
        };
        let is_same = room
            .seen
            .as_ref()
            .is_some_and(|(_, before)| before.lock_id == seen.lock_id);
        // Without a stream only replies tell who has acquired the lock.
        if !is_own
            && !is_reported
            && !is_same
            && let Some(rival) = rival(&seen.lock_id)
        {
            let waits = !room.queue.is_empty();
            room.order.acquired_by(now, rival, waits);
        }
        let left = seen.left;
        room.seen = Some((now, seen));
        room.misses += 1;
        if std::mem::take(&mut room.is_outdated) {
            (room.pause_until, room.looks) = (now, false);
            return;
        }
        let spread = part_of((0, SPREAD), luck);
        let free = left.map_or(pause, |left| {
            (left + 1).saturating_mul(MS) + room.time_slot(luck) + spread
        });
        room.pause_until = now + pause.min(free);
        room.looks = is_reported && !room.order.is_far(waited) && pause <= free;
        if room.misses >= 2 || room.order.released_lately(now) {
            self.listen(now, key);
        }
    }

    fn pause_after_miss(&mut self, now: Time, key: Key, is_reported: bool, waited: Span, luck: f64) -> Span {
        let first = self.draw_between(FIRST_PAUSE);
        let (least, most) = self.conf.retry;
        let Some(room) = self.rooms.get(key) else { return 0 };
        let misses = room.misses + 1;
        match () {
            () if is_reported && room.order.is_far(waited) => room.late_poll(now, luck),
            () if is_reported => silence(luck),
            () if self.stream.is_possible => first * Span::from(misses.min(FIRST_PAUSES)),
            () => part_of(
                (least, (least << misses.min(20)).clamp(least, most.max(least))),
                luck,
            ),
        }
    }

    /// What a look says of a lock.
    pub(super) fn looked_at(&mut self, now: Time, flight: &Flight, key: Key, saw: &Saw) {
        let margin = self.conf.margin;
        match saw {
            Saw::Permits(held) => {
                let seen = |(number, sight): &(u32, _)| Some((*number, Seen::of(sight, margin)?));
                let held: Vec<(u32, Seen)> = held.iter().filter_map(seen).collect();
                self.looked_at_permits(now, flight, key, &held);
            }
            Saw::Lock(sight) => match sight.as_ref().and_then(|sight| Seen::of(sight, margin)) {
                Some(seen) => self.missed(now, flight, key, seen),
                None => self.ask_now(now, key),
            },
        }
    }

    /// The lock may be free: the next command is a claim, at once.
    pub(super) fn ask_now(&mut self, now: Time, key: Key) {
        if let Some(room) = self.rooms.get_mut(key) {
            (room.pause_until, room.looks) = (now, false);
        }
    }

    /// A command for the lock has failed.
    pub(super) fn note_fault(&mut self, now: Time, key: Key, fault: &Fault) {
        let pause = self.draw_between(PAUSE);
        let Some(room) = self.rooms.get_mut(key) else {
            return;
        };
        room.fault = Some((now, fault.clone()));
        (room.pause_until, room.looks) = (room.pause_until.max(now + pause), false);
        if fault.kind == FaultKind::Lasting
            && let Some(first) = room.queue.front().copied()
        {
            self.fail(now, first, Cause::Refused);
        }
    }

    /// The change stream reports a lock. That changes when a call asks and, if the lock was acquired, which process goes first.
    pub(super) fn news(&mut self, now: Time, news: &News) {
        let (name, number) = super::permits::parts(&news.name);
        let Some(key) = self.names.get(name).copied() else {
            return;
        };
        let margin = self.conf.margin;
        let Some((sight, seen)) = news
            .sight
            .as_ref()
            .and_then(|sight| Some((sight, Seen::of(sight, margin)?)))
        else {
            return match number {
                Some(number) => self.permit_freed(now, key, number),
                None => self.freed(now, key),
            };
        };
        let rival = rival(&seen.lock_id);
        // The own ones come late, when the claim may be gone.
        if rival.is_some_and(|(mark, _)| mark == Some(self.conf.mark)) {
            return;
        }
        let rival = rival.filter(|_| sight.document.acquired_at != Value::Missing);
        match number {
            Some(number) => self.permit_taken(now, key, number, seen, rival),
            None => self.taken(now, key, seen, rival),
        }
    }

    fn taken(&mut self, now: Time, key: Key, seen: Seen, rival: Option<(Mark, Span)>) {
        let luck = self.draw();
        let waited = self
            .rooms
            .get(key)
            .and_then(|room| self.first(room))
            .map_or(0, |call| now - call.begun);
        let Some(room) = self.rooms.get_mut(key) else {
            return;
        };
        let claim = room.turn.and_then(|turn| self.claims.get_mut(turn));
        let is_held = claim.as_ref().is_some_and(|claim| claim.is_held());
        let waits = !room.queue.is_empty() && !is_held;
        if let Some(rival) = rival {
            room.order.acquired_by(now, rival, waits);
        }
        if is_held {
            return;
        }
        room.is_outdated = false;
        room.rest_after_news(now, seen, waited, luck);
        // A claim that was about to be sent would find the lock held.
        if let Some(claim) = claim
            && claim.is_asking()
        {
            claim.in_lane = None;
        }
        self.touch(now, key);
    }

    fn freed(&mut self, now: Time, key: Key) {
        let luck = self.draw();
        let begun = self
            .rooms
            .get(key)
            .and_then(|room| self.first(room))
            .map(|call| call.begun);
        let Some(room) = self.rooms.get_mut(key) else {
            return;
        };
        let claim = room.turn.and_then(|turn| self.claims.get_mut(turn));
        if claim.as_ref().is_some_and(|claim| !claim.is_asking()) {
            return;
        }
        room.seen = None;
        if claim.as_ref().is_some_and(|claim| claim.flights > 0) {
            room.is_outdated = true;
            return;
        }
        let Some(begun) = begun else { return };
        if !room.order.yields() && !room.order.is_far(now - begun) {
            room.pause_until = now + room.time_slot(luck);
            room.looks = false;
            if let Some(claim) = claim {
                claim.in_lane.take_if(|lane| *lane == super::event::Lane::Looks);
            }
            self.touch(now, key);
        }
    }
}

impl Room {
    /// Another process has it, says the change stream, which will report its release.
    pub(super) fn rest_after_news(&mut self, now: Time, seen: Seen, waited: Span, luck: f64) {
        let is_far = self.order.is_far(waited);
        let left = seen
            .left
            .map(|left| (left + 1).saturating_mul(MS) + part_of((0, SPREAD), luck));
        let pause = if is_far {
            self.late_poll(now, luck)
        } else {
            silence(luck)
        };
        let free = left.map_or(pause, |left| left + self.time_slot(luck));
        self.pause_until = now + pause.min(free);
        self.looks = !is_far && pause <= free;
        self.seen = Some((now, seen));
    }
}
