//! Resuming a detached lease: each of its claims replaces the id that the lease has. A resumption that is given up gives the lease
//! back, because it is still that of its handle.

use super::event::{Cause, Failure, Fault, FaultKind, Lane, Notice, Waiter};
use super::limits::{COPIES, COPY, PAUSE, UNANSWERED};
use super::permit_list::Permit;
use super::slab::Key;
use super::state::{Caller, Claim, Core, Due, Lease, Set, Stage};
use super::time::Time;
use crate::protocol::{LockId, Ms, Name, Reply};

impl<C: Clone> Core<C> {
    /// A call for the leases with these ids, all or none.
    pub(super) fn resume(
        &mut self,
        now: Time,
        leases: Vec<(Name, LockId)>,
        rest: Ms,
        caller: Caller<C>,
    ) -> Waiter {
        let (rules, due) = (caller.rules, caller.deadline.unwrap_or(now + UNANSWERED));
        let names = leases.iter().map(|(name, _)| name.clone()).collect();
        let set = self.sets.insert(Set::new(names, caller));
        for (name, id) in leases {
            let (room, permit) = self.room_of_document(now, &name);
            let key = self.add_claim(Claim {
                resumes: Some((id, rest)),
                permit,
                set: Some(set),
                in_lane: Some(Lane::Claims),
                ..Claim::new(now, room, rules)
            });
            if let Some(number) = permit {
                let permits = &mut self.rooms[room].permits;
                permits.widen(number + 1);
                permits.set_unless_own(number, Permit::Own(key));
            }
            self.sets[set].parts.push(key);
        }
        match &self.sets[set].parts[..] {
            // It goes alone, because the reply to several rows may not tell of each.
            [part] => self.lanes[Lane::Claims].apart.push_back(vec![*part]),
            parts => self.lanes[Lane::Claims].sets.push_back(parts.to_vec()),
        }
        self.arm(Due::Set(set), due);
        Waiter::Set(set)
    }

    /// A claim has its lease. The caller gets all of them together.
    pub(super) fn resumed(&mut self, now: Time, key: Key, lease: Lease) {
        let Some(set) = self.claims[key].set else {
            return self.release(now, key, None, false);
        };
        let cell = self.sets[set].caller.cell.clone();
        self.hold(now, key, cell, lease);
        if lease.until <= now {
            return self.fail_set(now, set, Cause::Gone);
        }
        let parts = &self.sets[set].parts;
        if !parts.iter().all(|part| self.claims[*part].is_held()) {
            return;
        }
        for part in parts {
            self.claims[*part].resumes = None;
        }
        self.disarm(Due::Set(set));
        let own = &mut self.sets[set];
        own.won = std::mem::take(&mut own.parts);
        self.notify_held_all(set);
    }

    /// The document has another id. It may be the lease, which another call has given back since, or a claim of this process that is
    /// giving it back. Of a command that stops at a miss, what comes after that is not known.
    pub(super) fn resumption_missed(&mut self, now: Time, key: Key, reply: &Reply) {
        let claim = &self.claims[key];
        let Some((lease, _)) = &claim.resumes else { return };
        let gives_back = |own: &Claim<C>, id: &str| {
            own.has_id(id) && own.resumes.as_ref().is_some_and(|(resumed, _)| resumed == lease)
        };
        let comes_back = |id: &str| {
            let mut claims = self.rooms[claim.room].claims.iter();
            id == &**lease || claims.any(|key| gives_back(&self.claims[*key], id))
        };
        let is_gone = reply.sight.as_ref().is_some_and(|sight| {
            let is_over = sight.left().is_some_and(|left| left <= 0);
            is_over || !sight.lock_id().is_some_and(comes_back)
        });
        match claim.set.filter(|_| is_gone) {
            Some(set) => self.fail_set(now, set, Cause::Gone),
            None => self.resume_later(now, key),
        }
    }

    pub(super) fn resumption_failed(&mut self, now: Time, key: Key, fault: &Fault) {
        let Some(set) = self.claims[key].set else { return };
        self.sets[set].fault = Some((now, fault.clone()));
        match fault.kind {
            FaultKind::Lasting => self.fail_set(now, set, Cause::Refused),
            _ => self.resume_later(now, key),
        }
    }

    fn resume_later(&mut self, now: Time, key: Key) {
        let pause = self.draw_between(PAUSE);
        self.arm(Due::Claim(key), now + pause);
    }

    /// It asks again, or sends a copy of what has no reply.
    pub(super) fn resumption_due(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        let copy_at = claim.sent + COPY;
        if claim.flights > 0 && copy_at > now {
            return self.arm(Due::Claim(key), copy_at);
        }
        if claim.flights < COPIES && claim.in_lane.is_none() {
            claim.in_lane = Some(Lane::Claims);
            self.lanes[Lane::Claims].apart.push_back(vec![key]);
        }
        self.arm(Due::Claim(key), now + COPY);
    }

    pub(super) fn set_due(&mut self, now: Time, key: Key) {
        let cause = match self.sets[key].caller.deadline {
            Some(_) => Cause::Timeout,
            None => Cause::Unanswered,
        };
        self.fail_set(now, key, cause);
    }

    /// A set that waits ends without its locks. One that is held, or being detached, goes on.
    pub(super) fn fail_set(&mut self, now: Time, key: Key, cause: Cause) {
        let Some(set) = self.sets.get(key) else { return };
        if let Some(call) = set.calls.first() {
            self.fail_call(now, *call, cause);
        } else if self.is_resuming(set) {
            let cell = set.caller.cell.clone();
            let fault = set.fault.as_ref().map(|(at, fault)| (now - *at, fault.clone()));
            let seen = None;
            self.notify(cell, Notice::Failed(Failure { cause, seen, fault }));
            self.give_back(now, key);
        }
    }

    pub(super) fn is_resuming(&self, set: &Set<C>) -> bool {
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
                Stage::Held(..) => self.release(now, part, None, false),
                Stage::Asking => self.give_up(now, part),
                _ => {}
            }
            self.touch(now, room);
        }
    }
}
