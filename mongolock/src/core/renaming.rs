//! Gives the claim of a hold another id: the claim becomes the mark that its work is done, or a detached lease.
//!
//! The command is repeated while the lease lasts, and the lease is renewed meanwhile. Only this command shows whether
//! the claim has its new id: a renewal that does not find the claim proves nothing.

use super::event::{Ended, Ending, Hold, Lane, Outcome};
use super::limits::KEPT_LEAST;
use super::slab::Key;
use super::state::{Awaits, Change, Claim, Closing, Core, Lease, Set, Stage};
use super::time::{MS, Time};
use crate::protocol::{LockId, Name, Reply, Until};

impl<C: Clone> Core<C> {
    /// The holder ends its hold, and its work is marked or its lease is detached.
    pub(super) fn rename(&mut self, now: Time, hold: Hold, how: &Ending, awaited: Option<Awaits<C>>) {
        let claims = self.claims_of(hold);
        let change = |(place, key): (usize, &Key)| self.change(now, place, *key, how);
        let changes: Option<Vec<_>> = claims.iter().enumerate().map(change).collect();
        let Some(changes) = changes.filter(|changes| !changes.is_empty()) else {
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
        for (key, (change, lease)) in claims.iter().zip(changes) {
            let closing = Closing::new(waiter.clone(), Time::NEVER);
            let claim = &mut self.claims[*key];
            claim.stage = Stage::Renaming(change, lease, closing);
            claim.in_lane = Some(Lane::Ends);
            self.arm_lease(*key);
        }
        match hold {
            Hold::One(claim, _) => self.lanes[Lane::Ends as usize].waiting.push_back(claim),
            Hold::Set(_) => self.lanes[Lane::Ends as usize].sets.push_back(claims),
        }
    }

    /// The other id for the claim at this index; `None` if the claim has no lease any more.
    fn change(&self, now: Time, place: usize, key: Key, how: &Ending) -> Option<(Change, Lease)> {
        let claim = self.claims.get(key)?;
        let Stage::Held(_, mut lease) = claim.stage else {
            return None;
        };
        let change = match how {
            Ending::Done => Change::Mark(claim.mark_until?.0),
            Ending::Detach(ids, ttl) => Change::Detach(ids.get(place)?.clone(), *ttl),
            Ending::Release | Ending::Untaken => return None,
        };
        lease.renewable_until = now + claim.rules.expiry.max(KEPT_LEAST) * MS;
        (lease.until > now).then_some((change, lease))
    }

    /// The command that ends the hold has taken effect, or it has failed finally. After a failure the claim is released
    /// under both ids.
    pub(super) fn finish(&mut self, now: Time, key: Key, ended: Outcome) {
        let lease = self.detached_lease(key);
        let claim = &mut self.claims[key];
        let (room, set) = (claim.room, claim.set);
        let waiter = match &mut claim.stage {
            Stage::Renaming(_, _, closing) => closing.waiter.take(),
            Stage::Held(cell, _) => {
                let cell = cell.clone();
                // A transaction has marked all locks of a set.
                let set = set.filter(|set| self.sets.get(*set).is_some_and(Set::has_some));
                set.and_then(|set| self.sets.remove(set));
                Some(Awaits::Caller(cell))
            }
            _ => None,
        };
        if let (Ok(Ended::Detached), Some(Awaits::Set(set))) = (&ended, &waiter) {
            self.sets[*set].detached.extend(lease.clone());
        }
        let left = ended.as_ref().ok().copied().filter(|ended| *ended != Ended::Lost);
        self.notify_ended(now, waiter, ended);
        if let Some(ended) = left {
            self.leave_commits(now, key, ended);
            self.end_released(now, now, key);
        } else {
            // A late claim may have acquired the lock again.
            self.release(now, key, None, false);
            self.discard(now, lease.into_iter().collect());
        }
        match left {
            Some(Ended::Released) => self.released(now, room, key),
            _ => self.pass_turn(now, room, key),
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
}

impl<C> Claim<C> {
    /// The change that the command, or an earlier one, has made to the document.
    pub(super) fn renamed_by(&self, reply: &Reply) -> Ended {
        let (Stage::Renaming(change, _, closing), Some(id)) = (&self.stage, &self.id) else {
            return Ended::Lost;
        };
        let Some(sight) = &reply.sight else {
            // The reply to several rows may say only that all rows have changed their documents.
            return match change {
                _ if reply.is_applied != Some(true) => Ended::Lost,
                Change::Detach(..) => Ended::Detached,
                Change::Mark(_) => Ended::Marked,
            };
        };
        // A release by an operator leaves the same document, also before the period is over.
        let is_released = sight.has("") && sight.document.token.long() == Some(self.last);
        let by_mark = is_released && (reply.is_applied != Some(false) || closing.tries > 1);
        match change {
            Change::Detach(id, _) if sight.has(id) => Ended::Detached,
            Change::Mark(_) if sight.is_marked_by(id) => Ended::Marked,
            // The period of the mark was over.
            Change::Mark(Until::At(end)) if by_mark && sight.document.expires_at.date() >= Some(*end) => {
                Ended::Released
            }
            _ => Ended::Lost,
        }
    }
}
