//! How holds and claims end: a claim is handed over to the next call, released, or gets another id, that of a mark or of a detached
//! lease.
//!
//! The command is repeated while the lease lasts; a claim that gets another id is renewed meanwhile. A release is sent once more when no
//! late claim can take effect any more.

use super::event::{EndResult, Ended, Ending, Fault, FaultKind, Lane, Notice};
use super::lanes::Flight;
use super::limits::{self, TURN, TURN_ALONE};
use super::slab::Key;
use super::state::{Claim, Closing, Core, Due, End, LeaseTimes, Phase, Postponed, Stage};
use super::time::{MS, Span, Time, span};
use crate::protocol::LATE_COMMAND;
use crate::timing::{RELEASE_REPLY_LIMIT, REQUEST_LIMIT};

impl<C: Clone> Core<C> {
    /// A holder ends its hold.
    pub(super) fn end_hold(&mut self, now: Time, key: Key, how: &Ending, awaited: Option<C>) {
        let caller = self.callers.get_mut(key);
        let Some(caller) = caller.filter(|caller| !caller.waits && caller.left == 0) else {
            return self.notify(awaited, Notice::Ended(Ok(Ended::Lost)));
        };
        match how {
            Ending::Done | Ending::Detach(..) => return self.rename(now, key, how, awaited),
            Ending::Untaken => {
                caller.is_untaken = true;
                for (part, handle) in caller.won.iter().zip(std::mem::take(&mut caller.resumed)) {
                    self.claims[*part].resumes = Some(handle);
                }
            }
            Ending::Release => {}
        }
        self.end_all(now, key, awaited);
    }

    /// All claims of a caller end, one by one.
    pub(super) fn end_all(&mut self, now: Time, key: Key, awaited: Option<C>) {
        let caller = &mut self.callers[key];
        (caller.waiter, caller.left) = (awaited, caller.won.len());
        if caller.left == 0 {
            self.callers.remove(key);
        }
        for place in 0.. {
            let claim = self.callers.get(key).and_then(|caller| caller.won.get(place));
            let Some(claim) = claim.copied() else { return };
            self.end(now, claim, Some(key));
        }
    }

    /// Ends a claim: it is handed over to the next caller, released or given up. `of` is its holder, if that waits for the end.
    pub(super) fn end(&mut self, now: Time, key: Key, of: Option<Key>) {
        let Some(claim) = self.claims.get(key) else {
            return self.part_ended(of, Ok(Ended::Lost));
        };
        let (room, postponed) = (claim.room, Some(Postponed::Ending));
        self.rooms[room].used = now;
        match claim.stage {
            Stage::Held if claim.commits.open > 0 => self.claims[key].commits.postponed = postponed,
            Stage::Held if self.may_hand_over(now, key) => {
                self.hand_over(now, key);
                self.part_ended(of, Ok(Ended::HandedOver));
            }
            Stage::Held => self.release(now, key, of),
            // It resumes a lease.
            Stage::Asking => {
                self.give_up(now, key);
                self.part_ended(of, Ok(Ended::Lost));
            }
            Stage::Ending(_) | Stage::Released => self.part_ended(of, Ok(Ended::Lost)),
        }
        self.touch(now, room);
    }

    fn hand_over(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        claim.token += 1;
        claim.turn_left = claim.turn_left.saturating_sub(1);
        if let Some(lease) = &mut claim.lease {
            lease.renewable_until = Time::NEVER;
            lease.renew_at = lease.renew_at.min(now + limits::CHECK_EVERY);
        }
        self.arm_claim(now, key);
        self.deliver(now, key);
    }

    /// Whether the claim can be handed over to the next call: that call has the same options, and the turn of this
    /// process is not over.
    fn may_hand_over(&self, now: Time, key: Key) -> bool {
        let claim = &self.claims[key];
        let lasts = |lease: LeaseTimes| lease.until - now > claim.rules.expiry * MS / 2;
        let has_time = claim.lease.is_some_and(lasts);
        let is_plain = claim.rules.min_hold == 0 && claim.rules.once.is_none() && !claim.commits.is_unclear;
        let may_pass =
            claim.token < claim.last && is_plain && has_time && self.has_turn(key) && self.fits(key);
        may_pass && self.phase != Phase::Closed && self.is_in_turn(now, claim)
    }

