//! Holds: a claim is delivered to a call, handed over to the next, renewed and lost.

use super::claims::{margin, relied_on};
use super::event::{Ended, Ending, Fault, FaultKind, Grant, Hold, Lane, Loss, Notice, Outcome};
use super::lanes::Flight;
use super::limits::{self, TURN, TURN_ALONE};
use super::slab::Key;
use super::state::{Awaits, Claim, Core, Due, Lease, Phase, Postponed, Set, Stage};
use super::time::{MS, Time};
use crate::protocol::{Name, Reply, Sight};

impl<C: Clone> Core<C> {
    /// Gives the hold to the first call.
    pub(super) fn deliver(&mut self, now: Time, key: Key, lease: Lease) {
        let room = &self.rooms[self.claims[key].room];
        let first = room.queue[0];
        let Some(call) = self.remove_call(first) else {
            return;
        };
        self.hold(now, key, call.caller.join.cell.clone(), lease);
        let claim = &mut self.claims[key];
        claim.set = call.set;
        let grant = claim.grant(call.has_waited);
        if let Some(set) = call.set {
            if let Some(set) = self.sets.get_mut(set) {
                set.has_waited |= call.has_waited;
            }
            self.set_won(now, set, key, first);
        } else {
            let hold = Hold::One(key, grant.token);
            self.notify(call.caller.join.cell, Notice::Held(hold, grant, lease.until));
        }
    }

    /// The claim gets a holder, and is renewed from now on.
    pub(super) fn hold(&mut self, now: Time, key: Key, cell: C, lease: Lease) {
        let claim = &mut self.claims[key];
        claim.stage = Stage::Held(cell, lease);
        claim.count_hold(Some(now));
        self.arm_lease(key);
    }

    /// A holder ends its hold.
    pub(super) fn end_hold(&mut self, now: Time, hold: Hold, how: Ending, awaited: Option<C>) {
        let awaited = awaited.map(Awaits::Caller);
        if how == Ending::Untaken {
            self.untaken(hold);
        }
        match (hold, how) {
            (hold, how @ (Ending::Done | Ending::Detach(..))) => self.rename(now, hold, &how, awaited),
            (Hold::One(claim, token), _) => self.end(now, claim, token, awaited, &[]),
            (Hold::Set(set), _) => self.end_set(now, set, awaited),
        }
    }

    /// The caller was dropped before it took the hold.
    pub(super) fn untaken(&mut self, hold: Hold) {
        for key in self.claims_of(hold) {
            self.claims[key].rules.min_hold = 0;
        }
    }

    /// Ends the hold with this token: its claim is handed over to the next call, or released. `with` has all claims of
    /// its set.
    pub(super) fn end(&mut self, now: Time, key: Key, token: i64, awaited: Option<Awaits<C>>, with: &[Key]) {
        let claim = self.claims.get_mut(key);
        let Some(claim) = claim.filter(|claim| claim.token == token && claim.is_held()) else {
            return self.notify_ended(now, awaited, Ok(Ended::Lost));
        };
        if claim.commits.open > 0 {
            claim.commits.postponed = Some(Postponed::Ending(awaited));
            return;
        }
        let (room, is_of_permit) = (claim.room, claim.permit.is_some());
        self.rooms[room].used = now;
        if self.may_hand_over(now, key, with) {
            self.hand_over(now, key);
            self.notify_ended(now, awaited, Ok(Ended::HandedOver));
        } else {
            let has_turn = is_of_permit || self.rooms[room].turn == Some(key);
            self.release(now, key, awaited, has_turn);
        }
        self.touch(now, room);
    }

    fn hand_over(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        claim.token += 1;
        claim.turn_left = claim.turn_left.saturating_sub(1);
        if let Some(lease) = claim.lease_mut().copied() {
            let renew_at = lease.renew_at.min(now + limits::HANDED_OVER_CHECK);
            self.deliver(now, key, Lease { renew_at, ..lease });
        }
    }

    /// Whether the claim can be handed over to the next call: that call has the same options, and the turn of this
    /// process is not over.
    fn may_hand_over(&self, now: Time, key: Key, with: &[Key]) -> bool {
        let claim = &self.claims[key];
        let Some((_, lease)) = claim.held() else {
            return false;
        };
        let has_time = lease.until - now > claim.rules.expiry * MS / 2;
        let is_plain = claim.rules.min_hold == 0 && claim.rules.once.is_none() && !claim.commits.is_unclear;
        let has_turn = self.rooms[claim.room].turn == Some(key) || claim.permit.is_some();
        let may_pass = claim.token < claim.last && is_plain && has_time && has_turn && self.fits(key);
        may_pass && self.phase != Phase::Closed && self.is_in_turn(now, claim, with)
    }

