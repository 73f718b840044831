//! The claim of a hold gets another id: it becomes the mark that its work is done, or a detached lease.
//!
//! The command is repeated while the lease lasts, which is renewed meanwhile. It decides alone: a renewal that does not find the claim
//! says nothing.

use super::event::{Ended, Ending, Hold, Lane, Notice};
use super::limits::KEPT_LEAST;
use super::slab::Key;
use super::state::{Change, Claim, Closing, Core, Due, Lease, Stage};
use super::time::{MS, Time};
use crate::protocol::text::mark_of;
use crate::protocol::{LockId, Name, Reply, Until};

impl<C: Clone> Core<C> {
    /// The holder is done, and its work is marked or its lease is detached.
    pub(super) fn rename(&mut self, now: Time, hold: Hold, how: &Ending, awaited: Option<C>) {
        let mut awaited = awaited;
        let claims = self.claims_of(hold);
        let changes = claims.iter().enumerate();
        let changes: Option<Vec<_>> = changes
            .map(|(place, key)| self.change(now, place, *key, how))
            .collect();
        let Some(changes) = changes.filter(|changes| !changes.is_empty()) else {
            self.notify_ended(awaited, Ok(Ended::Lost));
            return self.end_hold(now, hold, Ending::Release, None);
        };
        if let Hold::Set(set) = hold {
            let set = &mut self.sets[set];
            set.parts = std::mem::take(&mut set.won);
            let cell = &mut set.caller.cell;
            *cell = awaited.take().unwrap_or_else(|| cell.clone());
        }
        for (key, (change, lease)) in claims.iter().zip(changes) {
            let closing = Closing::new(now, awaited.take(), Time::NEVER);
            let due = closing.due.min(lease.next_due());
            let claim = &mut self.claims[*key];
            claim.stage = Stage::Renaming(change, lease, closing);
            claim.in_lane = Some(Lane::Ends);
            self.arm(Due::Claim(*key), due);
        }
        match hold {
            Hold::One(claim, _) => self.lanes[Lane::Ends].waiting.push_back(claim),
            Hold::Set(_) => self.lanes[Lane::Ends].sets.push_back(claims),
        }
    }

    /// What becomes of the claim in this place; `None` if it has no lease any more.
    fn change(&self, now: Time, place: usize, key: Key, how: &Ending) -> Option<(Change, Lease)> {
        let claim = self.claims.get(key)?;
        let Stage::Held(_, lease) = claim.stage else {
            return None;
        };
        let change = match how {
            Ending::Done => Change::Mark(claim.mark_until?.0),
            Ending::Detach(ids, ttl) => Change::Detach(ids.get(place)?.clone(), *ttl),
            Ending::Release => return None,
        };
        let renewable_until = now + claim.rules.expiry.max(KEPT_LEAST) * MS;
        let lease = Lease {
            renewable_until,
            ..lease
        };
        (lease.until > now).then_some((change, lease))
    }

    /// The claim has left the lock by a command that has ended its hold.
    pub(super) fn finish(&mut self, now: Time, key: Key, ended: Ended) {
        let lease = self.detached_lease(key).filter(|_| ended == Ended::Detached);
        let claim = &mut self.claims[key];
        let (room, set) = (claim.room, claim.set);
        let stage = std::mem::replace(&mut claim.stage, Stage::Released);
        claim.in_lane = None;
        match stage {
            Stage::Held(cell, _) => self.notify(cell, Notice::Ended(Ok(ended))),
            Stage::Renaming(_, _, closing) => self.notify_ended(closing.waiter, Ok(ended)),
            _ => {}
        }
        self.leave_commits(key, ended);
        match ended {
            // A late claim may have acquired the lock again.
            Ended::Lost => self.release(now, key, None, false),
            _ => self.end_released(now, now, key),
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
    pub(super) fn renaming_failed(&mut self, now: Time, key: Key) {
        let lease = self.detached_lease(key);
        let claim = &mut self.claims[key];
        let (room, set) = (claim.room, claim.set);
        if let Some(closing) = claim.closing_mut() {
            let (awaited, fault) = (closing.waiter.take(), closing.fault.take());
            self.notify_ended(awaited, Err(fault));
        }
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
        let claim = &self.claims[key];
        match &claim.stage {
            Stage::Renaming(Change::Detach(id, _), ..) => Some((self.document_of(claim), id.clone())),
            _ => None,
        }
    }

    pub(super) fn renaming_due(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        let is_waiting = claim.in_lane.is_some();
        match claim.lease_mut() {
            Some(lease) if lease.until <= now => self.renaming_failed(now, key),
            _ => self.send_end_in_time(now, key, is_waiting),
        }
    }
}

impl<C> Claim<C> {
    /// What the command, or an earlier one, has done to the document.
    pub(super) fn renamed_by(&self, reply: &Reply) -> Ended {
        let (Stage::Renaming(change, _, closing), Some(id)) = (&self.stage, &self.id) else {
            return Ended::Lost;
        };
        let Some(sight) = &reply.sight else {
            // Of several rows the reply may tell only that all of them have changed their documents.
            return match change {
                _ if reply.is_applied != Some(true) => Ended::Lost,
                Change::Detach(..) => Ended::Detached,
                Change::Mark(_) => Ended::Marked,
            };
        };
        // An operator leaves the same document, also before the period is over.
        let is_released = sight.has("") && sight.document.token.long() == Some(self.last);
        let by_mark = is_released && (reply.is_applied != Some(false) || closing.tries > 1);
        match change {
            Change::Detach(id, _) if sight.has(id) => Ended::Detached,
            Change::Mark(_) if sight.has(&mark_of(id)) => Ended::Marked,
            // The period of the mark was over.
            Change::Mark(Until::At(end)) if by_mark && sight.document.expires_at.date() >= Some(*end) => {
                Ended::Released
            }
            _ => Ended::Lost,
        }
    }
}
