//! Leases: they are renewed and lost.

use super::claims::{margin, relied_on};
use super::event::{Ended, Fault, FaultKind, Lane, LossReason, Notice};
use super::lanes::Flight;
use super::limits;
use super::slab::Key;
use super::state::{Claim, Core, Due, LeaseTimes, Postponed};
use super::time::{MS, Time};
use crate::protocol::{Name, Reply, RowOrder, Sight};

impl<C: Clone> Core<C> {
    pub(super) fn renewal_replied(&mut self, now: Time, flight: &Flight, key: Key, reply: &Reply) {
        let claim = &mut self.claims[key];
        let is_renewed = claim.is_renewed_by(reply);
        let (rules, is_held) = (claim.rules.clone(), claim.is_held());
        let Some(lease) = &mut claim.lease else { return };
        if is_renewed {
            lease.until = lease.until.max(flight.sent + relied_on(rules.expiry));
            lease.renew_at = flight.sent + rules.renew_every * MS;
            lease.may_last = now - flight.sent > limits::SLOW;
            lease.is_blocked = false;
            self.commit_decided(flight, key, false);
            self.end_with_mark(now, key);
            self.notify_extended(key);
            // The timer was that of a renewal without a reply.
            self.disarm(Due::Claim(key));
        } else if is_held {
            self.renewal_missed(now, flight, key, reply);
        }
    }

    pub(super) fn renewal_failed(&mut self, now: Time, key: Key, fault: &Fault) {
        if let Some(lease) = &mut self.claims[key].lease {
            lease.is_blocked = fault.kind == FaultKind::Blocked;
            lease.renew_at = now + limits::LANE_PAUSES[Lane::Renewals as usize];
        }
    }

    /// Notifies the holder of the later end of its lease; for a set, of the end of its first lease.
    pub(super) fn notify_extended(&mut self, key: Key) {
        let claim = &self.claims[key];
        if let Some(until) = claim.caller.and_then(|caller| self.until(caller)) {
            let cell = self.holder(claim).cloned();
            self.notify(cell, Notice::Extended(until));
        }
    }

    /// The lease ends before its holder ends the hold. A transaction that may mark the work must end first, but the
    /// next call does not wait for it.
    pub(super) fn lose(&mut self, now: Time, key: Key, loss: LossReason) {
        // A shutdown loses all claims, and a set that loses one of them gives up others.
        let held = self.claims.get_mut(key).filter(|claim| claim.is_held());
        let Some((claim, lease)) = held.and_then(|claim| claim.lease.map(|lease| (claim, lease))) else {
            return;
        };
        let may_last = lease.may_last || claim.may_come() || self.conf.margin > 0;
        if claim.commits.open > 0 && claim.commits.marks {
            claim.commits.postponed.get_or_insert(Postponed::Loss(loss));
            let room = claim.room;
            // Those who wait for the end of the lease do not wait for the transaction.
            self.notify_extended(key);
            self.pass_turn(now, room, key);
            return self.touch(now, room);
        }
        let (room, caller) = (claim.room, claim.caller);
        // At the server the lease ends a little later than here.
        let later = now + margin(claim.rules.expiry);
        let cell = self.holder(&self.claims[key]).cloned();
        self.notify(cell, Notice::Lost(loss));
        if loss != LossReason::Expired {
            self.release(now, key, None);
        } else if may_last {
            // A late copy of the claim may have acquired the lock again, and a renewal may have been granted.
            self.begin_release(now, key, None);
            self.claims[key].again_at = later;
            self.arm_claim(now, key);
        } else {
            self.end_released(now, now, key, Ended::Lost);
        }
        if loss != LossReason::ShutDown {
            self.released(now, room, key);
        }
        self.touch(now, room);
        if let Some(caller) = caller {
            self.begin_again(now, caller, room);
        }
    }

