//! How claims leave their locks: they are released, or get another id, that of a mark or of a detached lease.
//!
//! The command is repeated while the lease lasts; a claim that gets another id is renewed meanwhile. A release is sent once more when no
//! late claim can take effect any more.

use super::event::{Ended, Ending, Fault, Hold, Lane, Outcome, Rules};
use super::limits;
use super::slab::Key;
use super::state::{Awaits, Claim, Closing, Core, Due, End, Lease, Stage};
use super::time::{MS, Span, Time};
use crate::protocol::{LockId, Name, Reply, Until};

/// The rules of a detached lease, for its releases.
const OF_DETACHED: Rules = Rules {
    expiry: limits::LONG + 1,
    renew_every: limits::LONG,
    max_hold: None,
    min_hold: 0,
    once: None,
};

impl<C: Clone> Core<C> {
    /// Sends a release. If it is `in_turn`, the next call waits for its reply or its first failure.
    pub(super) fn release(&mut self, now: Time, key: Key, awaited: Option<Awaits<C>>, in_turn: bool) {
        self.leave_commits(now, key, Ended::Lost);
        let claim = &mut self.claims[key];
        let (was_held, earlier) = (claim.lease_mut().is_some(), claim.ends);
        let min_hold = if was_held { claim.rules.min_hold } else { 0 };
        claim.stage = Stage::Ending(Closing {
            answer_by: now + limits::RELEASE_REPLY,
            in_turn,
            earlier,
            ..Closing::new(End::Release(min_hold), awaited, now + claim.rules.expiry * MS)
        });
        self.push(key, Lane::Ends);
    }

    /// The holder is done, and its work is marked or its lease is detached.
    pub(super) fn rename(&mut self, now: Time, hold: Hold, how: &Ending, awaited: Option<Awaits<C>>) {
        let claims = self.claims_of(hold);
        let end = |(place, key): (usize, &Key)| self.other_id(now, place, *key, how);
        let ends: Option<Vec<_>> = claims.iter().enumerate().map(end).collect();
        let Some(ends) = ends.filter(|ends| !ends.is_empty()) else {
            self.notify_ended(now, awaited, Ok(Ended::Lost));
            return self.end_hold(now, hold, Ending::Release, None);
        };
        let waiter = match hold {
            Hold::One(..) => awaited,
            Hold::Set(set) => {
                self.sets[set].ends(awaited);
                Some(Awaits::Set(set))
            }
        };
        for (key, (end, lease)) in claims.iter().zip(ends) {
            let claim = &mut self.claims[*key];
            claim.stage = Stage::Ending(Closing {
                lease: Some(lease),
                in_turn: true,
                ..Closing::new(end, waiter.clone(), Time::NEVER)
            });
            claim.in_lane = Some(Lane::Ends);
            self.arm_lease(*key);
        }
        match hold {
            Hold::One(claim, _) => self.lane(Lane::Ends).waiting.push_back(claim),
            Hold::Set(_) => self.go_together(Lane::Ends, claims),
        }
    }

    /// What becomes of the claim in this place; `None` if it has no lease any more.
    fn other_id(&self, now: Time, place: usize, key: Key, how: &Ending) -> Option<(End, Lease)> {
        let claim = self.claims.get(key)?;
        let Stage::Held(_, mut lease) = claim.stage else {
            return None;
        };
        let end = match how {
            Ending::Done => End::Mark(claim.mark_until?.0),
            Ending::Detach(ids, ttl) => End::Detach(ids.get(place)?.clone(), *ttl),
            Ending::Release | Ending::Untaken => return None,
        };
        lease.renewable_until = now + claim.rules.expiry.max(limits::KEPT_LEAST) * MS;
        (lease.until > now).then_some((end, lease))
    }