    /// Whether the turn of this process is not over. If another process wants one lock of a set, the short turn applies
    /// to the whole set.
    fn is_in_turn(&self, now: Time, claim: &Claim) -> bool {
        let room = &self.rooms[claim.room];
        let caller = claim.caller.and_then(|caller| self.callers.get(caller));
        let won = caller.iter().flat_map(|caller| caller.won.iter());
        let others = won.filter_map(|key| Some(&self.rooms[self.claims.get(*key)?.room]));
        let has_rivals = others.chain([room]).any(|room| room.order.has_rivals(now));
        let turn = if has_rivals { TURN } else { TURN_ALONE };
        let turn = turn.max((self.trip * limits::TURN_TRIPS).min(limits::TURN_MOST));
        let age = now - claim.turn_since;
        // A caller that has acquired its first locks has only now joined this queue.
        let has_some = self.first(room).is_some_and(|caller| !caller.won.is_empty());
        let goes_on = claim.turn_left > 0 || age < limits::SLOT || has_some;
        age < turn && (!has_rivals || goes_on)
    }

    /// One claim of a hold has ended. The last one ends the hold: it is lost if one of them was.
    pub(super) fn part_ended(&mut self, key: Option<Key>, ended: EndResult) {
        let Some(key) = key else { return };
        let Some(caller) = self.callers.get_mut(key) else {
            return;
        };
        let is_lost = |ended: &EndResult| matches!(ended, Ok(Ended::Lost));
        let is_worse = |before: &EndResult| is_lost(before) || before.is_err() && !is_lost(&ended);
        let ended = caller.ended.take().filter(is_worse).unwrap_or(ended);
        caller.left -= 1;
        if caller.left > 0 {
            caller.ended = Some(ended);
        } else if let Some(caller) = self.callers.remove(key) {
            self.notify(caller.waiter, Notice::Ended(ended));
        }
    }

    /// Sends a release. If the claim has its turn, the next call waits for the reply or the first failure.
    pub(super) fn release(&mut self, now: Time, key: Key, of: Option<Key>) {
        self.begin_release(now, key, of);
        self.push(key, Lane::Ends);
    }

    /// The claim is to be released, at a time that the caller of this function sets.
    pub(super) fn begin_release(&mut self, now: Time, key: Key, of: Option<Key>) {
        self.leave_commits(key, Ended::Lost);
        let claim = &mut self.claims[key];
        let was_held = claim.lease.take().is_some();
        let holder = claim.caller.filter(|_| was_held);
        let holder = holder.and_then(|holder| self.callers.get(holder));
        let holder = holder.filter(|holder| !holder.is_untaken);
        let end = End::Release(holder.map_or(0, |holder| holder.rules.min_hold));
        let stop = now + claim.rules.expiry * MS;
        let stage = self.closing(end, of, (now + span(RELEASE_REPLY_LIMIT), stop));
        self.claims[key].stage = stage;
    }

    /// A claim begins to end. The times are those of its answer and of the last repetition.
    fn closing(&self, end: End, of: Option<Key>, (answer_by, stop): (Time, Time)) -> Stage {
        Stage::Ending(Box::new(Closing {
            end,
            of,
            answer_by,
            tries: 0,
            stop,
            fault: None,
            after: self.commands,
            is_acquired_again: false,
        }))
    }

