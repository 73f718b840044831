//! Holds: a claim is delivered to a call, handed over to the next, renewed and lost.

use super::claims::{margin, relied_on};
use super::event::{Effect, Ended, Ending, Fault, Hold, Lane, Loss, Notice};
use super::lanes::Flight;
use super::limits::{
    HANDED_OVER_CHECK, LIMIT, RENEWAL_PAUSE, RENEWAL_PAUSE_PART, RENEWAL_TOGETHER,
    RENEWAL_TOGETHER_OVERLOADED, TURN, TURN_ALONE, TURN_MOST, TURN_OPEN, TURN_TRIPS, group_of,
};
use super::slab::Key;
use super::state::{Claim, Core, Due, Lease, Phase, Postponed, Set, Stage};
use super::time::{MS, Time};
use crate::protocol::Reply;

impl<C: Clone> Core<C> {
    /// The first call gets the lock.
    pub(super) fn deliver(&mut self, now: Time, key: Key, lease: Lease) {
        let first = self
            .claims
            .get(key)
            .and_then(|claim| self.rooms.get(claim.room)?.queue.front().copied());
        let Some((first, call)) = first.and_then(|first| Some((first, self.remove_call(first)?))) else {
            return;
        };
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let renewable_until = claim
            .rules
            .max_hold
            .map_or(Time::NEVER, |most| now + most.saturating_mul(MS));
        let lease = Lease {
            renewable_until,
            ..lease
        };
        claim.stage = Stage::Held {
            cell: call.cell.clone(),
            lease,
        };
        claim.set = call.set;
        let (token, at, until) = (claim.token, lease.next_due(), lease.until);
        self.arm(Due::Claim(key), at);
        match call.set {
            Some(set) => self.set_won(now, set, key, first),
            None => self.notify(
                call.cell,
                Notice::Held {
                    claim: key,
                    token,
                    until,
                },
            ),
        }
    }

    /// A holder is done.
    pub(super) fn end_hold(&mut self, now: Time, hold: Hold, how: Ending, awaited: Option<C>) {
        match (hold, how) {
            (Hold::One { claim, token }, Ending::Release) => self.end(now, claim, token, awaited, &[]),
            (Hold::Set(set), Ending::Release) => self.end_set(now, set, awaited),
            (hold, how) => self.rename(now, hold, how, awaited),
        }
    }

    /// The hold of this token is over: its claim is handed over to the next call, or released. `with`: all claims of its set.
    pub(super) fn end(&mut self, now: Time, key: Key, token: i64, awaited: Option<C>, with: &[Key]) {
        let claim = self
            .claims
            .get_mut(key)
            .filter(|claim| claim.token == token && claim.is_held());
        let Some(claim) = claim else {
            return self.notify_ended(awaited, Ok(Ended::Lost));
        };
        if claim.commits.open > 0 {
            claim.commits.postponed = Some(Postponed::Ending(awaited));
            return;
        }
        let (room, is_of_permit) = (claim.room, claim.permit.is_some());
        if let Some(room) = self.rooms.get_mut(room) {
            room.used = now;
        }
        if self.may_hand_over(now, key, with) {
            self.hand_over(now, key);
            self.notify_ended(awaited, Ok(Ended::Released));
        } else {
            let has_turn = is_of_permit || self.rooms.get(room).is_some_and(|room| room.turn == Some(key));
            self.release(now, key, awaited, has_turn);
        }
        self.touch(now, room);
    }