    /// The command that ends a claim has failed. It is repeated, unless the server would refuse it again.
    pub(super) fn end_failed(&mut self, now: Time, key: Key, fault: &Fault) {
        let pause = self.draw_between(limits::PAUSE);
        let claim = &mut self.claims[key];
        let room = claim.room;
        let Some(closing) = claim.closing_mut() else {
            return;
        };
        let pause = pause * Span::from(closing.tries.clamp(1, limits::PAUSES));
        if fault.kind.is_lasting() || now + pause >= closing.stop {
            return self.end_refused(now, key, fault);
        }
        closing.in_turn = false;
        self.end_at(key, now + pause);
        // The next call asks for itself, and finds out whether the server works.
        self.pass_turn(now, room, key);
    }

    /// The server refuses the command, or the lease ends before the next one. A lock whose release is refused is taken until its lease
    /// ends: its calls learn why, and have the release sent once more.
    fn end_refused(&mut self, now: Time, key: Key, fault: &Fault) {
        let claim = &mut self.claims[key];
        let (room, is_of_lock) = (claim.room, claim.permit.is_none() && claim.resumes.is_none());
        let closing = claim
            .closing_mut()
            .filter(|closing| is_of_lock && closing.is_release() && closing.stop > now);
        let Some(closing) = closing else {
            return self.end_in_vain(now, key);
        };
        closing.in_turn = false;
        let (waiter, stop) = (closing.waiter.take(), closing.stop);
        self.notify_ended(now, waiter, Err(Some(fault.clone())));
        self.end_at(key, stop);
        self.pass_turn(now, room, key);
        self.note_fault(now, room, fault);
    }

    /// A call has found the lock held by a claim of this process: a release that was refused is sent once more.
    pub(super) fn release_again(&mut self, room: Key, id: &str) {
        let mut claims = self.rooms[room].claims.iter();
        let refused = claims.find(|key| self.claims[**key].has_id(id) && self.claims[**key].is_refused());
        if let Some(key) = refused.copied() {
            self.push(key, Lane::Ends);
        }
    }

    /// The command that ends a claim has failed for good, or has no reply for too long.
    pub(super) fn end_in_vain(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        let room = claim.room;
        if let Some(closing) = claim.closing_mut() {
            let fault = closing.fault.take();
            self.ended(now, now, key, Err(fault));
            self.touch(now, room);
        }
    }

    /// What a command says that ends a claim.
    pub(super) fn end_replied(&mut self, now: Time, sent: Time, key: Key, reply: &Reply) {
        if let Stage::Ending(closing) = &self.claims[key].stage {
            let ended = self.claims[key].ended_by(closing, now - sent, reply);
            self.ended(now, sent, key, Ok(ended));
        }
    }

    /// The claim has left its lock, or the command was in vain.
    fn ended(&mut self, now: Time, sent: Time, key: Key, ended: Outcome) {
        let claim = &mut self.claims[key];
        let room = claim.room;
        let Stage::Ending(closing) = &mut claim.stage else {
            return;
        };
        let waiter = closing.waiter.take();
        let (is_release, is_free) = (closing.is_release(), ended == Ok(Ended::Released));
        let in_turn = closing.in_turn && (is_release || is_free);
        // A late claim has acquired the lock again, or may have.
        let is_over = is_release || !matches!(ended, Err(_) | Ok(Ended::Lost));
        let is_there = closing.is_acquired_again || !is_over;
        let how = ended.as_ref().map_or(Ended::Lost, |ended| *ended);
        self.notify_ended(now, waiter, ended);
        if is_there {
            self.release(now, key, None, in_turn);
        } else {
            self.leave_commits(now, key, how);
            self.free_permit(key, is_free);
            self.end_released(now, sent, key);
        }
        match () {
            () if is_release && is_there => {}
            () if in_turn => self.released(now, room, key),
            () => self.was_in_the_way(now, room, key),
        }
    }

    /// The claim is released. It is released once more if one of its commands may arrive late and acquire the lock
    /// again.
    pub(super) fn end_released(&mut self, now: Time, sent: Time, key: Key) {
        let claim = &mut self.claims[key];
        if claim.is_unclear && claim.dead_at <= sent && claim.is_long() {
            claim.dead_at = claim.sent + limits::RELEASED_AGAIN;
        }
        if claim.flights == 0 && !(claim.is_unclear && claim.dead_at > sent) {
            return self.remove_claim(key);
        }
        claim.stage = Stage::Released;
        // The time is known when the last claim in flight has ended.
        if claim.flights == 0 {
            let at = claim.dead_at.max(now);
            self.arm(Due::Claim(key), at);
        }
    }