    /// The holder is done, and its work is marked or its lease is detached.
    pub(super) fn rename(&mut self, now: Time, hold: Key, how: &Ending, awaited: Option<C>) {
        let claims = self.claims_of(hold);
        let end = |(place, key): (usize, &Key)| self.other_id(now, place, *key, how);
        let ends: Option<Vec<_>> = claims.iter().enumerate().map(end).collect();
        let Some(ends) = ends else {
            self.notify(awaited, Notice::Ended(Ok(Ended::Lost)));
            return self.end_all(now, hold, None);
        };
        let caller = &mut self.callers[hold];
        (caller.waiter, caller.left) = (awaited, claims.len());
        for (key, (end, lease)) in claims.iter().zip(ends) {
            let stage = self.closing(end, Some(hold), (Time::NEVER, Time::NEVER));
            let claim = &mut self.claims[*key];
            (claim.stage, claim.lease) = (stage, Some(lease));
            self.arm_claim(now, *key);
        }
        self.go_together(Lane::Ends, claims);
    }

    /// What becomes of the claim in this place; `None` if it has no lease any more.
    fn other_id(&self, now: Time, place: usize, key: Key, how: &Ending) -> Option<(End, LeaseTimes)> {
        let claim = self.claims.get(key).filter(|claim| claim.is_held())?;
        let mut lease = claim.lease?;
        let end = match how {
            Ending::Done => End::Mark(claim.mark_until.as_deref()?.0),
            Ending::Detach(ids, ttl) => End::Detach(ids.get(place)?.clone(), *ttl),
            Ending::Release | Ending::Untaken => return None,
        };
        lease.renewable_until = now + (claim.rules.expiry * MS).max(span(REQUEST_LIMIT));
        (lease.until > now).then_some((end, lease))
    }

    /// The command that ends a claim has failed. It is repeated, unless the server would refuse it again, or the lease ends before. A
    /// lock whose release is refused is taken until its lease ends: its callers learn why, and have the release sent once more.
    pub(super) fn end_failed(&mut self, now: Time, key: Key, fault: &Fault) {
        let pause = self.draw_between(limits::PAUSE);
        let claim = &mut self.claims[key];
        let (room, is_of_lock) = (claim.room, claim.permit.is_none() && claim.resumes.is_none());
        let Some(closing) = claim.closing_mut() else {
            return;
        };
        let at = now + pause * Span::from(u32::from(closing.tries).clamp(1, limits::MULTIPLIED));
        let is_refused = fault.kind == FaultKind::Refused || at >= closing.stop;
        if is_refused && !(is_of_lock && closing.is_release() && closing.stop > now) {
            return self.end_in_vain(now, key);
        }
        let (of, stop) = (closing.of.take_if(|_| is_refused), closing.stop);
        claim.again_at = if is_refused { stop } else { at };
        // The next caller asks for itself, and finds out whether the server works.
        self.pass_turn(now, room, key);
        if is_refused {
            self.part_ended(of, Err(Some(fault.clone())));
            self.note_fault(now, room, fault);
        }
    }

    /// The command that ends a claim has failed for good, or has no reply for too long.
    pub(super) fn end_in_vain(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        let room = claim.room;
        let fault = claim.closing_mut().and_then(|closing| closing.fault.take());
        self.ended(now, now, key, Err(fault));
        self.touch(now, room);
    }

    /// The claim has left its lock, or the command was in vain.
    pub(super) fn ended(&mut self, now: Time, sent: Time, key: Key, ended: EndResult) {
        let has_turn = self.has_turn(key);
        let claim = &mut self.claims[key];
        let room = claim.room;
        let Some(closing) = claim.closing_mut() else {
            return;
        };
        let of = closing.of.take();
        let (is_release, is_free) = (closing.is_release(), matches!(ended, Ok(Ended::Released)));
        let in_turn = has_turn && (is_release || is_free);
        // A late claim has acquired the lock again, or may have.
        let is_over = is_release || !matches!(ended, Err(_) | Ok(Ended::Lost));
        let is_there = closing.is_acquired_again || !is_over;
        let how = ended.as_ref().map_or(Ended::Lost, |ended| *ended);
        if is_there {
            self.release(now, key, None);
        } else {
            self.free_permit(key, is_free);
            self.end_released(now, sent, key, how);
        }
        self.part_ended(of, ended);
        match () {
            () if is_release && is_there => {}
            () if in_turn => self.released(now, room, key),
            () => {
                self.pass_turn(now, room, key);
                let own = &mut self.rooms[room];
                if !own.order.yields {
                    // It kept the lock from the callers of this process, and a command in flight may have found it.
                    own.freed_after = self.commands;
                    self.ask_now(now, room);
                }
            }
        }
    }

