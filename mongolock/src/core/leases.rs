//! Holds: a claim is delivered to a call, handed over to the next, renewed and lost.

use super::claims::{margin, relied_on};
use super::event::{Effect, Ended, Ending, Fault, Hold, Lane, Loss, Notice};
use super::lanes::Flight;
use super::limits;
use super::slab::Key;
use super::state::{Claim, Core, Due, Lease, Phase, Postponed, Set, Stage};
use super::time::{MS, Time};
use crate::protocol::Reply;

impl<C: Clone> Core<C> {
    /// The first call gets the lock.
    pub(super) fn deliver(&mut self, now: Time, key: Key, lease: Lease) {
        let room = &self.rooms[self.claims[key].room];
        let first = room.queue[0];
        let Some(call) = self.remove_call(first) else {
            return;
        };
        self.hold(now, key, call.caller.cell.clone(), lease);
        let claim = &mut self.claims[key];
        claim.set = call.set;
        let (token, until) = (claim.token, lease.until);
        match call.set {
            Some(set) => self.set_won(now, set, key, first),
            None => self.notify(call.caller.cell, Notice::Held(Hold::One(key, token), until)),
        }
    }

    /// The claim is that of a holder, and renewed.
    pub(super) fn hold(&mut self, now: Time, key: Key, cell: C, lease: Lease) {
        let claim = &mut self.claims[key];
        let max_hold = claim.rules.max_hold.map(|most| now + most.saturating_mul(MS));
        let renewable_until = max_hold.unwrap_or(Time::NEVER);
        let lease = Lease {
            renewable_until,
            ..lease
        };
        claim.stage = Stage::Held(cell, lease);
        self.arm(Due::Claim(key), lease.next_due());
    }

    /// A holder is done.
    pub(super) fn end_hold(&mut self, now: Time, hold: Hold, how: Ending, awaited: Option<C>) {
        match (hold, how) {
            (Hold::One(claim, token), Ending::Release) => self.end(now, claim, token, awaited, &[]),
            (Hold::Set(set), Ending::Release) => self.end_set(now, set, awaited),
            (hold, how) => self.rename(now, hold, &how, awaited),
        }
    }