    fn remove_claim(&mut self, key: Key) {
        self.disarm(Due::Claim(key));
        self.free_permit(key, false);
        self.stops_asking(key);
        if let Some(claim) = self.claims.remove(key) {
            self.rooms[claim.room].claims.retain(|other| *other != key);
        }
    }

    /// No call waits for this claim any more. If it has no reply yet, it may have acquired the lock.
    pub(super) fn give_up(&mut self, now: Time, key: Key) {
        self.stops_asking(key);
        let claim = &mut self.claims[key];
        claim.is_unclear |= claim.flights > 0;
        if claim.is_unclear {
            self.release(now, key, None, false);
        } else {
            self.remove_claim(key);
        }
    }

    /// This process has released the lock: other processes may go first.
    pub(super) fn released(&mut self, now: Time, key: Key, claim: Key) {
        let luck = self.draw();
        let room = &mut self.rooms[key];
        (room.seen, room.looks) = (None, false);
        let is_enough = !room.permits.is_of_lock() && room.order.is_enough(room.permits.free());
        room.pause_until = if is_enough {
            now
        } else {
            room.order.released(now, luck)
        };
        self.pass_turn(now, key, claim);
    }

    /// A claim is gone that kept the lock from the calls of this process.
    fn was_in_the_way(&mut self, now: Time, key: Key, claim: Key) {
        self.pass_turn(now, key, claim);
        let room = &mut self.rooms[key];
        if !room.order.yields {
            // A command in flight may have found that claim.
            room.is_outdated |= room.turn.is_some_and(|turn| self.claims[turn].flights > 0);
            self.ask_now(now, key);
        }
    }

    /// The command that ends a hold is sent at this time.
    pub(super) fn end_at(&mut self, key: Key, at: Time) {
        let claim = &mut self.claims[key];
        claim.in_lane = None;
        if let Some(closing) = claim.closing_mut() {
            closing.due = at;
        }
        self.arm(Due::Claim(key), at);
    }

    /// Sends the command that ends a hold when it is due, also once more.
    pub(super) fn end_due(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        let is_waiting = claim.in_lane.is_some();
        let Some(closing) = claim.closing_mut() else {
            return;
        };
        let (at, stop, by) = (closing.due, closing.stop, closing.answer_by);
        // Who waits for a release learns that it has no reply.
        if by <= now {
            let (waiter, fault) = (closing.waiter.take(), closing.fault.clone());
            self.notify_ended(now, waiter, Err(fault));
        } else if closing.waiter.is_some() && closing.is_release() {
            self.arm(Due::Claim(key), by);
        }
        if is_waiting {
            return;
        }
        if at > now {
            self.arm(Due::Claim(key), at);
        } else if stop > now {
            self.push(key, Lane::Ends);
        } else {
            self.end_in_vain(now, key);
        }
    }

    pub(super) fn released_due(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        let at = claim.dead_at;
        if claim.flights == 0 && at <= now {
            // An earlier release may still get its reply. Only a release that was sent since then ends the claim.
            self.release(now, key, None, false);
        } else if claim.flights == 0 {
            self.arm(Due::Claim(key), at);
        }
    }

    /// Releases detached leases for which no caller has a handle.
    pub(super) fn discard(&mut self, now: Time, leases: Vec<(Name, LockId)>) {
        for (name, id) in leases {
            let (room, permit) = self.room_of_document(&name);
            let claim = self.add_claim(Claim {
                id: Some(id),
                permit,
                // A late command may write the lease once more.
                is_unclear: true,
                dead_at: now + (limits::LIMIT + limits::NO_REPLY),
                ..Claim::new(now, room, OF_DETACHED)
            });
            self.release(now, claim, None, false);
        }
    }
}

impl<C> Claim<C> {
    /// Whether the server has refused its release, which waits for a call or for the end of the lease.
    pub(super) fn is_refused(&self) -> bool {
        let is_lasting = |fault: &Fault| fault.kind.is_lasting();
        matches!(&self.stage, Stage::Ending(closing) if closing.is_release()
            && closing.due == closing.stop
            && closing.fault.as_ref().is_some_and(is_lasting))
    }

