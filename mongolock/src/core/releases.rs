//! Releases: they are repeated while the lease lasts, and sent once more when a late claim can no longer take effect.

use super::event::{Ended, Fault, Lane, Outcome, Rules};
use super::limits;
use super::slab::Key;
use super::state::{Awaits, Claim, Closing, Core, Due, Stage};
use super::time::{MS, Span, Time};
use crate::protocol::{LockId, Name, Reply};

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
        let was_held = claim.lease_mut().is_some();
        claim.stage = Stage::Releasing(Closing {
            in_turn,
            answer_by: now + limits::RELEASE_REPLY,
            min_hold: if was_held { claim.rules.min_hold } else { 0 },
            ..Closing::new(awaited, now + claim.rules.expiry * MS)
        });
        self.push(key, Lane::Ends);
    }

    /// The command that ends a hold has failed. It is repeated, unless the server would refuse it again.
    pub(super) fn end_failed(&mut self, now: Time, key: Key, fault: &Fault) {
        let pause = self.draw_between(limits::PAUSE);
        let claim = &mut self.claims[key];
        let room = claim.room;
        let Some(closing) = claim.closing_mut() else {
            return;
        };
        let pause = pause * Span::from(closing.tries.clamp(1, limits::PAUSES));
        let is_repeated = !fault.kind.is_lasting() && now + pause < closing.stop;
        closing.in_turn &= !is_repeated;
        if is_repeated {
            self.end_at(key, now + pause);
            // The next call sends its own claim, which shows whether the server replies.
            self.pass_turn(now, room, key);
        } else {
            match claim.stage {
                Stage::Releasing(_) => self.release_refused(now, key, fault),
                _ => self.end_in_vain(now, key),
            }
        }
    }

    /// The command that ends a hold has failed finally, or has had no reply for too long.
    pub(super) fn end_in_vain(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        let Some(closing) = claim.closing_mut() else {
            return;
        };
        let ended = Err(closing.fault.take());
        match claim.stage {
            Stage::Releasing(_) => self.release_ended(now, now, key, ended),
            _ => self.finish(now, key, ended),
        }
    }

    /// The server refuses the release. If the lease is not over, the lock stays taken until its end: the release is
    /// sent once more then, and the calls of the lock get this fault as their reason.
    fn release_refused(&mut self, now: Time, key: Key, fault: &Fault) {
        let claim = &mut self.claims[key];
        let (room, is_of_lock) = (claim.room, claim.permit.is_none() && claim.resumes.is_none());
        let closing = claim
            .closing_mut()
            .filter(|closing| is_of_lock && closing.stop > now);
        let Some(closing) = closing else {
            return self.end_in_vain(now, key);
        };
        closing.in_turn = false;
        let (awaited, stop) = (closing.waiter.take(), closing.stop);
        self.notify_ended(now, awaited, Err(Some(fault.clone())));
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

    /// Applies the reply to a command that ends a hold.
    pub(super) fn end_replied(&mut self, now: Time, sent: Time, key: Key, reply: &Reply) {
        let claim = &self.claims[key];
        match claim.stage {
            Stage::Renaming(..) => self.finish(now, key, Ok(claim.renamed_by(reply))),
            Stage::Releasing(_) => {
                self.release_ended(now, sent, key, Ok(claim.released_by(now - sent, reply)));
            }
            _ => {}
        }
    }

    fn release_ended(&mut self, now: Time, sent: Time, key: Key, ended: Outcome) {
        let claim = &mut self.claims[key];
        let room = claim.room;
        let Stage::Releasing(closing) = &mut claim.stage else {
            return;
        };
        let (in_turn, is_acquired_again) = (closing.in_turn, closing.is_acquired_again);
        let awaited = closing.waiter.take();
        let is_free = ended == Ok(Ended::Released);
        self.notify_ended(now, awaited, ended);
        if is_acquired_again {
            return self.release(now, key, None, in_turn);
        }
        self.free_permit(key, is_free);
        self.end_released(now, sent, key);
        if in_turn {
            self.released(now, room, key);
        } else {
            self.was_in_the_way(now, room);
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

    /// The released claim had kept the lock from the calls of this process.
    fn was_in_the_way(&mut self, now: Time, key: Key) {
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
        self.answer_in_time(now, key);
        let claim = &mut self.claims[key];
        let (room, is_waiting) = (claim.room, claim.in_lane.is_some());
        let Some(closing) = claim.closing_mut().filter(|_| !is_waiting) else {
            return;
        };
        let (at, stop) = (closing.due, closing.stop);
        if at > now {
            self.arm(Due::Claim(key), at);
        } else if stop > now {
            self.push(key, Lane::Ends);
        } else {
            self.end_in_vain(now, key);
            self.touch(now, room);
        }
    }

    /// Notifies the caller that its release has no reply. A mark and a detachment end with their lease.
    fn answer_in_time(&mut self, now: Time, key: Key) {
        let Stage::Releasing(closing) = &mut self.claims[key].stage else {
            return;
        };
        let (by, fault) = (closing.answer_by, closing.fault.clone());
        if by > now && closing.waiter.is_some() {
            self.arm(Due::Claim(key), by);
        } else if let Some(awaited) = closing.waiter.take() {
            self.notify_ended(now, Some(awaited), Err(fault));
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
    /// Whether the server has refused its release.
    pub(super) fn is_refused(&self) -> bool {
        let is_lasting = |fault: &Fault| fault.kind.is_lasting();
        matches!(&self.stage, Stage::Releasing(closing)
            if closing.due == closing.stop && closing.fault.as_ref().is_some_and(is_lasting))
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

    fn released_by(&self, took: Span, reply: &Reply) -> Ended {
        match () {
            () if self.is_marked_by(reply) => Ended::Marked,
            () if self.is_released_by(took, reply) => Ended::Released,
            () => Ended::Lost,
        }
    }

    /// Whether the reply shows that the lock is released, or that the lease that the claim resumes has its id back.
    fn is_released_by(&self, took: Span, reply: &Reply) -> bool {
        let (Stage::Releasing(closing), Some(id)) = (&self.stage, &self.id) else {
            return false;
        };
        let Some(sight) = &reply.sight else {
            return reply.is_applied == Some(true) || closing.tries > 1;
        };
        if let Some((handle, _)) = &self.resumes {
            return closing.tries > 1 || sight.has(handle);
        }
        let is_ended = sight.has("") || sight.is_kept_by(id);
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
}

impl<C> Closing<C> {
    pub(super) fn new(waiter: Option<Awaits<C>>, stop: Time) -> Self {
        Self {
            waiter,
            answer_by: stop,
            tries: 0,
            due: Time::LONG_AGO,
            stop,
            fault: None,
            in_turn: false,
            is_acquired_again: false,
            min_hold: 0,
        }
    }
}
