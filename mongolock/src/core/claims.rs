//! The replies to claims.

use super::event::{Cause, Fault, FaultKind, Lane, Loss, Seen};
use super::lanes::Flight;
use super::limits::{FIRST_TRIPS, TOKENS};
use super::slab::Key;
use super::state::{Claim, Core, Lease, Phase, Stage};
use super::time::{MS, Span, Time};
use crate::protocol::{Ms, Reply, Sight};

/// The part of a lease that its holder relies on: the clocks of two hosts can differ by 1 %, and times are whole milliseconds.
pub(super) fn relied_on(lasts: Ms) -> Span {
    lasts * MS - margin(lasts)
}

/// The time for which the server keeps a lease longer than its holder relies on it.
pub(super) fn margin(lasts: Ms) -> Span {
    lasts * MS / 100 + 2 * MS
}

impl<C: Clone> Core<C> {
    /// What a command says of one claim.
    pub(super) fn replied(&mut self, now: Time, flight: &Flight, key: Key, reply: Result<&Reply, &Fault>) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        if flight.lane == Lane::Claims {
            claim.landed(now, flight, reply.is_err_and(|fault| fault.kind.is_unclear()));
        }
        let room_key = claim.room;
        if let Ok(reply) = reply
            && let Some(room) = self.rooms.get_mut(room_key)
        {
            room.replied = now;
            if let Some(server) = reply.sight.as_ref().and_then(|sight| sight.now) {
                self.note_period(now, flight, room_key, server);
            }
        }
        match flight.lane {
            Lane::Claims => self.claim_replied(now, flight, key, reply),
            Lane::Ends => self.end_replied(now, key, reply),
            Lane::Renewals => self.renewal_replied(now, flight, key, reply),
            Lane::Looks => {}
        }
        self.touch(now, room_key);
    }

    fn claim_replied(&mut self, now: Time, flight: &Flight, key: Key, reply: Result<&Reply, &Fault>) {
        if reply.is_ok() {
            self.note_trip(now - flight.sent);
        }
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let own = reply.ok().and_then(|reply| claim.own_sight(reply));
        let seen = reply
            .ok()
            .and_then(|reply| Seen::of(reply.sight.as_ref()?, self.conf.margin));
        match (&mut claim.stage, own, reply) {
            (Stage::Asking, Some((sight, last)), _) => self.won(now, flight, key, sight, last),
            (Stage::Asking, None, Ok(reply)) if claim.resumes.is_some() => {
                self.resumption_missed(now, key, reply)
            }
            (Stage::Asking, None, Ok(_)) if claim.permit.is_some() => {
                self.permit_missed(now, flight, key, seen)
            }
            (Stage::Asking, None, Ok(_)) => {
                let room = claim.room;
                if let Some(seen) = seen {
                    self.missed(now, flight, room, seen);
                }
                self.withdraw(now, key);
            }
            (Stage::Asking, _, Err(fault)) => self.claim_failed(now, flight, key, fault),
            // An operator has released the lock, and a late claim has acquired it again, with other tokens.
            (Stage::Held { .. } | Stage::Renaming { .. }, Some((_, last)), _) => {
                if last > claim.last {
                    self.lose(now, key, Loss::Gone);
                }
            }
            (
                Stage::Releasing {
                    is_acquired_again, ..
                },
                Some(_),
                _,
            ) => *is_acquired_again = true,
            (Stage::Released, Some(_), _) => self.release(now, key, None, false),
            (Stage::Released, None, _) => self.end_released(now, key),
            _ => {}
        }
    }

    fn claim_failed(&mut self, now: Time, flight: &Flight, key: Key, fault: &Fault) {
        let Some(claim) = self.claims.get(key) else { return };
        let (room_key, is_of_permit) = (claim.room, claim.permit.is_some());
        if claim.resumes.is_some() {
            return self.resumption_failed(now, key, fault);
        }
        self.note_fault(now, room_key, fault);
        let has_turn = self
            .rooms
            .get(room_key)
            .is_some_and(|room| room.turn == Some(key));
        // Another permit may be free whose document is not blocked; and what has asked beside the turn does not ask twice.
        if is_of_permit && (fault.kind == FaultKind::Blocked || !has_turn) {
            self.permit_missed(now, flight, key, None);
        } else if !is_of_permit {
            self.withdraw(now, key);
        }
    }

    /// A claim has its lock. It is for the first call of its room, if that has the same options.
    fn won(&mut self, now: Time, flight: &Flight, key: Key, sight: &Sight, last: i64) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let (room_key, rules) = (claim.room, claim.rules);
        let left = sight.left().unwrap_or(rules.expiry).min(rules.expiry);
        let lease = Lease {
            until: flight.sent + relied_on(left),
            renew_at: flight.sent + rules.renew_every * MS,
            renewable_until: Time::NEVER,
        };
        (claim.last, claim.token) = (last, last - (TOKENS - 1));
        let acquired_at = sight.document.acquired_at.date();
        claim.mark_until = rules.once.zip(acquired_at).map(|(once, at)| once.mark_until(at));
        if claim.resumes.is_some() {
            return self.resumed(now, key, lease);
        }
        let fits = self.fits(key);
        self.stops_asking(key);
        if lease.until <= now || !fits || self.phase == Phase::Closed {
            return self.release(now, key, None, true);
        }
        if self.is_after_period(key, acquired_at, now - flight.sent) {
            self.release(now, key, None, true);
            if let Some(first) = self
                .rooms
                .get(room_key)
                .and_then(|room| room.queue.front().copied())
            {
                self.fail(now, first, Cause::PeriodOver);
            }
            return;
        }
        if let (Some(room), Some(claim)) = (self.rooms.get_mut(room_key), self.claims.get_mut(key)) {
            room.order.acquired(now);
            (room.misses, room.is_outdated) = (0, false);
            (claim.turn_since, claim.turn_left) = (now, room.queue.len() - 1);
        }
        self.deliver(now, key, lease);
    }

    /// Whether the first call of its room can have this claim.
    pub(super) fn fits(&self, key: Key) -> bool {
        let fits = || {
            let claim = self.claims.get(key)?;
            let call = self.first(self.rooms.get(claim.room)?)?;
            Some(call.rules == claim.rules && claim.permit.is_none_or(|number| number < call.width))
        };
        fits().unwrap_or(false)
    }

    /// Whether the lock was acquired after the period of the first call, counted from the request: the server can have delayed it.
    fn is_after_period(&self, key: Key, acquired_at: Option<Ms>, since_request: Span) -> bool {
        let is_after = || {
            let claim = self.claims.get(key)?;
            let period = self.first(self.rooms.get(claim.room)?)?.period?;
            Some(period.is_over(acquired_at?, since_request))
        };
        is_after().unwrap_or(false)
    }

    /// Single slow replies say little, and the first ones have opened a connection.
    fn note_trip(&mut self, took: Span) {
        if self.trips < FIRST_TRIPS {
            self.trip = if self.trips == 0 {
                took
            } else {
                self.trip.min(took)
            };
            self.trips += 1;
        } else {
            self.trip += (took - self.trip).min(self.trip.max(MS)) / 8;
        }
    }
}

impl<C> Claim<C> {
    /// What the reply says of the document, and its token, if this claim has the lock.
    fn own_sight<'a>(&self, reply: &'a Reply) -> Option<(&'a Sight, i64)> {
        let sight = reply
            .sight
            .as_ref()
            .filter(|sight| self.id.as_deref().is_some_and(|id| sight.has(id)))?;
        Some((sight, sight.document.token.long()?))
    }

    /// A claim has had its reply, or has ended without one: what the driver has sent by now ends at the server by its limit.
    pub(super) fn landed(&mut self, now: Time, flight: &Flight, is_unclear: bool) {
        self.flights -= 1;
        if is_unclear {
            (self.is_unclear, self.dead_at) = (true, self.dead_at.max(now + flight.limit));
        }
    }
}
