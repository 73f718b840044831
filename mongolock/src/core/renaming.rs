//! The claim of a hold gets another id: it becomes the mark that its work is done, or a detached lease.
//!
//! The command is repeated while the lease lasts, which is renewed meanwhile. It decides alone: a renewal that does not find the claim
//! says nothing.

use super::event::{Ended, Ending, Fault, Hold, Lane, Notice};
use super::limits::{KEPT_LEAST, LIMIT};
use super::slab::Key;
use super::state::{Change, Claim, Closing, Core, Due, Lease, Postponed, Stage};
use super::time::{MS, Time};
use crate::protocol::text::mark_of;
use crate::protocol::{LockId, Name, Reply};

impl<C: Clone> Core<C> {
    /// The holder is done, and its work is marked or its lease is detached.
    pub(super) fn rename(&mut self, now: Time, hold: Hold, how: Ending, awaited: Option<C>) {
        let claims = self.claims_of(hold);
        let changes: Option<Vec<(Key, Change, Lease)>> = (0..)
            .zip(&claims)
            .map(|(place, key)| self.change(now, place, *key, &how))
            .collect();
        let Some(changes) = changes.filter(|changes| !changes.is_empty()) else {
            self.notify_ended(awaited, Ok(Ended::Lost));
            return self.end_hold(now, hold, Ending::Release, None);
        };
        let mut awaited = awaited;
        if let Hold::Set(set) = hold
            && let Some(set) = self.sets.get_mut(set)
        {
            set.parts = std::mem::take(&mut set.won);
            set.cell = awaited.take().unwrap_or_else(|| set.cell.clone());
        }
        for (key, change, lease) in changes {
            let closing = Closing::new(now, awaited.take(), Time::NEVER);
            let due = closing.due.min(lease.next_due());
            if let Some(claim) = self.claims.get_mut(key) {
                claim.stage = Stage::Renaming {
                    change,
                    lease,
                    closing,
                };
                claim.in_lane = Some(Lane::Ends);
            }
            self.arm(Due::Claim(key), due);
        }
        match hold {
            Hold::One { claim, .. } => self.lanes[Lane::Ends].waiting.push_back(claim),
            Hold::Set(_) => self.lanes[Lane::Ends].sets.push_back(claims),
        }
    }

    /// What becomes of the claim in this place; `None` if it has no lease any more.
    fn change(&self, now: Time, place: usize, key: Key, how: &Ending) -> Option<(Key, Change, Lease)> {
        let claim = self.claims.get(key)?;
        let Stage::Held { lease, .. } = claim.stage else {
            return None;
        };
        let change = match how {
            Ending::Done => Change::Mark(claim.mark_until?),
            Ending::Detach { ids, ttl } => Change::Detach {
                id: ids.get(place)?.clone(),
                ttl: *ttl,
            },
            Ending::Release => return None,
        };
        let renewable_until = now + claim.rules.expiry.max(KEPT_LEAST) * MS;
        let lease = Lease {
            renewable_until,
            ..lease
        };
        (lease.until > now).then_some((key, change, lease))
    }

    /// The document says what the command, or an earlier one, has done.
    pub(super) fn renamed(&mut self, now: Time, key: Key, reply: &Reply) {
        if let Some(claim) = self.claims.get(key) {
            let ended = claim.renamed_by(reply);
            self.finish(now, key, ended);
        }
    }

    /// The claim has left the lock by a command that has ended its hold.
    pub(super) fn finish(&mut self, now: Time, key: Key, ended: Ended) {
        let lease = self.detached_lease(key).filter(|_| ended == Ended::Detached);
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let (room, set) = (claim.room, claim.set);
        let stage = std::mem::replace(&mut claim.stage, Stage::Released);
        claim.in_lane = None;
        let postponed = claim.commits.postponed.take();
        match stage {
            Stage::Held { cell, .. } => self.notify(cell, Notice::Ended(Ok(ended))),
            Stage::Renaming { closing, .. } => self.notify_ended(closing.awaited, Ok(ended)),
            _ => {}
        }
        if let Some(Postponed::Ending(awaited)) = postponed {
            self.notify_ended(awaited, Ok(ended));
        }
        if ended == Ended::Lost {
            // A late claim may have acquired the lock again.
            self.release(now, key, None, false);
        } else {
            self.free_permit(key, ended == Ended::Released);
            self.end_released(now, key);
        }
        match ended {
            Ended::Released => self.released(now, room, key),
            _ => self.pass_turn(now, room, key),
        }
        if let Some(set) = set {
            self.part_detached(now, set, key, lease);
        }
        self.touch(now, room);
    }

    /// The command has failed for good, or the lease has ended before its reply: the lock is released under both ids.
    pub(super) fn renaming_failed(&mut self, now: Time, key: Key, fault: Option<Fault>) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let (room, set) = (claim.room, claim.set);
        let awaited = claim.closing_mut().and_then(|closing| closing.awaited.take());
        let lease = self.detached_lease(key);
        self.notify_ended(awaited, Err(fault));
        self.release(now, key, None, false);
        self.discard(now, lease.into_iter().collect());
        self.pass_turn(now, room, key);
        if let Some(set) = set {
            self.part_detached(now, set, key, None);
        }
        self.touch(now, room);
    }

    /// The lease that a claim is to become.
    fn detached_lease(&self, key: Key) -> Option<(Name, LockId)> {
        let claim = self.claims.get(key)?;
        match &claim.stage {
            Stage::Renaming {
                change: Change::Detach { id, .. },
                ..
            } => Some((self.document_of(claim)?, id.clone())),
            _ => None,
        }
    }

    pub(super) fn renaming_due(&mut self, now: Time, key: Key) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let is_waiting = claim.in_lane.is_some();
        let Stage::Renaming { lease, closing, .. } = &mut claim.stage else {
            return;
        };
        if lease.until <= now {
            let fault = closing.fault.take();
            return self.renaming_failed(now, key, fault);
        }
        if closing.due <= now {
            closing.due = now + LIMIT;
            if !is_waiting {
                self.push(key, Lane::Ends);
            }
        }
        self.arm_closing(key);
    }
}

impl<C> Claim<C> {
    fn renamed_by(&self, reply: &Reply) -> Ended {
        let (Stage::Renaming { change, .. }, Some(id), Some(sight)) = (&self.stage, &self.id, &reply.sight)
        else {
            return Ended::Lost;
        };
        match change {
            Change::Detach { id, .. } if sight.has(id) => Ended::Detached,
            Change::Mark(_) if sight.has(&mark_of(id)) => Ended::Marked,
            // The period of the mark was over.
            Change::Mark(_) if sight.has("") && sight.document.token.long() == Some(self.last) => {
                Ended::Released
            }
            _ => Ended::Lost,
        }
    }
}
