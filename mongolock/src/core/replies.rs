//! The end of a command: what its replies say of their claims. Rows that have failed together are sent separately.

use super::event::{Effect, FailedCommand, Fault, FaultKind, Lane, LossReason, Report, Saw, Seen};
use super::lanes::{Flight, LANES};
use super::limits::{FIRST_TRIPS, LANE_PAUSES, PAUSE, RENEWALS_APART};
use super::order::part_of;
use super::slab::Key;
use super::state::{Claim, Core, Stage};
use super::time::{MS, Span, Time};
use crate::protocol::{Reply, RowOrder};

impl<C: Clone> Core<C> {
    /// A command has ended: each of its claims gets its reply.
    pub(super) fn ran(&mut self, now: Time, key: Key, result: Result<Vec<Reply>, Fault>) {
        if let Some((flight, replies)) = self.replies_of(now, key, result) {
            let is_missed = |core: &Self, key: Key, reply: &Reply| {
                let own = core.claims.get(key).and_then(|own| own.own_sight(reply));
                flight.order == RowOrder::StopAtMiss && own.is_none()
            };
            // What a set has missed is not under way any more when another part of it is given up.
            for (claim, reply) in flight.keys.iter().zip(&replies) {
                if is_missed(self, *claim, reply) {
                    self.lands(now, &flight, *claim, None);
                }
            }
            for (claim, reply) in flight.keys.iter().zip(&replies) {
                if !is_missed(self, *claim, reply) {
                    self.lands(now, &flight, *claim, None);
                }
                self.replied(now, &flight, *claim, Ok(reply));
            }
        }
    }