    fn hand_over(&mut self, now: Time, key: Key) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        claim.token += 1;
        claim.turn_left = claim.turn_left.saturating_sub(1);
        let Some(lease) = claim.lease_mut().copied() else {
            return;
        };
        let renew_at = lease.renew_at.min(now + HANDED_OVER_CHECK);
        self.deliver(now, key, Lease { renew_at, ..lease });
    }

    /// Whether the next call gets the claim as it is: it has the same options, and the turn of this process is not over.
    fn may_hand_over(&self, now: Time, key: Key, with: &[Key]) -> bool {
        let may = || {
            let claim = self.claims.get(key)?;
            let room = self.rooms.get(claim.room)?;
            let Stage::Held { lease, .. } = claim.stage else {
                return None;
            };
            let has_time = lease.until - now > claim.rules.expiry * MS / 2;
            let is_plain =
                claim.rules.min_hold == 0 && claim.rules.once.is_none() && claim.commits.unknown.is_none();
            let has_turn = room.turn == Some(key) || claim.permit.is_some();
            let may_pass = claim.token < claim.last && is_plain && has_time && has_turn && self.fits(key);
            Some(may_pass && self.phase != Phase::Closed && self.is_in_turn(now, claim, with))
        };
        may().unwrap_or(false)
    }

    /// Whether the turn of this process goes on. All locks of a set have the short turn if another process wants one of them.
    fn is_in_turn(&self, now: Time, claim: &Claim<C>, with: &[Key]) -> bool {
        let Some(room) = self.rooms.get(claim.room) else {
            return false;
        };
        let is_wanted = |key: &Key| {
            let room = self.claims.get(*key).and_then(|claim| self.rooms.get(claim.room));
            room.is_some_and(|room| room.order.has_rivals(now))
        };
        let has_rivals = room.order.has_rivals(now) || with.iter().any(is_wanted);
        let turn = if has_rivals { TURN } else { TURN_ALONE };
        let turn = turn.max((self.trip * TURN_TRIPS).min(TURN_MOST));
        let age = now - claim.turn_since;
        // A set that has its first locks came to this queue only now.
        let set = self.first(room).and_then(|call| self.sets.get(call.set?));
        let goes_on = set.is_some_and(Set::has_some);
        age < turn && (!has_rivals || claim.turn_left > 0 || age < TURN_OPEN || goes_on)
    }

    pub(super) fn notify_ended(&mut self, awaited: Option<C>, ended: Result<Ended, Option<Fault>>) {
        if let Some(cell) = awaited {
            self.notify(cell, Notice::Ended(ended));
        }
    }

    pub(super) fn renewal_replied(
        &mut self,
        now: Time,
        flight: &Flight,
        key: Key,
        reply: Result<&Reply, &Fault>,
    ) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let (id, last, rules, room) = (claim.id.clone(), claim.last, claim.rules, claim.room);
        let is_renaming = matches!(claim.stage, Stage::Renaming { .. });
        let Some(lease) = claim.lease_mut() else { return };
        let is_renewed = reply.map(|reply| match &reply.sight {
            _ if reply.is_applied == Some(true) => true,
            Some(sight) => {
                let is_here =
                    id.is_some_and(|id| sight.has(&id)) && sight.document.token.long() == Some(last);
                is_here && sight.left().is_some_and(|left| left > 0)
            }
            None => false,
        });
        match is_renewed {
            Ok(true) => {
                lease.until = lease.until.max(flight.sent + relied_on(rules.expiry));
                lease.renew_at = flight.sent + rules.renew_every * MS;
                self.notify_extended(key);
            }
            // What replaces the id decides alone.
            Ok(false) if is_renaming => {}
            Ok(false) => return self.renewal_missed(now, flight, key, reply),
            Err(fault) => {
                let (least, most) = RENEWAL_PAUSE;
                lease.renew_at = now + ((lease.until - now) / RENEWAL_PAUSE_PART).clamp(least, most);
                if let Some(room) = self.rooms.get(room) {
                    let (name, fault) = (room.name.clone(), fault.clone());
                    self.effects.push(Effect::Report {
                        name,
                        lane: Lane::Renewals,
                        fault,
                    });
                }
            }
        }
        if is_renewed == Ok(true) {
            self.commit_decided(now, flight, key, false);
        }
        self.arm_lease(key);
    }

    /// The holder learns of the later end; of a set that of its first lease.
    fn notify_extended(&mut self, key: Key) {
        let Some(claim) = self.claims.get(key) else { return };
        if let Stage::Held { cell, lease } = &claim.stage {
            let (cell, until) = (cell.clone(), lease.until);
            let until = claim.set.and_then(|set| self.until(set)).unwrap_or(until);
            self.notify(cell, Notice::Extended(until));
        }
    }

    fn arm_lease(&mut self, key: Key) {
        if let Some(lease) = self.claims.get_mut(key).and_then(Claim::lease_mut) {
            let at = lease.next_due();
            self.arm(Due::Claim(key), at);
        }
    }

    /// The lease ends before its holder is done. A transaction that may mark the work decides first.
    pub(super) fn lose(&mut self, now: Time, key: Key, loss: Loss) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let Stage::Held { cell, .. } = &claim.stage else {
            return;
        };
        if claim.commits.open > 0 && claim.commits.marks {
            claim.commits.postponed.get_or_insert(Postponed::Loss(loss));
            return;
        }
        let (cell, room, expiry, set) = (cell.clone(), claim.room, claim.rules.expiry, claim.set);
        let waits_for_commit = claim.commits.unknown.take().and_then(|unknown| unknown.awaited);
        if let Some(cell) = waits_for_commit {
            self.notify(cell, Notice::Committed(Err(None)));
        }
        self.notify(cell, Notice::Lost(loss));
        // The lock is released in any case: a late claim may have acquired it again.
        self.release(now, key, None, loss == Loss::ShutDown);
        if loss == Loss::Expired
            && let Some(claim) = self.claims.get_mut(key)
        {
            // The server keeps the lease a little longer.
            claim.in_lane = None;
            let at = now + margin(expiry);
            if let Some(closing) = claim.closing_mut() {
                closing.due = at;
            }
            self.arm(Due::Claim(key), at);
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
        let Some(claim) = self.claims.get(key) else { return };
        match claim.stage {
            Stage::Asking if claim.resumes.is_some() => self.resumption_due(now, key),
            Stage::Asking => {}
            Stage::Held { .. } => self.lease_due(now, key),
            Stage::Renaming { .. } => {
                self.lease_due(now, key);
                self.renaming_due(now, key);
            }
            Stage::Releasing { .. } | Stage::Released => self.release_due(now, key),
        }
    }

    fn lease_due(&mut self, now: Time, key: Key) {
        self.commit_due(now, key);
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
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
        }
        if lease.renew_at <= now && !renews {
            self.renew(now, key);
            self.renew_others(now, key);
        }
        self.arm_lease(key);
    }

    /// The claim waits for a renewal. One under a transaction waits in the server for its end, and goes alone.
    pub(super) fn renew(&mut self, now: Time, key: Key) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let is_alone = claim.commits.open > 0 || claim.commits.unknown.is_some();
        let Some(lease) = claim.lease_mut() else { return };
        lease.renew_at = now + LIMIT;
        claim.renews = true;
        match is_alone {
            true => self.lanes[Lane::Renewals].apart.push_back(vec![key]),
            false => self.lanes[Lane::Renewals].waiting.push_back(key),
        }
    }

    /// Renews with it what would be due soon. While the server rejects commands, all go with one that could.
    fn renew_others(&mut self, now: Time, key: Key) {
        let Some(expiry) = self.claims.get(key).map(|claim| claim.rules.expiry) else {
            return;
        };
        let part = match self.lanes[Lane::Renewals].pause {
            0 => RENEWAL_TOGETHER,
            _ => RENEWAL_TOGETHER_OVERLOADED,
        };
        let soon = now + expiry * MS / part;
        let claim_of = |(_, due): &(Time, Due)| match due {
            Due::Claim(key) => Some(*key),
            _ => None,
        };
        let next = self.due.range(..(soon, Due::Stream)).filter_map(claim_of);
        let others: Vec<Key> = next.take(group_of(Lane::Renewals)).collect();
        for other in others {
            let fits = |claim: &Claim<C>| claim.rules.expiry == expiry && claim.is_renewed_before(now, soon);
            if self.claims.get(other).is_some_and(fits) {
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
    fn is_renewed_before(&self, now: Time, soon: Time) -> bool {
        match &self.stage {
            Stage::Held { lease, .. } => {
                !self.renews && lease.renew_at <= soon && lease.renewable_until > now
            }
            _ => false,
        }
    }
}
