//! How claims leave their locks: they are released, or get another id, that of a mark or of a detached lease.
//!
//! The command is repeated while the lease lasts; a claim that gets another id is renewed meanwhile. A release is sent once more when no
//! late claim can take effect any more.

use super::event::{EndResult, Ended, Ending, Fault, FaultKind, Lane, Notice, Rules};
use super::lanes::Flight;
use super::limits;
use super::slab::Key;
use super::state::{Claim, Closing, Core, Due, End, LeaseTimes, Stage};
use super::time::{MS, Span, Time};
use crate::protocol::{LockId, Ms, Name, Reply, Sight, Until};

impl<C: Clone> Core<C> {
    /// Sends a release. If the claim has its turn, the next call waits for the reply or the first failure.
    pub(super) fn release(&mut self, now: Time, key: Key, of: Option<Key>) {
        self.leave_commits(key, Ended::Lost);
        let claim = &mut self.claims[key];
        let was_held = claim.lease.take().is_some();
        let holder = claim.caller.filter(|_| was_held);
        let holder = holder.and_then(|holder| self.callers.get(holder));
        let end = End::Release(holder.map_or(0, |holder| holder.join.rules.min_hold));
        let stop = now + claim.rules.expiry * MS;
        let stage = self.closing(end, of, (now + limits::RELEASE_REPLY, stop));
        self.claims[key].stage = stage;
        self.push(key, Lane::Ends);
    }

    /// A claim begins to end. The times are those of its answer and of the last repetition.
    fn closing(&self, end: End, of: Option<Key>, (answer_by, stop): (Time, Time)) -> Stage {
        Stage::Ending(Closing {
            end,
            of,
            answer_by,
            tries: 0,
            stop,
            fault: None,
            after: self.commands,
            is_acquired_again: false,
        })
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
            Ending::Done => End::Mark(claim.mark_until?.0),
            Ending::Detach(ids, ttl) => End::Detach(ids.get(place)?.clone(), *ttl),
            Ending::Release | Ending::Untaken => return None,
        };
        lease.renewable_until = now + claim.rules.expiry.max(limits::KEPT_LEAST) * MS;
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
        let at = now + pause * Span::from(closing.tries.clamp(1, limits::PAUSES));
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

    /// What a command says that ends a claim.
    pub(super) fn end_replied(&mut self, now: Time, sent: Time, key: Key, reply: &Reply) {
        if let Stage::Ending(closing) = &self.claims[key].stage {
            let ended = self.claims[key].ended_by(closing, now - sent, reply);
            self.ended(now, sent, key, Ok(ended));
        }
    }

    /// The claim has left its lock, or the command was in vain.
    fn ended(&mut self, now: Time, sent: Time, key: Key, ended: EndResult) {
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
                    own.freed = self.commands;
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
            room.claims.retain(|other| *other != key);
            if claim.resumes.is_some() {
                room.given_back = self.commands;
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
        let is_enough = !room.permits.is_of_lock() && room.order.active < room.permits.free();
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

    /// Releases detached leases for which no caller has a handle.
    pub(super) fn discard(&mut self, now: Time, leases: Vec<(Name, LockId)>) {
        for (name, id) in leases {
            let (room, permit) = self.room_of_document(&name);
            let claim = self.add_claim(Claim {
                id: Some(id),
                room,
                permit,
                // A detached lease may last for long.
                rules: Rules {
                    expiry: limits::LONG + 1,
                    ..Rules::default()
                },
                // A late command may write the lease once more.
                unclear_until: Some(now + (limits::LIMIT + limits::NO_REPLY)),
                ..Claim::default()
            });
            self.release(now, claim, None);
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
    /// long, or a detached lease from its handle.
    fn is_long(&self) -> bool {
        self.rules.expiry > limits::LONG || self.resumes.is_some()
    }

    /// Whether the document has the mark of the claim, which a transaction has made.
    pub(super) fn is_marked_by(&self, reply: &Reply) -> bool {
        matches!((&self.id, &reply.sight), (Some(id), Some(sight)) if sight.is_marked_by(id))
    }

    /// Whether its present end began after this command was sent.
    pub(super) fn is_ended_since(&self, flight: &Flight) -> bool {
        matches!(&self.stage, Stage::Ending(closing) if closing.after >= flight.number)
    }

    /// What the command, or an earlier one, has done to the document.
    fn ended_by(&self, closing: &Closing, took: Span, reply: &Reply) -> Ended {
        let Some(sight) = &reply.sight else {
            // Of several rows the reply may tell only that all of them have changed their documents.
            let is_done = reply.is_applied == Some(true) || closing.is_release() && closing.tries > 1;
            return match closing.end {
                _ if !is_done => Ended::Lost,
                End::Release(_) => Ended::Released,
                End::Mark(_) => Ended::Marked,
                End::Detach(..) => Ended::Detached,
            };
        };
        match &closing.end {
            End::Detach(id, _) if sight.has(id) => Ended::Detached,
            End::Release(_) | End::Mark(_) if self.is_marked_by(reply) => Ended::Marked,
            End::Release(_) if self.is_released_by(closing, took, reply, sight) => Ended::Released,
            End::Mark(Until::At(over)) if self.is_over_by(closing, reply, sight, *over) => Ended::Released,
            _ => Ended::Lost,
        }
    }

    /// Whether the lock was released until this reply, or the lease given back that the claim resumes.
    fn is_released_by(&self, closing: &Closing, took: Span, reply: &Reply, sight: &Sight) -> bool {
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

    /// Whether the period of its mark was over, so that the lock was released.
    fn is_over_by(&self, closing: &Closing, reply: &Reply, sight: &Sight, over: Ms) -> bool {
        let document = &sight.document;
        // An operator leaves the same document, also before the period is over.
        let may_be_by_mark = reply.is_applied != Some(false) || closing.tries > 1;
        let is_released = sight.has("") && document.token.long() == Some(self.last);
        is_released && may_be_by_mark && document.expires_at.date() >= Some(over)
    }
}

impl Closing {
    pub(super) fn is_release(&self) -> bool {
        matches!(self.end, End::Release(_))
    }
}
