//! Resumes detached leases: each claim replaces the id of a lease. If a resumption is given up, it restores the id, so
//! that the handle stays valid.

use super::event::{Cause, Fault, FaultKind, Join, Lane, Rules};
use super::lanes::Flight;
use super::limits::PAUSE;
use super::permit_list::PermitState;
use super::slab::Key;
use super::state::{Claim, Core, LeaseTimes, Stage};
use super::time::{Time, span};
use crate::protocol::{LATE_COMMAND, LockId, Ms, Name, Reply, RowOrder};
use crate::timing::{COMMAND_LIMIT, NO_REPLY};

impl<C: Clone> Core<C> {
    /// A call for the leases with these ids, all or none.
    pub(super) fn resume(&mut self, now: Time, leases: Vec<(Name, LockId)>, rest: Ms, join: Join<C>) -> Key {
        let names = leases.iter().map(|(name, _)| name.clone()).collect();
        let caller = self.add_caller(now, join, names, 0);
        for (name, id) in leases {
            let (room, permit) = self.room_of_document(&name);
            let key = self.add_claim(Claim {
                resumes: Some(Box::new((id, rest))),
                room,
                permit,
                caller: Some(caller),
                ..self.blank.clone()
            });
            if let Some(number) = permit {
                let permits = &mut self.rooms[room].permits;
                permits.widen(number + 1);
                permits.set_unless_own(number, PermitState::Own(key));
            }
            self.callers[caller].won.push(key);
        }
        // They have a command of their own, because the reply to several rows may not tell of each.
        let parts = self.callers[caller].won.to_vec();
        self.go_apart(Lane::Claims, RowOrder::StopAtMiss, parts);
        caller
    }

    /// A claim has its lease. The caller gets all leases together.
    pub(super) fn resumed(&mut self, now: Time, key: Key, lease: LeaseTimes) {
        let claim = &mut self.claims[key];
        let Some(caller) = claim.caller else { return };
        (claim.stage, claim.lease) = (Stage::Held, Some(lease));
        if lease.until <= now {
            return self.resumes_not(now, key, Some(Cause::Gone));
        }
        let parts = &self.callers[caller].won;
        if parts.iter().all(|part| self.claims[*part].is_held()) {
            let handles = parts.iter().filter_map(|part| self.claims[*part].resumes.take());
            self.callers[caller].resumed = handles.collect();
            self.grant(now, caller);
        }
    }

    /// The document has another id. That id may be the one of the lease, which another call has restored since, or the
    /// one of a claim of this process that is restoring it. If a command has stopped at a row, the results of later
    /// rows are unknown.
    pub(super) fn resumption_missed(&mut self, now: Time, flight: &Flight, key: Key, reply: &Reply) {
        let claim = &self.claims[key];
        let Some(resumed) = &claim.resumes else { return };
        let lease = &resumed.0;
        let lease_of = |own: Key| self.claims[own].resumes.as_deref();
        let comes_back = |id: &str| {
            let resumed = self.own(&self.rooms[claim.room], id).and_then(lease_of);
            id == &**lease || resumed.is_some_and(|(resumed, _)| resumed == lease)
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
        // Its document may have had the id of a claim that has given the lease back since.
        let is_recent = flight.number > self.rooms[claim.room].given_back_after;
        self.resumes_not(now, key, cause.filter(|_| is_recent));
    }

    pub(super) fn resumption_failed(&mut self, now: Time, key: Key, fault: &Fault) {
        let room = self.claims[key].room;
        self.rooms[room].fault = Some(Box::new((now, fault.clone())));
        let cause = (fault.kind == FaultKind::Refused).then_some(Cause::Refused);
        self.resumes_not(now, key, cause);
    }

    /// The claim has not got its lease. With a cause its call ends, without all of its leases; otherwise it asks again.
    fn resumes_not(&mut self, now: Time, key: Key, cause: Option<Cause>) {
        let pause = self.draw_between(PAUSE);
        let claim = &mut self.claims[key];
        let room = claim.room;
        match claim.caller.zip(cause) {
            Some((caller, cause)) => self.fail(now, caller, room, cause),
            None => claim.again_at = now + pause,
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
                    expiry: LATE_COMMAND + 1,
                    ..Rules::default()
                }
                .into(),
                // A late command may write the lease once more, also long after this time.
                sent: now,
                unclear_until: Some(now + span(COMMAND_LIMIT) + span(NO_REPLY)),
                ..Claim::default()
            });
            self.release(now, claim, None);
        }
    }
}
