//! The end of a command: its replies are given to their claims, and rows that have failed together are sent separately.

use super::event::{Failed, Fault, FaultKind, Lane, Report, Saw};
use super::lanes::{Flight, LANES};
use super::limits::{OVERLOAD_PAUSE, RENEWALS_APART};
use super::order::part_of;
use super::slab::Key;
use super::state::{Claim, Core, Stage};
use super::time::Time;
use crate::protocol::{Order, Reply};

impl<C: Clone> Core<C> {
    pub(super) fn ran(&mut self, now: Time, key: Key, result: Result<Vec<Reply>, Fault>) {
        let Some(flight) = self.flights.remove(key) else {
            return;
        };
        match result {
            Ok(replies) => {
                self.ends_pause(flight.lane);
                let wins = |core: &Self, key: Key, reply: &Reply| {
                    let claim = core.claims.get(key);
                    flight.order == Order::Each || claim.is_some_and(|own| own.own_sight(reply).is_some())
                };
                // What a set has missed is not under way any more when another part of it is.
                for (claim, reply) in flight.claims.iter().zip(&replies) {
                    if !wins(self, *claim, reply) {
                        self.lands(now, &flight, *claim, None);
                    }
                }
                for (claim, reply) in flight.claims.iter().zip(&replies) {
                    if wins(self, *claim, reply) {
                        self.lands(now, &flight, *claim, None);
                    }
                    self.replied(now, &flight, *claim, Ok(reply));
                }
            }
            Err(fault) => self.failed(now, &flight, fault),
        }
    }

    pub(super) fn looked(&mut self, now: Time, key: Key, result: Result<Vec<Saw>, Fault>) {
        let Some(flight) = self.flights.remove(key) else {
            return;
        };
        match result {
            Ok(found) => {
                self.ends_pause(flight.lane);
                for (claim, saw) in flight.claims.iter().zip(&found) {
                    if let Some(room) = self.claims.get(*claim).map(|claim| claim.room) {
                        self.rooms[room].replied = now;
                        self.looked_at(now, &flight, room, saw);
                        self.touch(now, room);
                    }
                }
            }
            Err(fault) => self.failed(now, &flight, fault),
        }
    }

    /// A reply reduces the lane's pause after rejections to a quarter.
    fn ends_pause(&mut self, lane: Lane) {
        let (least, _) = OVERLOAD_PAUSE[lane as usize];
        let pause = self.lane(lane).pause / 4;
        self.lane(lane).pause = if pause < least { 0 } else { pause };
    }

    fn failed(&mut self, now: Time, flight: &Flight, mut fault: Fault) {
        let is_together = flight.claims.len() > 1 && flight.lane != Lane::Looks;
        // The fault may be that of one row. Renewals whose connection was cut are sent together again.
        let may_be_of_one = match flight.lane {
            Lane::Renewals => matches!(fault.kind, FaultKind::Blocked | FaultKind::Damaged),
            _ => fault.kind != FaultKind::Lasting,
        };
        match fault.kind {
            FaultKind::Overloaded { .. } => return self.rejected(now, flight, &fault),
            // Those before the blocked document are applied.
            FaultKind::Blocked if is_together => fault.kind = FaultKind::Unclear,
            _ => {}
        }
        if is_together && may_be_of_one && flight.order == Order::Each {
            return self.split(now, flight, &fault);
        }
        let first = flight.claims.iter().find_map(|key| self.claims.get(*key));
        let holder = first.and_then(Claim::holder).cloned();
        for claim in &flight.claims {
            self.lands(now, flight, *claim, Some(&fault));
            self.replied(now, flight, *claim, Err(&fault));
        }
        self.report(now, flight, &fault, holder);
    }

