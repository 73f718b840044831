//! Releases: they are repeated while the lease lasts, and once more when no late claim can take effect any more.

use super::event::{Ended, Fault, FaultKind, Lane, Rules};
use super::limits;
use super::slab::Key;
use super::state::{Claim, Closing, Core, Due, Stage};
use super::time::{MS, Time};
use crate::protocol::text::kept_of;
use crate::protocol::{Id, LockId, Name, Reply};

/// The rules of a detached lease, for its releases.
const OF_DETACHED: Rules = Rules {
    expiry: limits::LONG + 1,
    renew_every: limits::LONG,
    max_hold: None,
    min_hold: 0,
    once: None,
};

impl<C: Clone> Core<C> {
    /// Sends a release. In its turn the next call waits for the reply or for the first failure.
    pub(super) fn release(&mut self, now: Time, key: Key, awaited: Option<C>, in_turn: bool) {
        self.leave_commits(key, Ended::Lost);
        let claim = &mut self.claims[key];
        let was_held = claim.lease_mut().is_some();
        let closing = Closing {
            in_turn,
            min_hold: if was_held { claim.rules.min_hold } else { 0 },
            ..Closing::new(now, awaited, now + claim.rules.expiry * MS)
        };
        let due = closing.due;
        claim.stage = Stage::Releasing(closing);
        self.push(key, Lane::Ends);
        self.arm(Due::Claim(key), due);
    }

    /// The command that ends a hold has failed. It is repeated, unless the server would refuse it again.
    pub(super) fn end_failed(&mut self, now: Time, key: Key, fault: &Fault) {
        let pause = self.draw_between(limits::PAUSE);
        let claim = &mut self.claims[key];
        let room = claim.room;
        let is_renaming = matches!(claim.stage, Stage::Renaming(..));
        let Some(closing) = claim.closing_mut() else {
            return;
        };
        let is_repeated = fault.kind != FaultKind::Lasting && now + pause < closing.stop;
        // What was never applied is no earlier release.
        closing.tries = closing
            .tries
            .saturating_sub(u8::from(fault.kind == FaultKind::NotApplied));
        (closing.due, closing.fault) = (now + pause, Some(fault.clone()));
        closing.in_turn &= !is_repeated;
        self.report(key, Lane::Ends, fault);
        if is_repeated {
            self.arm(Due::Claim(key), now + pause);
            // The next call asks for itself, and finds out whether the server works.
            self.pass_turn(now, room, key);
        } else if is_renaming {
            self.renaming_failed(now, key);
        } else {
            self.release_ended(now, now, key, Err(Some(fault.clone())));
        }
    }

    /// What a command says that ends a hold.
    pub(super) fn end_replied(&mut self, now: Time, sent: Time, key: Key, reply: &Reply) {
        let claim = &self.claims[key];
        match claim.stage {
            Stage::Renaming(..) => self.finish(now, key, claim.renamed_by(reply)),
            Stage::Releasing(..) if claim.is_released_by(reply) => {
                self.release_ended(now, sent, key, Ok(Ended::Released));
            }
            Stage::Releasing(..) => self.release_ended(now, sent, key, Ok(Ended::Lost)),
            _ => {}
        }
    }