    pub(super) fn lease_due(&mut self, now: Time, key: Key) {
        // The holder waits for an unknown outcome no longer than a command can take.
        let unknown = self.claims[key].commits.unknown.as_ref();
        if unknown.is_some_and(|unknown| unknown.limit <= now) {
            self.tell_outcome(key, None);
        }
        let claim = &mut self.claims[key];
        let (is_held, renews) = (claim.is_held(), claim.waits_in(Lane::Renewals));
        let Some(lease) = &mut claim.lease else { return };
        match (lease.until <= now, is_held) {
            (true, true) => return self.lose(now, key, LossReason::Expired),
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
    }

    /// Puts the claim into the lane of renewals.
    pub(super) fn renew(&mut self, key: Key) {
        let claim = &mut self.claims[key];
        let is_alone = claim.is_renewed_alone();
        if let Some(lease) = &mut claim.lease {
            lease.may_last = true;
        }
        if is_alone {
            self.go_apart(Lane::Renewals, RowOrder::Each, vec![key]);
        } else {
            self.push(key, Lane::Renewals);
        }
    }

    /// Renews the hold of this document at once, or all holds.
    pub(super) fn renew_now(&mut self, name: Option<&Name>) {
        for key in self.claims.keys() {
            let claim = &self.claims[key];
            let is_it = |name: &Name| *name == self.document_of(claim);
            if claim.is_held() && !claim.waits_in(Lane::Renewals) && name.is_none_or(is_it) {
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
        let next = self
            .due
            .range(..(soon, Due::Stream))
            .filter_map(|(_, due)| match due {
                Due::Claim(key) => Some(*key).filter(|key| self.claims[*key].may_be_renewed(now, soon)),
                _ => None,
            });
        let next: Vec<Key> = next.take(limits::GROUP[Lane::Renewals as usize] - 1).collect();
        for other in next {
            self.renew(other);
        }
    }
}

impl Claim {
    /// Whether its renewal may wait in the server, for the end of a transaction or of another operation that blocks its
    /// document.
    pub(super) fn is_renewed_alone(&self) -> bool {
        let is_blocked = self.is_held() && self.lease.is_some_and(|lease| lease.is_blocked);
        is_blocked || self.commits.open > 0 || self.commits.unknown.is_some()
    }

    /// Whether it is renewed with another claim: it is due soon, and its renewal does not wait for anything.
    fn may_be_renewed(&self, now: Time, soon: Time) -> bool {
        let is_due = |lease: LeaseTimes| lease.renew_at <= soon && lease.renewable_until > now;
        let lease = self.lease.filter(|lease| !lease.is_blocked);
        self.is_held() && !self.waits_in(Lane::Renewals) && lease.is_some_and(is_due)
    }

    fn is_renewed_by(&self, reply: &Reply) -> bool {
        let runs = |sight: &Sight| sight.left().is_some_and(|left| left > 0);
        let own = self.own_sight(reply);
        reply.is_applied == Some(true) || own.is_some_and(|(sight, token)| token == self.last && runs(sight))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sight;
    use super::*;
    use crate::protocol::Ms;

    #[test]
    fn a_renewal_that_was_not_applied_renews_a_lease_that_lasts_and_no_other() {
        let claim = Claim {
            id: Some("own".into()),
            last: 9,
            ..Claim::default()
        };
        let renews = |id: &str, token: i64, left: Ms| {
            let sight = Some(sight(id, token, left));
            claim.is_renewed_by(&Reply {
                is_applied: Some(false),
                sight,
            })
        };
        assert!(renews("own", 9, 1));
        assert!(!renews("own", 9, 0) && !renews("own", 9, -1), "it is over");
        assert!(!renews("own", 8, 1) && !renews("other", 9, 1));
        let applied = |is_applied| {
            claim.is_renewed_by(&Reply {
                is_applied,
                sight: None,
            })
        };
        assert!(applied(Some(true)) && !applied(Some(false)) && !applied(None));
    }
}
