//! The end of a command: its replies are given to their claims, and rows that have failed together are sent separately.

use super::event::{Failed, Fault, FaultKind, Lane, Report, Saw};
use super::lanes::{Flight, LANES};
use super::limits::{OVERLOAD_PAUSE, RENEWALS_APART};
use super::order::part_of;
use super::slab::Key;
use super::state::{Claim, Core, Due, Stage};
use super::time::Time;
use crate::protocol::{Order, Reply};

impl<C: Clone> Core<C> {
    /// A command has ended. Each command ends once.
    fn landed(&mut self, key: Key) -> Option<Flight> {
        self.disarm(Due::Flight(key));
        self.flights.remove(key)
    }

    pub(super) fn ran(&mut self, now: Time, key: Key, result: Result<Vec<Reply>, Fault>) {
        let Some(flight) = self.landed(key) else { return };
        match result {
            Ok(replies) => {
                self.ends_pause(flight.lane);
                let mut landed = Vec::new();
                if flight.order == Order::StopAtMiss {
                    // First the claims that a resumption did not get: they are then no longer in flight, and need not
                    // be given back with the others.
                    let replies = flight.claims.iter().zip(&replies);
                    landed.extend(replies.map(|(key, reply)| self.lands_missed(now, &flight, *key, reply)));
                }
                for (place, (claim, reply)) in flight.claims.iter().zip(&replies).enumerate() {
                    if landed.get(place) != Some(&true) {
                        self.lands(now, &flight, *claim, None);
                    }
                    self.replied(now, &flight, *claim, Ok(reply));
                }
            }
            Err(fault) => self.failed(now, &flight, fault),
        }
    }

    pub(super) fn looked(&mut self, now: Time, key: Key, result: Result<Vec<Saw>, Fault>) {
        let Some(flight) = self.landed(key) else { return };
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
        let pause = self.lanes[lane as usize].pause / 4;
        self.lanes[lane as usize].pause = if pause < least { 0 } else { pause };
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
            _ if is_together && may_be_of_one && flight.order == Order::Each => {
                return self.go_apart(now, flight, &fault);
            }
            // Some of them may have been applied.
            FaultKind::Blocked if is_together => fault.kind = FaultKind::Unclear,
            _ => {}
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
            (Lane::Ends, Stage::Renaming(..) | Stage::Releasing(_)) => first.due,
            (Lane::Ends, _) => None,
            (Lane::Renewals, _) => Some(now),
        };
        let repeated_at = repeated_at.filter(|_| flight.lane == Lane::Renewals || !fault.kind.is_lasting());
        let of_call = || match flight.lane {
            Lane::Claims | Lane::Looks => Some(self.first(room)?.caller.cell.clone()),
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

    /// After a failure each row of the command is sent alone; renewals are sent in small groups.
    fn go_apart(&mut self, now: Time, flight: &Flight, fault: &Fault) {
        if flight.lane == Lane::Renewals {
            self.report(now, flight, fault, None);
        }
        // This is also true after the time limit at the server: the rows before the blocked document are applied.
        self.wait_again(now, flight, fault, !fault.kind.was_not_applied());
        let are_many = flight.lane == Lane::Renewals && flight.claims.len() > RENEWALS_APART;
        let number = if are_many { RENEWALS_APART } else { 1 };
        let parts = flight.claims.chunks(number).map(<[Key]>::to_vec);
        self.lanes[flight.lane as usize].apart.extend(parts);
    }

    /// The claims of a command that has failed wait for another one.
    fn wait_again(&mut self, now: Time, flight: &Flight, fault: &Fault, is_unclear: bool) {
        for key in &flight.claims {
            let Some(claim) = self.claims.get_mut(*key) else {
                continue;
            };
            claim.landed(now, flight, Some(fault), is_unclear);
            claim.waits_again(flight.lane);
            let room = claim.room;
            self.rooms[room].fault = Some((now, fault.clone()));
            self.touch(now, room);
        }
    }

    /// The server rejects a command because of its load: its claims are sent with the next command of the lane, before
    /// all others. The lanes of lower priority wait as well.
    fn rejected(&mut self, now: Time, flight: &Flight, fault: &Fault) {
        for lane in &LANES[flight.lane as usize..] {
            let luck = self.draw();
            let queue = &mut self.lanes[*lane as usize];
            // Commands that were in flight at the same time are rejected together.
            if queue.resumes_at <= now {
                let (least, most) = OVERLOAD_PAUSE[*lane as usize];
                let times = if *lane == flight.lane { 2 } else { 1 };
                queue.pause = (queue.pause * times).clamp(least, most);
                queue.resumes_at = now + part_of((queue.pause / 2, queue.pause), luck);
            }
        }
        let queue = &mut self.lanes[flight.lane as usize];
        let claims = flight.claims.iter().rev();
        match flight.order {
            Order::StopAtMiss => queue.sets.push_front(flight.claims.clone()),
            Order::Each => claims.for_each(|key| queue.waiting.push_front(*key)),
        }
        self.wait_again(now, flight, fault, fault.kind.is_unclear());
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
