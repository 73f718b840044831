//! Releases: they are repeated while the lease lasts, and once more when no late claim can take effect any more.

use super::event::{Effect, Ended, Fault, FaultKind, Lane, Rules};
use super::limits::{LIMIT, LONG, NO_REPLY, PAUSE, RELEASED_AGAIN};
use super::slab::Key;
use super::state::{Claim, Closing, Core, Due, Stage};
use super::time::{MS, Time};
use crate::protocol::text::kept_of;
use crate::protocol::{Id, LockId, Name, Reply};

impl<C: Clone> Core<C> {
    /// Sends a release. In its turn the next call waits for the reply or for the first failure.
    pub(super) fn release(&mut self, now: Time, key: Key, awaited: Option<C>, in_turn: bool) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let min_hold = match claim.stage {
            Stage::Held { .. } | Stage::Renaming { .. } => claim.rules.min_hold,
            _ => 0,
        };
        let closing = Closing::new(now, awaited, now + claim.rules.expiry * MS);
        let due = closing.due;
        claim.stage = Stage::Releasing {
            min_hold,
            in_turn,
            is_acquired_again: false,
            closing,
        };
        self.push(key, Lane::Ends);
        self.arm(Due::Claim(key), due);
    }

    /// What a command says that ends a hold.
    pub(super) fn end_replied(&mut self, now: Time, key: Key, reply: Result<&Reply, &Fault>) {
        let pause = self.draw_between(PAUSE);
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let is_renaming = matches!(claim.stage, Stage::Renaming { .. });
        let Some(closing) = claim.closing_mut() else {
            return;
        };
        match reply {
            Err(fault) if fault.kind != FaultKind::Lasting && now + pause < closing.stop => {
                // What was never applied is no earlier release.
                closing.tries = closing
                    .tries
                    .saturating_sub(u8::from(fault.kind == FaultKind::NotApplied));
                (closing.due, closing.fault) = (now + pause, Some(fault.clone()));
                self.arm(Due::Claim(key), now + pause);
                self.report_failure(key, fault);
                self.end_turn(now, key);
            }
            Err(fault) if is_renaming => {
                self.report_failure(key, fault);
                self.renaming_failed(now, key, Some(fault.clone()));
            }
            Ok(reply) if is_renaming => self.renamed(now, key, reply),
            Err(fault) => {
                self.report_failure(key, fault);
                self.release_ended(now, key, Err(Some(fault.clone())));
            }
            Ok(reply) => {
                let ended = if claim.is_released_by(reply) {
                    Ended::Released
                } else {
                    Ended::Lost
                };
                self.release_ended(now, key, Ok(ended));
            }
        }
    }

    /// The next call asks for itself, and finds out whether the server works.
    fn end_turn(&mut self, now: Time, key: Key) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        if let Stage::Releasing { in_turn, .. } = &mut claim.stage {
            *in_turn = false;
        }
        let room = claim.room;
        self.pass_turn(now, room, key);
    }

    fn report_failure(&mut self, key: Key, fault: &Fault) {
        if let Some(room) = self.claims.get(key).and_then(|claim| self.rooms.get(claim.room)) {
            let (name, fault) = (room.name.clone(), fault.clone());
            self.effects.push(Effect::Report {
                name,
                lane: Lane::Ends,
                fault,
            });
        }
    }

    fn release_ended(&mut self, now: Time, key: Key, ended: Result<Ended, Option<Fault>>) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let room = claim.room;
        let Stage::Releasing {
            in_turn,
            is_acquired_again,
            closing,
            ..
        } = &mut claim.stage
        else {
            return;
        };
        let (in_turn, awaited) = (std::mem::take(in_turn), closing.awaited.take());
        let is_acquired_again = std::mem::take(is_acquired_again);
        let is_free = ended == Ok(Ended::Released);
        self.notify_ended(awaited, ended);
        if is_acquired_again {
            return self.release(now, key, None, in_turn);
        }
        self.free_permit(key, is_free);
        self.end_released(now, key);
        if in_turn {
            self.released(now, room, key);
        } else {
            self.was_in_the_way(now, room);
        }
    }

    /// The claim has left the lock. It is released once more if a late one of its commands may acquire it again.
    pub(super) fn end_released(&mut self, now: Time, key: Key) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        if claim.is_unclear && claim.dead_at <= now && claim.is_long() {
            claim.dead_at = claim.sent + RELEASED_AGAIN;
        }
        if claim.flights > 0 || claim.is_unclear && claim.dead_at > now {
            claim.stage = Stage::Released;
            // The end of its last claim says when.
            if claim.flights == 0 {
                let at = claim.dead_at;
                self.arm(Due::Claim(key), at);
            }
        } else {
            self.remove_claim(key);
        }
    }

    pub(super) fn remove_claim(&mut self, key: Key) {
        self.disarm(Due::Claim(key));
        self.free_permit(key, false);
        if let Some(claim) = self.claims.remove(key)
            && let Some(room) = self.rooms.get_mut(claim.room)
        {
            room.claims.retain(|other| *other != key);
        }
    }

    /// No call waits for this claim any longer.
    pub(super) fn give_up(&mut self, now: Time, key: Key) {
        let Some(claim) = self.claims.get(key) else { return };
        if claim.is_unclear {
            self.release(now, key, None, false);
        } else {
            self.remove_claim(key);
        }
    }

    /// The lock was released here: other processes may go first.
    pub(super) fn released(&mut self, now: Time, key: Key, claim: Key) {
        let luck = self.draw();
        if let Some(room) = self.rooms.get_mut(key) {
            room.seen = None;
            room.looks = false;
            let is_enough = !room.permits.is_of_lock() && room.order.is_enough(room.permits.free());
            room.pause_until = if is_enough {
                now
            } else {
                room.order.released(now, luck)
            };
        }
        self.pass_turn(now, key, claim);
    }

    /// A claim is released that kept the lock from the calls of this process.
    fn was_in_the_way(&mut self, now: Time, key: Key) {
        let Some(room) = self.rooms.get(key) else { return };
        // What is on its way may have found it there.
        let turn = room.turn.and_then(|turn| self.claims.get(turn));
        let is_outdated = turn.is_some_and(|claim| claim.flights > 0);
        let is_of_other = |lock_id: &str| Id::parse(lock_id).is_none_or(|id| id.mark() != self.conf.mark);
        let is_foreign = room
            .seen
            .as_ref()
            .is_some_and(|(_, seen)| is_of_other(&seen.lock_id));
        let asks = !room.order.yields() && (!room.permits.is_of_lock() || room.seen.is_some() && !is_foreign);
        if let Some(room) = self.rooms.get_mut(key).filter(|_| asks) {
            (room.pause_until, room.looks) = (now, false);
            room.is_outdated |= is_outdated;
        }
    }

    pub(super) fn release_due(&mut self, now: Time, key: Key) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let room = claim.room;
        if let Stage::Releasing { closing, .. } = &mut claim.stage {
            if closing.due <= now && closing.stop <= now {
                let fault = closing.fault.take();
                let is_awaited = closing.awaited.is_some();
                self.release_ended(now, key, if is_awaited { Err(fault) } else { Ok(Ended::Lost) });
                return self.touch(now, room);
            }
            if closing.due <= now {
                closing.due = now + LIMIT;
                if claim.in_lane.is_none() {
                    self.push(key, Lane::Ends);
                }
            }
            self.arm_closing(key);
        } else if claim.flights == 0 && claim.dead_at <= now {
            // The last release, unless its lease is long: what comes later keeps the lock for one lease at most.
            claim.is_unclear = claim.is_long() && claim.sent + RELEASED_AGAIN > now;
            self.release(now, key, None, false);
        } else if claim.flights == 0 {
            let at = claim.dead_at;
            self.arm(Due::Claim(key), at);
        }
    }

    pub(super) fn arm_closing(&mut self, key: Key) {
        if let Some(closing) = self.claims.get_mut(key).and_then(Claim::closing_mut) {
            let at = closing.due;
            self.arm(Due::Claim(key), at);
        }
    }

    /// Releases detached leases whose handle nobody has.
    pub(super) fn discard(&mut self, now: Time, leases: Vec<(Name, LockId)>) {
        for (name, id) in leases {
            let (room, permit) = self.room_of_document(now, &name);
            let claim = Claim {
                id: Some(id),
                permit,
                // A late command may make the lease once more.
                is_unclear: true,
                dead_at: now + (LIMIT + NO_REPLY),
                ..Claim::new(now, room, Rules::of_detached())
            };
            if let Some(claim) = self.add_claim(claim) {
                self.release(now, claim, None, false);
            }
        }
    }
}