    /// Whether the turn of this process is not over. If another process wants one lock of a set, the short turn applies
    /// to the whole set.
    fn is_in_turn(&self, now: Time, claim: &Claim<C>, with: &[Key]) -> bool {
        let room = &self.rooms[claim.room];
        let others = with.iter().filter_map(|key| self.claims.get(*key));
        let mut others = others.map(|claim| &self.rooms[claim.room]);
        let has_rivals = room.order.has_rivals(now) || others.any(|room| room.order.has_rivals(now));
        let turn = if has_rivals { TURN } else { TURN_ALONE };
        let turn = turn.max((self.trip * limits::TURN_TRIPS).min(limits::TURN_MOST));
        let age = now - claim.turn_since;
        // A set that has acquired its first locks has only now joined this queue.
        let set = self.first(room).and_then(|call| self.sets.get(call.set?));
        let goes_on = claim.turn_left > 0 || age < limits::TURN_OPEN || set.is_some_and(Set::has_some);
        age < turn && (!has_rivals || goes_on)
    }

    pub(super) fn notify_ended(&mut self, now: Time, awaited: Option<Awaits<C>>, ended: Outcome) {
        match awaited {
            Some(Awaits::Caller(cell)) => self.notify(cell, Notice::Ended(ended)),
            Some(Awaits::Set(set)) => self.part_ended(now, set, ended),
            None => {}
        }
    }

    pub(super) fn renewal_replied(&mut self, now: Time, flight: &Flight, key: Key, reply: &Reply) {
        let claim = &mut self.claims[key];
        let is_renewed = claim.is_renewed_by(reply);
        let (rules, is_held) = (claim.rules, claim.is_held());
        let Some(lease) = claim.lease_mut() else { return };
        if is_renewed {
            lease.until = lease.until.max(flight.sent + relied_on(rules.expiry));
            lease.renew_at = flight.sent + rules.renew_every * MS;
            lease.may_last = now - flight.sent > limits::SLOW;
            lease.is_blocked = false;
            self.commit_decided(flight, key, false);
            self.end_with_mark(key);
            self.notify_extended(key);
            // The timer was that of a renewal without a reply.
            self.disarm(Due::Claim(key));
            self.claim_due(now, key);
        } else if is_held {
            self.renewal_missed(now, flight, key, reply);
        }
    }

    pub(super) fn renewal_failed(&mut self, now: Time, key: Key, fault: &Fault) {
        let (least, most) = limits::RENEWAL_PAUSE;
        if let Some(lease) = self.claims[key].lease_mut() {
            lease.is_blocked = fault.kind == FaultKind::Blocked;
            let pause = (lease.until - now) / limits::RENEWAL_PAUSE_PART;
            lease.renew_at = now + pause.clamp(least, most);
            self.arm_lease(key);
        }
    }

    /// Notifies the holder of the later end of its lease; for a set, of the end of its first lease.
    pub(super) fn notify_extended(&mut self, key: Key) {
        let claim = &self.claims[key];
        if let Some((cell, lease)) = claim.held() {
            let until = claim.set.and_then(|set| self.until(set)).unwrap_or(lease.until);
            self.notify(cell.clone(), Notice::Extended(until));
        }
    }

    /// Sets the timer of a lease: at its end, or at its next renewal if no renewal waits.
    pub(super) fn arm_lease(&mut self, key: Key) {
        let claim = &mut self.claims[key];
        let renews = claim.renews;
        if let Some(lease) = claim.lease_mut() {
            let renew_at = if renews { lease.until } else { lease.renew_at };
            let at = renew_at.min(lease.until);
            self.arm(Due::Claim(key), at);
        }
    }

    /// The lease ends before its holder ends the hold. A transaction that may mark the work must end first, but the
    /// next call does not wait for it.
    pub(super) fn lose(&mut self, now: Time, key: Key, loss: Loss) {
        let claim = &mut self.claims[key];
        let Stage::Held(cell, lease) = &claim.stage else {
            return;
        };
        let may_last = lease.may_last || claim.is_unclear || claim.flights > 0 || self.conf.margin > 0;
        if claim.commits.open > 0 && claim.commits.marks {
            claim.commits.postponed.get_or_insert(Postponed::Loss(loss));
            let room = claim.room;
            self.pass_turn(now, room, key);
            return self.touch(now, room);
        }
        let (cell, room, set) = (cell.clone(), claim.room, claim.set);
        // At the server the lease ends a little later than here.
        let later = now + margin(claim.rules.expiry);
        self.leave_commits(now, key, Ended::Lost);
        self.notify(cell, Notice::Lost(loss));
        if loss == Loss::Expired && !may_last {
            self.end_released(now, now, key);
        } else {
            // A late copy of the claim may have acquired the lock again, and a renewal may have been granted.
            self.release(now, key, None, loss == Loss::ShutDown);
        }
        if loss == Loss::Expired && may_last {
            self.end_at(key, later);
        }
        if loss != Loss::ShutDown {
            self.released(now, room, key);
        }
        self.touch(now, room);
        if let Some(set) = set {
            self.set_lost(now, set, key);
        }
    }

