//! The end of a command: its replies go to their claims, and what has failed together goes apart.

use super::event::{Fault, FaultKind, Lane, Saw};
use super::lanes::{BY_WEIGHT, Flight};
use super::limits::{RENEWALS_APART, overload_pause};
use super::order::part_of;
use super::slab::Key;
use super::state::{Claim, Core, Due, Stage};
use super::time::Time;
use crate::protocol::{Order, Reply};

impl<C: Clone> Core<C> {
    /// A command without a reply leaves its place. Its end comes in any case: the engine ends it after its limit.
    pub(super) fn flight_due(&mut self, key: Key) {
        self.flights[key].has_place = false;
    }

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
                for (claim, reply) in flight.claims.iter().zip(&replies) {
                    self.replied(now, &flight, *claim, Ok(reply));
                }
            }
            Err(fault) => self.failed(now, &flight, fault),
        }
    }

    pub(super) fn looked(&mut self, now: Time, key: Key, result: Result<Vec<Saw>, Fault>) {
        let Some(flight) = self.landed(key) else { return };
        let found = match result {
            Ok(found) => found.into_iter().map(Ok).collect(),
            Err(fault) if matches!(fault.kind, FaultKind::Overloaded { .. }) => {
                return self.rejected(now, &flight, &fault);
            }
            Err(fault) => vec![Err(fault); flight.claims.len()],
        };
        for (claim, saw) in flight.claims.iter().zip(found) {
            let Some(room) = self.claims.get(*claim).map(|claim| claim.room) else {
                continue;
            };
            match saw {
                Ok(saw) => {
                    self.ends_pause(flight.lane);
                    self.rooms[room].replied = now;
                    self.looked_at(now, &flight, room, &saw);
                }
                Err(fault) => {
                    self.ask_now(now, room);
                    self.note_fault(now, room, &fault);
                }
            }
            self.touch(now, room);
        }
    }

    /// A reply leaves a quarter of the pause that rejections have brought.
    fn ends_pause(&mut self, lane: Lane) {
        let (least, _) = overload_pause(lane);
        let pause = self.lanes[lane].pause / 4;
        self.lanes[lane].pause = if pause < least { 0 } else { pause };
    }

    fn failed(&mut self, now: Time, flight: &Flight, mut fault: Fault) {
        let is_together = flight.claims.len() > 1;
        if matches!(fault.kind, FaultKind::Overloaded { .. }) {
            return self.rejected(now, flight, &fault);
        }
        // It may be the document of one of them.
        if is_together && fault.kind != FaultKind::Lasting && flight.order == Order::Each {
            return self.go_apart(now, flight, &fault);
        }
        if is_together && fault.kind == FaultKind::Blocked {
            // Some of them may have been applied.
            fault.kind = FaultKind::Unclear;
        }
        for claim in &flight.claims {
            self.replied(now, flight, *claim, Err(&fault));
        }
    }

    /// Each row of a command that has failed goes alone; of renewals a few together.
    fn go_apart(&mut self, now: Time, flight: &Flight, fault: &Fault) {
        for key in &flight.claims {
            let Some(claim) = self.claims.get_mut(*key) else {
                continue;
            };
            if flight.lane == Lane::Claims {
                // Also after the limit at the server: those before the blocked document are applied.
                claim.landed(now, flight, fault.kind != FaultKind::NotApplied);
            }
            claim.waits_again(flight.lane);
            let room = claim.room;
            self.touch(now, room);
        }
        let are_many = flight.lane == Lane::Renewals && flight.claims.len() > RENEWALS_APART;
        let number = if are_many { RENEWALS_APART } else { 1 };
        let parts = flight.claims.chunks(number).map(<[Key]>::to_vec);
        self.lanes[flight.lane].apart.extend(parts);
    }

    /// The server rejects a command because of its load: what was in it goes with the next one of its lane, before all others. The lanes
    /// that matter less wait as well.
    fn rejected(&mut self, now: Time, flight: &Flight, fault: &Fault) {
        let weight = BY_WEIGHT
            .iter()
            .position(|lane| *lane == flight.lane)
            .unwrap_or(0);
        for lane in &BY_WEIGHT[weight..] {
            let luck = self.draw();
            let queue = &mut self.lanes[*lane];
            // Those that were in flight together are rejected together.
            if queue.resumes_at <= now {
                let (least, most) = overload_pause(*lane);
                let times = if *lane == flight.lane { 2 } else { 1 };
                queue.pause = (queue.pause * times).clamp(least, most);
                queue.resumes_at = now + part_of((queue.pause / 2, queue.pause), luck);
            }
        }
        let queue = &mut self.lanes[flight.lane];
        match flight.order {
            Order::StopAtMiss => queue.sets.push_front(flight.claims.clone()),
            Order::Each => flight
                .claims
                .iter()
                .rev()
                .for_each(|key| queue.waiting.push_front(*key)),
        }
        for key in &flight.claims {
            self.waits_after_rejection(now, flight, *key, fault);
        }
    }

    fn waits_after_rejection(&mut self, now: Time, flight: &Flight, key: Key, fault: &Fault) {
        let may_be_applied = fault.kind.is_unclear();
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        if flight.lane == Lane::Claims {
            claim.landed(now, flight, may_be_applied);
        }
        if flight.lane == Lane::Ends
            && let Some(closing) = claim.closing_mut()
        {
            // What was never applied is no earlier release.
            closing.tries = closing.tries.saturating_sub(u8::from(!may_be_applied));
            closing.fault = Some(fault.clone());
        }
        claim.waits_again(flight.lane);
        let (room, set) = (claim.room, claim.set);
        if let Some(set) = set.and_then(|set| self.sets.get_mut(set)) {
            set.fault = Some((now, fault.clone()));
        }
        self.rooms[room].fault = Some((now, fault.clone()));
        self.touch(now, room);
    }
}

impl<C> Claim<C> {
    /// It waits in this lane again, unless it has another stage by now.
    fn waits_again(&mut self, lane: Lane) {
        let fits = match lane {
            Lane::Claims | Lane::Looks => self.is_asking(),
            Lane::Ends => matches!(self.stage, Stage::Releasing(_) | Stage::Renaming(..)),
            Lane::Renewals => matches!(self.stage, Stage::Held(..) | Stage::Renaming(..)),
        };
        if fits && lane == Lane::Renewals {
            self.renews = true;
        } else if fits {
            self.in_lane.get_or_insert(lane);
        }
    }
}
