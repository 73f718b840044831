//! Resuming a detached lease: each of its claims replaces the id that the lease has. A resumption that is given up gives the lease
//! back, because it is still that of its handle.

use super::event::{Cause, Failure, Fault, FaultKind, Join, Lane, Notice, Waiter};
use super::limits::{COPIES, COPY, PAUSE, UNANSWERED};
use super::permit_list::Permit;
use super::slab::Key;
use super::state::{Claim, Core, Due, Lease, Set, Stage};
use super::time::{MS, Time};
use crate::protocol::{LockId, Ms, Name, Reply};

impl<C: Clone> Core<C> {
    /// A call for the leases with these ids, all or none.
    pub(super) fn resume(
        &mut self,
        now: Time,
        leases: Vec<(Name, LockId)>,
        rest: Ms,
        join: Join<C>,
    ) -> Option<Waiter> {
        let join = self.unless_shut_down(join)?;
        let (rules, deadline) = (join.rules, join.limit.map(|limit| now + limit));
        let names = leases.iter().map(|(name, _)| name.clone()).collect();
        let set = self.sets.insert(Set::new(now, names, join));
        let mut parts = Vec::with_capacity(leases.len());
        for (name, id) in leases {
            let (room, permit) = self.room_of_document(now, &name);
            let key = self.add_claim(Claim {
                resumes: Some((id, rest)),
                permit,
                set: Some(set),
                in_lane: Some(Lane::Claims),
                ..Claim::new(now, room, rules)
            })?;
            if let (Some(number), Some(room)) = (permit, self.rooms.get_mut(room)) {
                room.permits.widen(number + 1);
                room.permits.set_unless_own(number, Permit::Own(key));
            }
            parts.push(key);
        }
        self.sets.get_mut(set)?.parts.clone_from(&parts);
        match parts[..] {
            [part] => self.lanes[Lane::Claims].waiting.push_back(part),
            _ => self.lanes[Lane::Claims].sets.push_back(parts),
        }
        self.arm(Due::Set(set), deadline.unwrap_or(now + UNANSWERED));
        Some(Waiter::Set(set))
    }

