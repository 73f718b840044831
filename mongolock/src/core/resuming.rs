//! Resumes detached leases: each claim replaces the id of a lease. If a resumption is given up, it restores the id, so
//! that the handle stays valid.

use super::event::{Cause, Fault, Hold, Lane, Notice, Waiter};
use super::limits::PAUSE;
use super::permit_list::Permit;
use super::slab::Key;
use super::state::{Call, Caller, Claim, Core, Due, Lease, Set, Stage};
use super::time::Time;
use crate::protocol::{LockId, Ms, Name, Reply};

impl<C: Clone> Core<C> {
    /// A call for the leases with these ids, all or none.
    pub(super) fn resume(&mut self, leases: Vec<(Name, LockId)>, rest: Ms, caller: &Caller<C>) -> Waiter {
        let (now, rules) = (caller.begun, caller.join.rules);
        let names = leases.iter().map(|(name, _)| name.clone()).collect();
        let set = self.sets.insert(Set::new(names, caller.clone()));
        for (name, id) in leases {
            let (room, permit) = self.room_of_document(&name);
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
            // It waits for its claim, and not in the queue of the lock.
            let call = self.add_call(now, Call::new(caller.clone(), room, 0, Some(set)));
            let set = &mut self.sets[set];
            set.won.push(key);
            set.calls.push(call);
        }
        match &self.sets[set].won[..] {
            // It goes alone, because the reply to several rows may not tell of each.
            [part] => self.go_apart(Lane::Claims, *part),
            parts => self.go_together(Lane::Claims, parts.to_vec()),
        }
        Waiter::Set(set)
    }

    /// A claim has its lease. The caller gets all leases together.
    pub(super) fn resumed(&mut self, now: Time, key: Key, lease: Lease) {
        let Some(set) = self.claims[key].set else { return };
        let cell = self.sets[set].caller.join.cell.clone();
        self.hold(now, key, cell.clone(), lease);
        if lease.until <= now {
            return self.fail_resumption(now, key, Cause::Gone);
        }
        let parts = &self.sets[set].won;
        if !parts.iter().all(|part| self.claims[*part].is_held()) {
            return;
        }
        for part in parts {
            self.claims[*part].resumes = None;
        }
        for call in std::mem::take(&mut self.sets[set].calls) {
            self.remove_call(call);
        }
        if self.sets[set].won.len() == 1 {
            self.sets.remove(set);
            let claim = &mut self.claims[key];
            claim.set = None;
            let held = Notice::Held(Hold::One(key, claim.token), claim.grant(false), lease.until);
            return self.notify(cell, held);
        }
        self.notify_held_all(set);
    }

    /// The document has another id. That id may be the one of the lease, which another call has restored since, or the
    /// one of a claim of this process that is restoring it. If a command has stopped at a row, the results of later
    /// rows are unknown.
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
        // Without a document the lease is gone.
        let is_gone = (reply.sight.is_none() && reply.is_applied == Some(false)).then_some(Cause::Gone);
        let cause = reply.sight.as_ref().map_or(is_gone, |sight| {
            let is_over = sight.left().is_some_and(|left| left <= 0);
            match () {
                () if is_over && sight.has(lease) => Some(Cause::Expired),
                () if is_over || !sight.lock_id().is_some_and(comes_back) => Some(Cause::Gone),
                () => None,
            }
        });
        match cause {
            Some(cause) => self.fail_resumption(now, key, cause),
            None => self.resume_later(now, key),
        }
    }

    pub(super) fn resumption_failed(&mut self, now: Time, key: Key, fault: &Fault) {
        let room = self.claims[key].room;
        self.rooms[room].fault = Some((now, fault.clone()));
        if fault.kind.is_lasting() {
            self.fail_resumption(now, key, Cause::Refused);
        } else {
            self.resume_later(now, key);
        }
    }

    fn resume_later(&mut self, now: Time, key: Key) {
        let pause = self.draw_between(PAUSE);
        self.arm(Due::Claim(key), now + pause);
    }

    /// The call for the lease that this claim resumes, and for all leases with it, ends without them.
    pub(super) fn fail_resumption(&mut self, now: Time, part: Key, cause: Cause) {
        let claim = self.claims.get(part).filter(|claim| claim.resumes.is_some());
        let set = claim.and_then(|claim| Some((claim.room, self.sets.get(claim.set?)?)));
        let call = set.and_then(|(room, set)| {
            let mut calls = set.calls.iter().copied();
            calls.find(|call| self.calls[*call].room == room)
        });
        if let Some(call) = call {
            self.fail_call(now, call, cause);
        }
    }

    pub(super) fn is_resuming(&self, set: Key) -> bool {
        let resumes = |claim: &Key| self.claims.get(*claim).is_some_and(|own| own.resumes.is_some());
        self.sets[set].won.iter().any(resumes)
    }

    /// The resumption is given up: the leases get their ids back.
    pub(super) fn give_back(&mut self, now: Time, key: Key) {
        for part in self.sets.remove(key).map(|set| set.won).unwrap_or_default() {
            let Some(claim) = self.claims.get_mut(part) else {
                continue;
            };
            claim.set = None;
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