impl<C> Claim<C> {
    /// Whether it is released once more after the time for which a command may stay in the server: a late one could take a lock for
    /// long, or a detached lease from its handle.
    fn is_long(&self) -> bool {
        self.rules.expiry > LONG || self.resumes.is_some()
    }

    /// Whether the lock was released until this reply, or the lease given back that the claim resumes.
    fn is_released_by(&self, reply: &Reply) -> bool {
        let tries = match &self.stage {
            Stage::Releasing { closing, .. } => closing.tries,
            _ => 0,
        };
        // A repetition finds another document where an earlier command has released.
        if reply.is_applied == Some(true) || tries > 1 {
            return true;
        }
        let (Some(sight), Some(id)) = (&reply.sight, &self.id) else {
            return false;
        };
        if let Some((handle, _)) = &self.resumes {
            return sight.has(handle);
        }
        let is_ended = sight.has("") || sight.has(&kept_of(id));
        is_ended && sight.document.token.long() == Some(self.token)
    }
}

impl Rules {
    /// Those of a detached lease: its release is repeated for as long as that of a long one.
    fn of_detached() -> Self {
        Self {
            expiry: LONG + 1,
            renew_every: LONG,
            max_hold: None,
            min_hold: 0,
            once: None,
        }
    }
}

impl<C> Closing<C> {
    pub(super) fn new(now: Time, awaited: Option<C>, stop: Time) -> Self {
        Self {
            awaited,
            tries: 0,
            due: now + LIMIT,
            stop,
            fault: None,
        }
    }
}