    /// A command has ended: it is no longer in flight for this claim.
    pub(super) fn lands(&mut self, now: Time, flight: &Flight, key: Key, fault: Option<&Fault>) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.landed(now, flight, fault);
        }
    }

    /// What a command says of one claim.
    pub(super) fn replied(&mut self, now: Time, flight: &Flight, key: Key, reply: Result<&Reply, &Fault>) {
        let Some(claim) = self.claims.get(key) else {
            return;
        };
        let room = claim.room;
        if let Ok(reply) = reply {
            self.rooms[room].replied = now;
            if let Some(server) = reply.sight.as_ref().and_then(|sight| sight.now) {
                self.note_period(now, flight, room, server);
            }
        }
        match (flight.lane, reply) {
            (Lane::Claims, Ok(reply)) => self.claim_replied(now, flight, key, reply),
            (Lane::Claims, Err(fault)) => self.claim_failed(now, flight, key, fault),
            (Lane::Ends, _) if self.claims[key].is_ended_since(flight) => {}
            (Lane::Ends, Ok(reply)) => self.end_replied(now, flight.sent, key, reply),
            (Lane::Ends, Err(fault)) => self.end_failed(now, key, fault),
            (Lane::Renewals, Ok(reply)) => self.renewal_replied(now, flight, key, reply),
            (Lane::Renewals, Err(fault)) => self.renewal_failed(now, key, fault),
            (Lane::Looks, _) => {}
        }
        self.claim_due(now, key);
        self.touch(now, room);
    }

    fn claim_replied(&mut self, now: Time, flight: &Flight, key: Key, reply: &Reply) {
        self.note_trip(now - flight.sent);
        let (claim, margin) = (&mut self.claims[key], self.conf.margin);
        let (room, own) = (claim.room, claim.own_sight(reply));
        let seen = || Seen::of(reply.sight.as_ref(), margin);
        match (&mut claim.stage, own) {
            (Stage::Asking, Some((sight, last))) => self.won(now, flight, key, sight, last),
            (Stage::Asking, None) if claim.resumes.is_some() => {
                self.resumption_missed(now, flight, key, reply);
            }
            (Stage::Asking, None) if claim.permit.is_some() => self.permit_missed(now, flight, key, seen()),
            (Stage::Asking, None) => {
                // A row that was not applied and has no document: another client has inserted the document at the same
                // time.
                let is_inserted = reply.sight.is_none() && reply.is_applied == Some(false);
                if let Some(seen) = seen().or_else(|| is_inserted.then(Seen::default)) {
                    self.missed(now, flight, room, &seen);
                }
                self.withdraw(room);
            }
            // An operator has released the lock, and a late copy of the claim has acquired it again, with other tokens.
            (Stage::Held, Some((_, last))) if last > claim.last => self.lose(now, key, LossReason::Gone),
            (Stage::Ending(closing), Some((_, last))) => closing.is_acquired_again |= last > claim.last,
            (Stage::Released, Some(_)) => self.release(now, key, None),
            _ => {}
        }
    }

    fn claim_failed(&mut self, now: Time, flight: &Flight, key: Key, fault: &Fault) {
        let claim = &self.claims[key];
        match claim.stage {
            Stage::Asking if claim.resumes.is_some() => self.resumption_failed(now, key, fault),
            Stage::Asking => {
                let (room, is_of_permit) = (claim.room, claim.permit.is_some());
                self.note_fault(now, room, fault);
                // Another permit may be free whose document is not blocked. A claim that asks beside the turn does not
                // ask twice.
                let asks_for_another = fault.kind == FaultKind::Blocked || self.rooms[room].turn != Some(key);
                if !is_of_permit {
                    self.withdraw(room);
                } else if asks_for_another {
                    self.permit_missed(now, flight, key, None);
                }
            }
            _ => {}
        }
    }

    /// Updates the estimated time of a command. A single slow reply changes it little. Of the first replies the fastest
    /// counts, because the first ones include the time to open a connection.
    fn note_trip(&mut self, took: Span) {
        match self.trips {
            0 => self.trip = took,
            1..FIRST_TRIPS => self.trip = self.trip.min(took),
            _ => self.trip += (took - self.trip).min(self.trip.max(MS)) / 8,
        }
        self.trips = (self.trips + 1).min(FIRST_TRIPS);
    }

    pub(super) fn looked(&mut self, now: Time, key: Key, result: Result<Vec<Saw>, Fault>) {
        if let Some((flight, found)) = self.replies_of(now, key, result) {
            for (room, saw) in flight.keys.iter().zip(&found) {
                self.looked_at(now, &flight, *room, saw);
            }
        }
    }

    /// The command with this key, and its replies. If it has failed, the consequences are applied.
    fn replies_of<T>(&mut self, now: Time, key: Key, result: Result<T, Fault>) -> Option<(Flight, T)> {
        let flight = self.flights.remove(key)?;
        match result {
            Ok(replies) => {
                // A reply reduces the lane's pause after rejections to a quarter.
                let queue = self.lane(flight.lane);
                let pause = queue.pause / 4;
                queue.pause = if pause < PAUSE.0 { 0 } else { pause };
                Some((flight, replies))
            }
            Err(fault) => {
                self.failed(now, &flight, fault);
                None
            }
        }
    }

    fn look_failed(&mut self, now: Time, key: Key, fault: &Fault) {
        if self.rooms.get(key).is_some() {
            self.ask_now(now, key);
            self.note_fault(now, key, fault);
            self.rooms[key].looks = fault.kind == FaultKind::Overloaded;
            self.touch(now, key);
        }
    }

    fn failed(&mut self, now: Time, flight: &Flight, mut fault: Fault) {
        let lane = flight.lane;
        let holder = self.holder_of_flight(flight);
        let is_together = flight.keys.len() > 1;
        let is_rejected = fault.kind == FaultKind::Overloaded;
        let is_of_document = fault.kind == FaultKind::Refused && fault.may_be_applied;
        // The fault may be that of one row. Renewals whose connection was cut are sent together again.
        let may_be_of_one = match lane {
            Lane::Looks => false,
            Lane::Renewals => fault.kind == FaultKind::Blocked || is_of_document,
            _ => (fault.kind != FaultKind::Refused || is_of_document) && flight.order == RowOrder::Each,
        };
        if fault.kind == FaultKind::Blocked && is_together {
            // Those before the blocked document are applied.
            (fault.kind, fault.may_be_applied) = (FaultKind::Failed, true);
        }
        let is_split = is_together && may_be_of_one && !is_rejected;
        if is_rejected {
            self.pause_lanes(now, lane);
        }
        if is_split || is_rejected && lane != Lane::Looks {
            self.send_again(now, flight, &fault, is_rejected);
        } else {
            for key in &flight.keys {
                if lane == Lane::Looks {
                    self.look_failed(now, *key, &fault);
                } else {
                    self.lands(now, flight, *key, Some(&fault));
                    self.replied(now, flight, *key, Err(&fault));
                }
            }
        }
        if !is_split || lane == Lane::Renewals {
            self.report(now, flight, &fault, holder);
        }
    }

    /// The cell that holds the first claim of a command, or waits for its end; `None` for a look.
    fn holder_of_flight(&self, flight: &Flight) -> Option<C> {
        let mut keys = flight.keys.iter().filter(|_| flight.lane != Lane::Looks);
        let claim = keys.find_map(|key| self.claims.get(*key))?;
        match &claim.stage {
            Stage::Ending(closing) => self.callers.get(closing.of?)?.waiter.clone(),
            _ => self.holder(claim).cloned(),
        }
    }

    /// Reports a failed command, after its consequences were applied. It may have ended the hold of this cell.
    fn report(&mut self, now: Time, flight: &Flight, fault: &Fault, holder: Option<C>) {
        let (mut keys, lane) = (flight.keys.iter(), flight.lane);
        let (claim, room) = if lane == Lane::Looks {
            (None, keys.find_map(|key| self.rooms.get(*key)))
        } else {
            let claim = keys.find_map(|key| self.claims.get(*key));
            (claim, claim.map(|claim| &self.rooms[claim.room]))
        };
        let Some(room) = room else { return };
        let asks = matches!(lane, Lane::Claims | Lane::Looks);
        let first = self.first(room).filter(|_| asks);
        let repeated_at = match claim.map(|claim| &claim.stage) {
            _ if lane == Lane::Renewals => Some(now),
            _ if fault.kind == FaultKind::Refused => None,
            _ if asks => first.map(|_| room.pause_until),
            Some(Stage::Ending(_)) => claim.and_then(|claim| claim.due),
            _ => None,
        };
        let of_call = || first.map(|caller| caller.join.cell.clone());
        let failed = FailedCommand {
            lane,
            number: flight.keys.len(),
            name: claim.map_or_else(|| room.name.clone(), |claim| self.document_of(claim)),
            cell: holder.or_else(of_call),
            fault: fault.clone(),
            pause: repeated_at.map(|at| (at.max(self.lanes[flight.lane as usize].resumes_at) - now).max(0)),
        };
        self.effects.push(Effect::Report(Report::Failed(failed)));
    }

    /// The claims of a command that has failed wait for another one. Rejected ones are sent with the next command of the lane, before all
    /// others; otherwise each goes alone, and of renewals a few together.
    fn send_again(&mut self, now: Time, flight: &Flight, fault: &Fault, is_rejected: bool) {
        let (keys, queue) = (&flight.keys, self.lane(flight.lane));
        let are_many = flight.lane == Lane::Renewals && keys.len() > RENEWALS_APART;
        let parts = keys.chunks(if are_many { RENEWALS_APART } else { 1 });
        match flight.order {
            RowOrder::StopAtMiss => queue.apart.push_front((flight.order, keys.clone())),
            RowOrder::Each if is_rejected => keys.iter().rev().for_each(|key| queue.waiting.push_front(*key)),
            RowOrder::Each => queue
                .apart
                .extend(parts.map(|part| (RowOrder::Each, part.to_vec()))),
        }
        for key in keys {
            let Some(claim) = self.claims.get_mut(*key) else {
                continue;
            };
            claim.landed(now, flight, Some(fault));
            claim.in_lane[flight.lane as usize] = true;
            let room = claim.room;
            self.rooms[room].fault = Some(Box::new((now, fault.clone())));
            self.claim_due(now, *key);
            self.touch(now, room);
        }
    }

    /// The server rejects a command because of its load: its lane and those of lower priority wait.
    fn pause_lanes(&mut self, now: Time, rejected: Lane) {
        for lane in &LANES[rejected as usize..] {
            let luck = self.draw();
            let queue = self.lane(*lane);
            // Those that were in flight together are rejected together.
            if queue.resumes_at <= now {
                let times = if *lane == rejected { 2 } else { 1 };
                queue.pause = (queue.pause * times).clamp(PAUSE.0, LANE_PAUSES[*lane as usize]);
                queue.resumes_at = now + part_of((queue.pause / 2, queue.pause), luck);
            }
        }
    }
}

impl Claim {
    /// A command has had its reply, or has ended without one: what the driver has sent by now ends at the server by its limit.
    fn landed(&mut self, now: Time, flight: &Flight, fault: Option<&Fault>) {
        let is_unclear = fault.is_some_and(|fault| fault.may_be_applied);
        match (flight.lane, fault) {
            (Lane::Claims, _) => {
                self.flights -= 1;
                if is_unclear {
                    self.unclear_until = self.unclear_until.max(Some(now + flight.limit));
                }
            }
            (Lane::Ends, Some(fault)) if !self.is_ended_since(flight) => {
                if let Some(closing) = self.closing_mut() {
                    // What was never applied is no earlier release.
                    closing.tries = closing.tries.saturating_sub(u8::from(!is_unclear));
                    closing.fault = Some(fault.clone());
                }
            }
            _ => {}
        }
    }
}