    pub(super) fn claim_due(&mut self, now: Time, key: Key) {
        let claim = &self.claims[key];
        match claim.stage {
            Stage::Asking => self.asking_due(now, key),
            Stage::Held(..) => self.lease_due(now, key),
            Stage::Ending(_) => {
                self.lease_due(now, key);
                self.end_due(now, key);
            }
            Stage::Released => self.released_due(now, key),
        }
    }

    fn lease_due(&mut self, now: Time, key: Key) {
        self.commit_due(now, key);
        let claim = &mut self.claims[key];
        let (is_held, renews) = (claim.is_held(), claim.renews);
        let Some(lease) = claim.lease_mut() else { return };
        match (lease.until <= now, is_held) {
            (true, true) => return self.lose(now, key, Loss::Expired),
            (true, false) => return self.end_in_vain(now, key),
            (false, _) => {}
        }
        if lease.renewable_until <= now {
            lease.renew_at = lease.until;
        } else if lease.renew_at <= now && !renews {
            let is_blocked = lease.is_blocked;
            self.renew(key);
            if !is_blocked {
                self.renew_others(now, key);
            }
        }
        self.arm_lease(key);
    }

    /// Puts the claim into the lane of renewals.
    pub(super) fn renew(&mut self, key: Key) {
        let claim = &mut self.claims[key];
        let is_alone = claim.is_renewed_alone();
        if let Some(lease) = claim.lease_mut() {
            lease.may_last = true;
        }
        claim.renews = true;
        if is_alone {
            self.go_apart(Lane::Renewals, key);
        } else {
            self.lane(Lane::Renewals).waiting.push_back(key);
        }
    }

    /// Renews the hold of this document at once, or all holds.
    pub(super) fn renew_now(&mut self, name: Option<&Name>) {
        for key in self.claims.keys() {
            let claim = &self.claims[key];
            let is_it = |name: &Name| *name == self.document_of(claim);
            if claim.is_held() && !claim.renews && name.is_none_or(is_it) {
                self.renew(key);
            }
        }
    }

    /// Renews other leases with it if they are due soon: within the part [`limits::RENEWAL_TOGETHER`] of a lease, or a
    /// greater part while the server rejects commands.
    fn renew_others(&mut self, now: Time, key: Key) {
        let expiry = self.claims[key].rules.expiry;
        let part = match self.lane(Lane::Renewals).pause {
            0 => limits::RENEWAL_TOGETHER,
            _ => limits::RENEWAL_TOGETHER_OVERLOADED,
        };
        let soon = now + expiry * MS / part;
        let of_claim = |(_, due): &(Time, Due)| match due {
            Due::Claim(key) => Some(*key),
            _ => None,
        };
        let next = self.due.range(..(soon, Due::Stream)).filter_map(of_claim);
        let next: Vec<Key> = next.take(limits::GROUP[Lane::Renewals as usize] - 1).collect();
        for other in next {
            let claim = &self.claims[other];
            if let Stage::Held(_, lease) = claim.stage
                && !(claim.renews || lease.is_blocked)
                && lease.renew_at <= soon
                && lease.renewable_until > now
            {
                self.renew(other);
            }
        }
    }
}

impl<C> Claim<C> {
    /// Whether its renewal may wait in the server, for the end of a transaction or of another operation that blocks its
    /// document.
    pub(super) fn is_renewed_alone(&self) -> bool {
        let is_blocked = self.held().is_some_and(|(_, lease)| lease.is_blocked);
        is_blocked || self.commits.open > 0 || self.commits.unknown.is_some()
    }

    pub(super) fn grant(&self, has_waited: bool) -> Grant {
        Grant {
            id: self.id.clone().unwrap_or_default(),
            token: self.token,
            permit: self.permit,
            mark: self.mark_until.map(|(until, _)| until),
            has_waited,
        }
    }

    /// Counts `max_hold` from this time. Without a time the hold has not begun, because its set waits for other locks.
    pub(super) fn count_hold(&mut self, from: Option<Time>) {
        let longest = from.zip(self.rules.max_hold);
        if let Stage::Held(_, lease) = &mut self.stage {
            let end = longest.map(|(from, most)| from + most.saturating_mul(MS));
            lease.renewable_until = end.unwrap_or(Time::NEVER);
        }
    }

    fn is_renewed_by(&self, reply: &Reply) -> bool {
        let runs = |sight: &Sight| sight.left().is_some_and(|left| left > 0);
        let own = self.own_sight(reply);
        reply.is_applied == Some(true) || own.is_some_and(|(sight, token)| token == self.last && runs(sight))
    }
}