    /// Whether the claim is released once more after the longest time of a late command, which could take a lock for
    /// long, or a detached lease from its handle.
    fn is_long(&self) -> bool {
        self.rules.expiry > limits::LONG || self.resumes.is_some()
    }

    /// Whether the document has the mark of the claim, which a transaction has made.
    pub(super) fn is_marked_by(&self, reply: &Reply) -> bool {
        matches!((&self.id, &reply.sight), (Some(id), Some(sight)) if sight.is_marked_by(id))
    }

    fn ended_by(&self, closing: &Closing<C>, took: Span, reply: &Reply) -> Ended {
        match &closing.end {
            End::Release(_) if self.is_marked_by(reply) => Ended::Marked,
            End::Release(_) if self.is_released_by(closing, took, reply) => Ended::Released,
            End::Release(_) => Ended::Lost,
            end => self.renamed_by(end, closing.tries, reply),
        }
    }

    /// Whether the lock was released until this reply, or the lease given back that the claim resumes.
    fn is_released_by(&self, closing: &Closing<C>, took: Span, reply: &Reply) -> bool {
        let Some(sight) = &reply.sight else {
            return reply.is_applied == Some(true) || closing.tries > 1;
        };
        if let Some((handle, _)) = &self.resumes {
            return closing.tries > 1 || sight.has(handle);
        }
        let is_ended = sight.has("") || self.id.as_ref().is_some_and(|id| sight.is_kept_by(id));
        let token = sight.document.token.long();
        // An operator may have released the lock earlier, with the same token.
        let is_recent = || {
            sight
                .left()
                .is_some_and(|left| left.saturating_mul(MS) + took + MS >= 0)
        };
        let is_own = reply.is_applied.unwrap_or_else(is_recent);
        // If an earlier command has released the lock, a repetition finds another document. The last token of the claim
        // shows a release by an operator. After a late claim the document has other tokens.
        match closing.tries {
            _ if self.last == 0 => reply.is_applied == Some(true),
            0 | 1 => is_ended && token == Some(self.token) && is_own,
            _ => !is_ended || token != Some(self.last) || self.last == self.token,
        }
    }

    /// What the command, or an earlier one, has done to the document.
    fn renamed_by(&self, end: &End, tries: u8, reply: &Reply) -> Ended {
        let Some(sight) = &reply.sight else {
            // Of several rows the reply may tell only that all of them have changed their documents.
            return match end {
                _ if reply.is_applied != Some(true) => Ended::Lost,
                End::Detach(..) => Ended::Detached,
                _ => Ended::Marked,
            };
        };
        // An operator leaves the same document, also before the period is over.
        let is_released = sight.has("") && sight.document.token.long() == Some(self.last);
        let by_mark = is_released && (reply.is_applied != Some(false) || tries > 1);
        match end {
            End::Detach(id, _) if sight.has(id) => Ended::Detached,
            End::Mark(_) if self.is_marked_by(reply) => Ended::Marked,
            // The period of the mark was over.
            End::Mark(Until::At(over)) if by_mark && sight.document.expires_at.date() >= Some(*over) => {
                Ended::Released
            }
            _ => Ended::Lost,
        }
    }
}

impl<C> Closing<C> {
    fn new(end: End, waiter: Option<Awaits<C>>, stop: Time) -> Self {
        Self {
            end,
            lease: None,
            waiter,
            answer_by: stop,
            tries: 0,
            due: Time::LONG_AGO,
            stop,
            fault: None,
            earlier: 0,
            in_turn: false,
            is_acquired_again: false,
        }
    }

    /// Whether what has ended now is a command of an earlier end, or as good as one.
    pub(super) fn was_earlier(&mut self) -> bool {
        let was_earlier = self.earlier > 0;
        self.earlier -= u8::from(was_earlier);
        was_earlier
    }

    pub(super) fn is_release(&self) -> bool {
        matches!(self.end, End::Release(_))
    }
}