    /// The hold of this token is over: its claim is handed over to the next call, or released. `with`: all claims of its set.
    pub(super) fn end(&mut self, now: Time, key: Key, token: i64, awaited: Option<C>, with: &[Key]) {
        let claim = self.claims.get_mut(key);
        let Some(claim) = claim.filter(|claim| claim.token == token && claim.is_held()) else {
            return self.notify_ended(awaited, Ok(Ended::Lost));
        };
        if claim.commits.open > 0 {
            claim.commits.postponed = Some(Postponed::Ending(awaited));
            return;
        }
        let (room, is_of_permit) = (claim.room, claim.permit.is_some());
        self.rooms[room].used = now;
        if self.may_hand_over(now, key, with) {
            self.hand_over(now, key);
            self.notify_ended(awaited, Ok(Ended::Released));
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

    /// Whether the next call gets the claim as it is: it has the same options, and the turn of this process is not over.
    fn may_hand_over(&self, now: Time, key: Key, with: &[Key]) -> bool {
        let claim = &self.claims[key];
        let Stage::Held(_, lease) = claim.stage else {
            return false;
        };
        let has_time = lease.until - now > claim.rules.expiry * MS / 2;
        let is_plain =
            claim.rules.min_hold == 0 && claim.rules.once.is_none() && claim.commits.unknown.is_none();
        let has_turn = self.rooms[claim.room].turn == Some(key) || claim.permit.is_some();
        let may_pass = claim.token < claim.last && is_plain && has_time && has_turn && self.fits(key);
        may_pass && self.phase != Phase::Closed && self.is_in_turn(now, claim, with)
    }

    /// Whether the turn of this process goes on. All locks of a set have the short turn if another process wants one of them.
    fn is_in_turn(&self, now: Time, claim: &Claim<C>, with: &[Key]) -> bool {
        let room = &self.rooms[claim.room];
        let others = with.iter().filter_map(|key| self.claims.get(*key));
        let mut others = others.map(|claim| &self.rooms[claim.room]);
        let has_rivals = room.order.has_rivals(now) || others.any(|room| room.order.has_rivals(now));
        let turn = if has_rivals {
            limits::TURN
        } else {
            limits::TURN_ALONE
        };
        let turn = turn.max((self.trip * limits::TURN_TRIPS).min(limits::TURN_MOST));
        let age = now - claim.turn_since;
        // A set that has its first locks came to this queue only now.
        let set = self.first(room).and_then(|call| self.sets.get(call.set?));
        let goes_on = claim.turn_left > 0 || age < limits::TURN_OPEN || set.is_some_and(Set::has_some);
        age < turn && (!has_rivals || goes_on)
    }

    pub(super) fn notify_ended(&mut self, awaited: Option<C>, ended: Result<Ended, Option<Fault>>) {
        if let Some(cell) = awaited {
            self.notify(cell, Notice::Ended(ended));
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
            self.commit_decided(flight, key, false);
            self.end_with_mark(key);
            self.notify_extended(key);
            self.arm_lease(key);
        } else if is_held {
            self.renewal_missed(now, flight, key, reply);
        }
    }

    pub(super) fn renewal_failed(&mut self, now: Time, key: Key, fault: &Fault) {
        let (least, most) = limits::RENEWAL_PAUSE;
        if let Some(lease) = self.claims[key].lease_mut() {
            let pause = (lease.until - now) / limits::RENEWAL_PAUSE_PART;
            lease.renew_at = now + pause.clamp(least, most);
            self.report(key, Lane::Renewals, fault);
            self.arm_lease(key);
        }
    }

    pub(super) fn report(&mut self, key: Key, lane: Lane, fault: &Fault) {
        let name = self.rooms[self.claims[key].room].name.clone();
        self.effects.push(Effect::Report(name, lane, fault.clone()));
    }

    /// The holder learns of the later end; of a set that of its first lease.
    pub(super) fn notify_extended(&mut self, key: Key) {
        let claim = &self.claims[key];
        if let Stage::Held(cell, lease) = &claim.stage {
            let (cell, own) = (cell.clone(), lease.until);
            let until = claim.set.and_then(|set| self.until(set)).unwrap_or(own);
            self.notify(cell, Notice::Extended(until));
        }
    }

    fn arm_lease(&mut self, key: Key) {
        if let Some(at) = self.claims[key].lease_mut().map(|lease| lease.next_due()) {
            self.arm(Due::Claim(key), at);
        }
    }

    /// The lease ends before its holder is done. A transaction that may mark the work decides first.
    pub(super) fn lose(&mut self, now: Time, key: Key, loss: Loss) {
        let claim = &mut self.claims[key];
        let Stage::Held(cell, _) = &claim.stage else {
            return;
        };
        if claim.commits.open > 0 && claim.commits.marks {
            claim.commits.postponed.get_or_insert(Postponed::Loss(loss));
            return;
        }
        let (cell, room, set) = (cell.clone(), claim.room, claim.set);
        // The server keeps the lease a little longer.
        let later = now + margin(claim.rules.expiry);
        self.leave_commits(key, Ended::Lost);
        self.notify(cell, Notice::Lost(loss));
        // The lock is released in any case: a late claim may have acquired it again.
        self.release(now, key, None, loss == Loss::ShutDown);
        if let (Loss::Expired, Some(closing)) = (loss, self.claims[key].closing_mut()) {
            closing.due = later;
            self.claims[key].in_lane = None;
            self.arm(Due::Claim(key), later);
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
            Stage::Asking if claim.resumes.is_some() => self.resumption_due(now, key),
            Stage::Asking => {}
            Stage::Held(..) => self.lease_due(now, key),
            Stage::Renaming(..) => {
                self.lease_due(now, key);
                self.renaming_due(now, key);
            }
            Stage::Releasing(..) => self.release_due(now, key),
            Stage::Released => self.released_due(now, key),
        }
    }

    fn lease_due(&mut self, now: Time, key: Key) {
        self.commit_due(now, key);
        let claim = &mut self.claims[key];
        let (is_held, renews) = (claim.is_held(), claim.renews);
        let Some(lease) = claim.lease_mut() else { return };
        if lease.until <= now {
            if is_held {
                self.lose(now, key, Loss::Expired);
            }
            return;
        }
        if lease.renewable_until <= now {
            lease.renew_at = lease.until;
        } else if lease.renew_at <= now && !renews {
            self.renew(now, key);
            self.renew_others(now, key);
        }
        self.arm_lease(key);
    }

    /// The claim waits for a renewal. One under a transaction waits in the server for its end, and goes alone.
    pub(super) fn renew(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        let is_alone = claim.commits.open > 0 || claim.commits.unknown.is_some();
        let Some(lease) = claim.lease_mut() else { return };
        lease.renew_at = now + limits::LIMIT;
        claim.renews = true;
        let queue = &mut self.lanes[Lane::Renewals];
        if is_alone {
            queue.apart.push_back(vec![key]);
        } else {
            queue.waiting.push_back(key);
        }
    }

    /// Renews with it what would be due soon. While the server rejects commands, all go with one that could.
    fn renew_others(&mut self, now: Time, key: Key) {
        let expiry = self.claims[key].rules.expiry;
        let part = match self.lanes[Lane::Renewals].pause {
            0 => limits::RENEWAL_TOGETHER,
            _ => limits::RENEWAL_TOGETHER_OVERLOADED,
        };
        let soon = now + expiry * MS / part;
        let of_claim = |(_, due): &(Time, Due)| match due {
            Due::Claim(key) => Some(*key),
            _ => None,
        };
        let next = self.due.range(..(soon, Due::Stream)).filter_map(of_claim);
        let next: Vec<Key> = next.take(limits::group_of(Lane::Renewals)).collect();
        for other in next {
            let claim = &self.claims[other];
            if let Stage::Held(_, lease) = claim.stage
                && claim.rules.expiry == expiry
                && !claim.renews
                && lease.renew_at <= soon
                && lease.renewable_until > now
            {
                self.renew(now, other);
            }
        }
    }
}

impl Lease {
    pub(super) fn next_due(&self) -> Time {
        self.until.min(self.renew_at)
    }
}

impl<C> Claim<C> {
    fn is_renewed_by(&self, reply: &Reply) -> bool {
        let is_here = || {
            let (sight, id) = (reply.sight.as_ref()?, self.id.as_ref()?);
            let has_token = sight.document.token.long() == Some(self.last);
            Some(sight.has(id) && has_token && sight.left()? > 0)
        };
        reply.is_applied == Some(true) || is_here().unwrap_or(false)
    }
}