    /// The claim is released by a command that was sent then. It is released once more if one of its claims may arrive late
    /// and acquire the lock again.
    pub(super) fn end_released(&mut self, now: Time, sent: Time, key: Key, how: Ended) {
        self.leave_commits(key, how);
        let claim = &mut self.claims[key];
        let was_unclear = claim.unclear_until.take_if(|until| *until <= sent).is_some();
        let until = claim.sent + limits::RELEASED_AGAIN;
        if was_unclear && claim.is_long() && until > sent {
            claim.unclear_until = Some(until);
        }
        (claim.stage, claim.lease) = (Stage::Released, None);
        self.claim_due(now, key);
    }

    pub(super) fn remove_claim(&mut self, now: Time, key: Key) {
        self.disarm(Due::Claim(key));
        self.free_permit(key, false);
        if let Some(claim) = self.claims.remove(key) {
            self.pass_turn(now, claim.room, key);
            let room = &mut self.rooms[claim.room];
            room.claims.remove(key);
            if claim.resumes.is_some() {
                room.given_back_after = self.commands;
            }
        }
    }

    /// No call waits for this claim any more. If it has no reply yet, it may have acquired the lock.
    pub(super) fn give_up(&mut self, now: Time, key: Key) {
        let claim = &self.claims[key];
        if claim.may_come() {
            let room = claim.room;
            self.pass_turn(now, room, key);
            self.release(now, key, None);
        } else {
            self.remove_claim(now, key);
        }
    }

    /// This process has released the lock: other processes may go first.
    pub(super) fn released(&mut self, now: Time, key: Key, claim: Key) {
        let luck = self.draw();
        let room = &mut self.rooms[key];
        (room.seen, room.looks) = (None, false);
        let is_enough = !room.permits.is_of_lock() && room.order.active() < room.permits.free();
        room.pause_until = if is_enough {
            now
        } else {
            room.order.released(now, luck)
        };
        self.pass_turn(now, key, claim);
    }

    /// Sends the command that ends a hold when it is due, also once more.
    pub(super) fn end_due(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        let is_due = !claim.waits_in(Lane::Ends) && claim.again_at <= now;
        let Some(closing) = claim.closing_mut() else {
            return;
        };
        let stop = closing.stop;
        // Who waits for a release learns that it has no reply.
        if closing.answer_by <= now {
            let (of, fault) = (closing.of.take(), closing.fault.clone());
            self.part_ended(of, Err(fault));
        }
        match () {
            () if !is_due => {}
            () if stop > now => self.push(key, Lane::Ends),
            () => self.end_in_vain(now, key),
        }
    }
}

impl Claim {
    /// Whether the server has refused its release, which waits for a call or for the end of the lease.
    pub(super) fn is_refused(&self) -> bool {
        let is_refused = |fault: &Fault| fault.kind == FaultKind::Refused;
        matches!(&self.stage, Stage::Ending(closing) if closing.is_release()
            && self.again_at == closing.stop
            && closing.fault.as_ref().is_some_and(is_refused))
    }

    /// Whether one of its commands may still acquire the lock.
    pub(super) fn may_come(&self) -> bool {
        self.flights > 0 || self.unclear_until.is_some()
    }

    /// Whether the claim is released once more after the longest time of a late command, which could take a lock for
    /// longer than a command stays in the server, or a detached lease from its handle.
    fn is_long(&self) -> bool {
        self.rules.expiry > LATE_COMMAND || self.resumes.is_some()
    }

    /// Whether its present end began after this command was sent.
    pub(super) fn is_ended_since(&self, flight: &Flight) -> bool {
        matches!(&self.stage, Stage::Ending(closing) if closing.after >= flight.number)
    }
}

impl Closing {
    pub(super) fn is_release(&self) -> bool {
        matches!(self.end, End::Release(_))
    }
}