    /// Reports a failed command, after its consequences were applied. It may have ended the hold of this cell.
    fn report(&mut self, now: Time, flight: &Flight, fault: &Fault, holder: Option<C>) {
        let first = flight.claims.iter().find_map(|key| self.claims.get(*key));
        let Some(first) = first else { return };
        let room = &self.rooms[first.room];
        let repeated_at = match (flight.lane, &first.stage) {
            (Lane::Claims | Lane::Looks, _) => (!room.queue.is_empty()).then_some(room.pause_until),
            (Lane::Ends, Stage::Ending(_)) => first.due,
            (Lane::Ends, _) => None,
            (Lane::Renewals, _) => Some(now),
        };
        let repeated_at = repeated_at.filter(|_| flight.lane == Lane::Renewals || !fault.kind.is_lasting());
        let of_call = || match flight.lane {
            Lane::Claims | Lane::Looks => Some(self.first(room)?.caller.join.cell.clone()),
            Lane::Renewals | Lane::Ends => None,
        };
        let failed = Failed {
            lane: flight.lane,
            number: flight.claims.len(),
            name: self.document_of(first),
            cell: first.holder().cloned().or(holder).or_else(of_call),
            fault: fault.clone(),
            pause: repeated_at.map(|at| (at.max(self.lanes[flight.lane as usize].resumes_at) - now).max(0)),
        };
        self.tell(Report::Failed(failed));
    }

    /// Each row of a command that has failed goes alone; of renewals a few together.
    fn split(&mut self, now: Time, flight: &Flight, fault: &Fault) {
        if flight.lane == Lane::Renewals {
            self.report(now, flight, fault, None);
        }
        self.wait_again(now, flight, fault);
        let are_many = flight.lane == Lane::Renewals && flight.claims.len() > RENEWALS_APART;
        let number = if are_many { RENEWALS_APART } else { 1 };
        let parts = flight
            .claims
            .chunks(number)
            .map(|part| (Order::Each, part.to_vec()));
        self.lane(flight.lane).apart.extend(parts);
    }

    /// The claims of a command that has failed wait for another one.
    fn wait_again(&mut self, now: Time, flight: &Flight, fault: &Fault) {
        for key in &flight.claims {
            self.lands(now, flight, *key, Some(fault));
            let Some(claim) = self.claims.get_mut(*key) else {
                continue;
            };
            claim.waits_again(flight.lane);
            let (room, is_released) = (claim.room, matches!(claim.stage, Stage::Released));
            self.rooms[room].fault = Some((now, fault.clone()));
            if is_released {
                self.end_released(now, Time::LONG_AGO, *key);
            }
            self.touch(now, room);
        }
    }

    /// The server rejects a command because of its load: its claims are sent with the next command of the lane, before
    /// all others. The lanes of lower priority wait as well.
    fn rejected(&mut self, now: Time, flight: &Flight, fault: &Fault) {
        for lane in &LANES[flight.lane as usize..] {
            let luck = self.draw();
            let queue = self.lane(*lane);
            // Those that were in flight together are rejected together.
            if queue.resumes_at <= now {
                let (least, most) = OVERLOAD_PAUSE[*lane as usize];
                let times = if *lane == flight.lane { 2 } else { 1 };
                queue.pause = (queue.pause * times).clamp(least, most);
                queue.resumes_at = now + part_of((queue.pause / 2, queue.pause), luck);
            }
        }
        let queue = self.lane(flight.lane);
        let claims = flight.claims.iter().rev();
        match flight.order {
            Order::StopAtMiss => queue.apart.push_front((flight.order, flight.claims.clone())),
            Order::Each => claims.for_each(|key| queue.waiting.push_front(*key)),
        }
        self.wait_again(now, flight, fault);
        self.report(now, flight, fault, None);
    }
}

impl<C> Claim<C> {
    /// The claim waits in this lane again, unless its stage has changed.
    fn waits_again(&mut self, lane: Lane) {
        let fits = match lane {
            Lane::Claims | Lane::Looks => self.is_asking(),
            Lane::Ends => self.closing_mut().is_some(),
            Lane::Renewals => self.lease_mut().is_some(),
        };
        match lane {
            Lane::Renewals => self.renews |= fits,
            lane => self.in_lane = self.in_lane.or(fits.then_some(lane)),
        }
    }
}