    fn release_ended(&mut self, now: Time, sent: Time, key: Key, ended: Result<Ended, Option<Fault>>) {
        let claim = &mut self.claims[key];
        let room = claim.room;
        let Stage::Releasing(closing) = &mut claim.stage else {
            return;
        };
        let (in_turn, is_acquired_again) = (closing.in_turn, closing.is_acquired_again);
        let awaited = closing.waiter.take();
        let is_free = ended == Ok(Ended::Released);
        self.notify_ended(awaited, ended);
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

    /// The claim has left the lock. It is released once more if a late one of its commands may have acquired it again since the release
    /// was sent, or may do so yet.
    pub(super) fn end_released(&mut self, now: Time, sent: Time, key: Key) {
        let claim = &mut self.claims[key];
        if claim.is_unclear && claim.dead_at <= sent && claim.is_long() {
            claim.dead_at = claim.sent + limits::RELEASED_AGAIN;
        }
        if claim.flights == 0 && !(claim.is_unclear && claim.dead_at > sent) {
            return self.remove_claim(key);
        }
        claim.stage = Stage::Released;
        // The end of its last claim says when.
        if claim.flights == 0 {
            let at = claim.dead_at.max(now);
            self.arm(Due::Claim(key), at);
        }
    }

    fn remove_claim(&mut self, key: Key) {
        self.disarm(Due::Claim(key));
        self.free_permit(key, false);
        if let Some(claim) = self.claims.remove(key) {
            let room = &mut self.rooms[claim.room];
            room.claims.retain(|other| *other != key);
            room.beside.retain(|other| *other != key);
            room.turn.take_if(|turn| *turn == key);
        }
    }

    /// No call waits for this claim any longer.
    pub(super) fn give_up(&mut self, now: Time, key: Key) {
        if self.claims[key].is_unclear {
            self.release(now, key, None, false);
        } else {
            self.remove_claim(key);
        }
    }

    /// The lock was released here: other processes may go first.
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

    /// A claim is released that kept the lock from the calls of this process.
    fn was_in_the_way(&mut self, now: Time, key: Key) {
        let room = &mut self.rooms[key];
        let is_of_other = |lock_id: &str| Id::parse(lock_id).is_none_or(|id| id.mark() != self.conf.mark);
        let was_seen = room
            .seen
            .as_ref()
            .is_some_and(|(_, seen)| !is_of_other(&seen.lock_id));
        if !room.order.yields() && (was_seen || !room.permits.is_of_lock()) {
            // What is on its way may have found it there.
            room.is_outdated |= room.turn.is_some_and(|turn| self.claims[turn].flights > 0);
            self.ask_now(now, key);
        }
    }

    pub(super) fn release_due(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        let (room, is_waiting) = (claim.room, claim.in_lane.is_some());
        let Some(closing) = claim.closing_mut() else {
            return;
        };
        if closing.due <= now && closing.stop <= now {
            let fault = closing.fault.take();
            self.release_ended(now, now, key, Err(fault));
            return self.touch(now, room);
        }
        self.send_end_in_time(now, key, is_waiting);
    }

    /// Sends the command that ends a hold when it is due, also once more.
    pub(super) fn send_end_in_time(&mut self, now: Time, key: Key, is_waiting: bool) {
        let Some(closing) = self.claims[key].closing_mut() else {
            return;
        };
        if closing.due <= now {
            closing.due = now + limits::LIMIT;
            if !is_waiting {
                self.push(key, Lane::Ends);
            }
        }
        if let Some(at) = self.claims[key].closing_mut().map(|closing| closing.due) {
            self.arm(Due::Claim(key), at);
        }
    }

    pub(super) fn released_due(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        let at = claim.dead_at;
        if claim.flights == 0 && at <= now {
            // The last release, unless its lease is long: what comes later keeps the lock for one lease at most.
            claim.is_unclear = claim.is_long() && claim.sent + limits::RELEASED_AGAIN > now;
            self.release(now, key, None, false);
        } else if claim.flights == 0 {
            self.arm(Due::Claim(key), at);
        }
    }

    /// Releases detached leases whose handle nobody has.
    pub(super) fn discard(&mut self, now: Time, leases: Vec<(Name, LockId)>) {
        for (name, id) in leases {
            let (room, permit) = self.room_of_document(now, &name);
            let claim = self.add_claim(Claim {
                id: Some(id),
                permit,
                // A late command may make the lease once more.
                is_unclear: true,
                dead_at: now + (limits::LIMIT + limits::NO_REPLY),
                ..Claim::new(now, room, OF_DETACHED)
            });
            self.release(now, claim, None, false);
        }
    }
}

impl<C> Claim<C> {
    /// Whether it is released once more after the time for which a command may stay in the server: a late one could take a lock for
    /// long, or a detached lease from its handle.
    fn is_long(&self) -> bool {
        self.rules.expiry > limits::LONG || self.resumes.is_some()
    }

    /// Whether the lock was released until this reply, or the lease given back that the claim resumes.
    fn is_released_by(&self, reply: &Reply) -> bool {
        let (Stage::Releasing(closing), Some(id)) = (&self.stage, &self.id) else {
            return false;
        };
        let Some(sight) = &reply.sight else {
            return reply.is_applied == Some(true) || closing.tries > 1;
        };
        if let Some((handle, _)) = &self.resumes {
            return closing.tries > 1 || sight.has(handle);
        }
        let is_ended = sight.has("") || sight.has(&kept_of(id));
        let token = sight.document.token.long();
        // A repetition finds another document where an earlier command has released, but not the last token of the claim: an
        // operator leaves that. A late claim has left others.
        match closing.tries {
            _ if self.last == 0 => reply.is_applied == Some(true),
            0 | 1 => is_ended && token == Some(self.token),
            _ => !is_ended || token != Some(self.last) || self.last == self.token,
        }
    }
}

impl<C> Closing<C> {
    pub(super) fn new(now: Time, waiter: Option<C>, stop: Time) -> Self {
        Self {
            waiter,
            tries: 0,
            due: now + limits::LIMIT,
            stop,
            fault: None,
            in_turn: false,
            is_acquired_again: false,
            min_hold: 0,
        }
    }
}