    /// A claim has its lease. The caller gets all of them together.
    pub(super) fn resumed(&mut self, now: Time, key: Key, lease: Lease) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let Some((set_key, set)) = claim.set.and_then(|key| Some((key, self.sets.get_mut(key)?))) else {
            return self.release(now, key, None, false);
        };
        let renewable_until = claim
            .rules
            .max_hold
            .map_or(Time::NEVER, |most| now + most.saturating_mul(MS));
        let lease = Lease {
            renewable_until,
            ..lease
        };
        let cell = set.cell.clone();
        claim.stage = Stage::Held { cell, lease };
        let parts = set.parts.clone();
        if lease.until <= now {
            return self.fail_set(now, set_key, Cause::Gone);
        }
        self.arm(Due::Claim(key), lease.next_due());
        let is_held = |key: &Key| self.claims.get(*key).is_some_and(Claim::is_held);
        if !parts.iter().all(is_held) {
            return;
        }
        self.disarm(Due::Set(set_key));
        for part in &parts {
            if let Some(claim) = self.claims.get_mut(*part) {
                claim.resumes = None;
            }
        }
        if let Some(set) = self.sets.get_mut(set_key) {
            set.won = std::mem::take(&mut set.parts);
        }
        self.notify_held_all(set_key);
    }

    /// The document has another id. It may be the lease, which another call has given back since, or a claim of this process that is
    /// giving it back. Of a command that stops at a miss, what comes after that is not known.
    pub(super) fn resumption_missed(&mut self, now: Time, key: Key, reply: &Reply) {
        let Some(claim) = self.claims.get(key) else { return };
        let Some((lease, _)) = &claim.resumes else { return };
        let is_same = |other: &Claim<C>| other.resumes.as_ref().is_some_and(|(id, _)| id == lease);
        let comes_back = |id: &str| {
            let mut claims = self
                .rooms
                .get(claim.room)
                .into_iter()
                .flat_map(|room| &room.claims);
            id == &**lease
                || claims.any(|key| {
                    self.claims
                        .get(*key)
                        .is_some_and(|own| own.has_id(id) && is_same(own))
                })
        };
        let is_gone = reply.sight.as_ref().is_some_and(|sight| {
            let is_here = sight.lock_id().is_some_and(comes_back);
            !is_here || sight.left().is_some_and(|left| left <= 0)
        });
        match claim.set.filter(|_| is_gone) {
            Some(set) => self.fail_set(now, set, Cause::Gone),
            None => self.resume_later(now, key),
        }
    }

    pub(super) fn resumption_failed(&mut self, now: Time, key: Key, fault: &Fault) {
        let Some(set_key) = self.claims.get(key).and_then(|claim| claim.set) else {
            return;
        };
        if let Some(set) = self.sets.get_mut(set_key) {
            set.fault = Some((now, fault.clone()));
        }
        if fault.kind == FaultKind::Lasting {
            self.fail_set(now, set_key, Cause::Refused);
        } else {
            self.resume_later(now, key);
        }
    }

    fn resume_later(&mut self, now: Time, key: Key) {
        let pause = self.draw_between(PAUSE);
        self.arm(Due::Claim(key), now + pause);
    }

    /// It asks again, or sends a copy of what has no reply.
    pub(super) fn resumption_due(&mut self, now: Time, key: Key) {
        let Some(claim) = self.claims.get_mut(key).filter(|claim| claim.in_lane.is_none()) else {
            return;
        };
        let copy_at = claim.sent + COPY;
        if claim.flights > 0 && copy_at > now {
            return self.arm(Due::Claim(key), copy_at);
        }
        if claim.flights < COPIES {
            claim.in_lane = Some(Lane::Claims);
            self.lanes[Lane::Claims].apart.push_back(vec![key]);
        }
        self.arm(Due::Claim(key), now + COPY);
    }

    pub(super) fn set_due(&mut self, now: Time, key: Key) {
        let Some(set) = self.sets.get(key) else { return };
        let cause = if set.deadline.is_some() {
            Cause::Timeout
        } else {
            Cause::Unanswered
        };
        self.fail_set(now, key, cause);
    }

    /// A set that waits ends without its locks. One that is held, or being detached, goes on.
    pub(super) fn fail_set(&mut self, now: Time, key: Key, cause: Cause) {
        let Some(set) = self.sets.get(key) else { return };
        if let Some(call) = set.calls.first() {
            return self.fail_call(now, *call, cause);
        }
        if !self.resumes(set) {
            return;
        }
        let (cell, seen) = (set.cell.clone(), None);
        let fault = set.fault.as_ref().map(|(at, fault)| (now - *at, fault.clone()));
        self.notify(cell, Notice::Failed(Failure { cause, seen, fault }));
        self.give_back(now, key);
    }

    pub(super) fn resumes(&self, set: &Set<C>) -> bool {
        let first = set.parts.first().and_then(|part| self.claims.get(*part));
        first.is_some_and(|claim| claim.resumes.is_some())
    }

    /// The resumption is given up: the leases get their ids back.
    pub(super) fn give_back(&mut self, now: Time, key: Key) {
        self.disarm(Due::Set(key));
        for part in self.sets.remove(key).map(|set| set.parts).unwrap_or_default() {
            let Some(claim) = self.claims.get_mut(part) else {
                continue;
            };
            claim.set = None;
            claim.is_unclear |= claim.flights > 0;
            let room = claim.room;
            match claim.stage {
                Stage::Held { .. } => self.release(now, part, None, false),
                Stage::Asking => self.give_up(now, part),
                _ => {}
            }
            self.touch(now, room);
        }
    }
}
