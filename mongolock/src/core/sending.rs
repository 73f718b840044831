//! Decides which command is sent when, and makes its rows. A row is made when it is sent, by the stage of its claim at
//! that time.

use super::event::{Effect, Lane};
use super::lanes::{Flight, LANES, Queue};
use super::limits;
use super::slab::Key;
use super::state::{Claim, Core, Due, End, Luck, Stage};
use super::time::{MS, Span, Time, span};
use crate::protocol::text::owner;
use crate::protocol::{Id, IdKind, LockId, Ms, Name, Row, RowOrder, Then, When};
use crate::timing::{COMMAND_LIMIT, NO_REPLY};

/// The time limit of a renewal. If a document blocks it, enough of the lease is left to renew the others twice.
fn renewal_limit(expiry: Ms) -> Span {
    let least = limits::LIMIT_LEAST.min(expiry * MS / 4);
    (expiry * MS / limits::RENEWAL_LIMIT_PART).max(least)
}

impl<C: Clone> Core<C> {
    /// Puts the claim into this lane.
    pub(super) fn push(&mut self, key: Key, lane: Lane) {
        self.claims[key].in_lane[lane as usize] = true;
        self.lane(lane).waiting.push_back(key);
    }

    /// Puts the claims into this lane, with a command of their own.
    pub(super) fn go_apart(&mut self, lane: Lane, order: RowOrder, claims: Vec<Key>) {
        for claim in &claims {
            self.claims[*claim].in_lane[lane as usize] = true;
        }
        self.lane(lane).apart.push_back((order, claims));
    }

    /// Puts claims into this lane. Several have a command of their own, which stops at a miss.
    pub(super) fn go_together(&mut self, lane: Lane, claims: Vec<Key>) {
        match claims[..] {
            [claim] => self.push(claim, lane),
            _ => self.go_apart(lane, RowOrder::StopAtMiss, claims),
        }
    }

    pub(super) fn lane(&mut self, lane: Lane) -> &mut Queue {
        &mut self.lanes[lane as usize]
    }

    /// Sends the commands that may be in flight.
    pub(super) fn pump(&mut self, now: Time, luck: &mut dyn Luck) {
        for lane in LANES {
            let queue = &self.lanes[lane as usize];
            match queue.resumes_at {
                _ if queue.waiting.is_empty() && queue.apart.is_empty() => {}
                at if at > now => self.arm(Due::Lanes, at),
                _ => self.pump_lane(now, luck, lane),
            }
        }
    }

    fn pump_lane(&mut self, now: Time, luck: &mut dyn Luck, lane: Lane) {
        for order in [RowOrder::Each, RowOrder::StopAtMiss] {
            let is_alone = order == RowOrder::Each;
            let is_next = |(own, _): &(RowOrder, _)| *own == order;
            while let Some(place) = self.lane(lane).apart.iter().position(is_next)
                && self.has_room(now, lane, is_alone)
                && let Some((_, keys)) = self.lane(lane).apart.remove(place)
            {
                self.send(luck, now, lane, keys, (order, is_alone));
            }
        }
        while !self.lane(lane).waiting.is_empty() && self.has_room(now, lane, false) {
            let ready_at = self.lane(lane).ready_at;
            if ready_at > now {
                return self.arm(Due::Lanes, ready_at);
            }
            let queue = self.lane(lane);
            if lane == Lane::Looks {
                queue.ready_at = now + limits::LOOK_EVERY;
            }
            let number = match queue.waiting.len() {
                few if few < limits::LEAST_TOGETHER[lane as usize] && queue.pause == 0 => 1,
                number => number.min(limits::GROUP[lane as usize]),
            };
            let keys = queue.waiting.drain(..number).collect();
            self.send(luck, now, lane, keys, (RowOrder::Each, false));
        }
    }

    /// Whether one more command may be sent; without a place there is one when another command has had its own for long.
    fn has_room(&mut self, now: Time, lane: Lane, is_alone: bool) -> bool {
        let (mut in_flight, mut left_at) = ([[0; 4]; 2], Time::NEVER);
        for (_, flight) in self.flights.iter().filter(|(_, flight)| flight.leaves_at() > now) {
            in_flight[usize::from(flight.is_alone)][flight.lane as usize] += 1;
            left_at = left_at.min(flight.leaves_at());
        }
        let (places, is_single) = (self.conf.places, self.lanes[lane as usize].pause > 0);
        let has_room = places.have_room(lane, is_alone, is_single, in_flight);
        if !has_room {
            self.arm(Due::Lanes, left_at);
        }
        has_room
    }

    /// Sends the rows of the claims that still need them.
    fn send(
        &mut self,
        luck: &mut dyn Luck,
        now: Time,
        lane: Lane,
        mut keys: Vec<Key>,
        (order, is_alone): (RowOrder, bool),
    ) {
        // A release is repeated after that time. The limit of a renewal depends on its lease.
        let longest = span(if lane == Lane::Ends {
            NO_REPLY
        } else {
            COMMAND_LIMIT
        });
        let limit = match lane {
            Lane::Claims | Lane::Ends if keys.len() > 1 => longest.min(self.short_limit()),
            _ => longest,
        };
        let mut flight = Flight {
            number: self.commands + 1,
            lane,
            keys: Vec::new(),
            sent: now,
            limit,
            order,
            is_alone,
        };
        let (mut rows, mut looks) = (Vec::with_capacity(keys.len()), Vec::new());
        keys.retain(|key| {
            let sent = rows.len() + looks.len();
            match lane {
                Lane::Looks => looks.extend(self.look(&flight, *key)),
                _ => rows.extend(self.row(luck, &mut flight, *key)),
            }
            rows.len() + looks.len() > sent
        });
        if keys.is_empty() {
            return;
        }
        self.commands = flight.number;
        if lane != Lane::Looks {
            for claim in &keys {
                self.sent(&flight, *claim);
            }
        }
        flight.keys = keys;
        let limit = flight.limit;
        let key = self.flights.insert(flight);
        self.effects.push(match lane {
            Lane::Looks => Effect::Look(key, looks, limit),
            _ => Effect::Run(key, rows, order, limit),
        });
    }

    /// The time limit of a command for which others wait.
    fn short_limit(&self) -> Span {
        limits::SLOW.max(self.trip * limits::LIMIT_TRIPS)
    }

    /// Sets the timer of a claim that was sent.
    fn sent(&mut self, flight: &Flight, key: Key) {
        let (now, claim) = (flight.sent, &mut self.claims[key]);
        let next = now + span(NO_REPLY);
        match flight.lane {
            Lane::Renewals => {
                if let Some(lease) = &mut claim.lease {
                    lease.renew_at = now + flight.limit + limits::LANE_PAUSES[Lane::Renewals as usize];
                }
            }
            Lane::Ends => {
                claim.again_at = next;
                if let Some(closing) = claim.closing_mut() {
                    closing.tries = closing.tries.saturating_add(1);
                }
            }
            Lane::Claims | Lane::Looks => {
                claim.flights += 1;
                (claim.sent, claim.again_at) = (now, next);
                if claim.resumes.is_none() {
                    let room = &mut self.rooms[claim.room];
                    room.asked_by = flight.number;
                    // A copy is not a new request.
                    room.asked = if claim.flights == 1 { now } else { room.asked };
                }
            }
        }
        self.arm_claim(now, key);
    }

    /// The row of this claim, if the claim still needs one.
    fn row(&mut self, luck: &mut dyn Luck, flight: &mut Flight, key: Key) -> Option<Row> {
        let lane = flight.lane;
        let claim = self.claims.get_mut(key)?;
        std::mem::take(&mut claim.in_lane[lane as usize]).then_some(())?;
        let (when, then) = match lane {
            Lane::Looks => return None,
            Lane::Claims => self.claim_row(luck, flight, key)?,
            Lane::Ends => self.end_row(key)?,
            Lane::Renewals => {
                claim.lease?;
                let expiry = claim.rules.expiry;
                flight.limit = flight.limit.min(renewal_limit(expiry));
                (claim.runs()?, Then::Renew { expiry })
            }
        };
        let name = self.document_of(&self.claims[key]);
        Some(Row { name, when, then })
    }

    /// The name of the document of a claim. The name of a room of permits ends with the separator.
    pub(super) fn document_of(&self, claim: &Claim) -> Name {
        let name = &self.rooms[claim.room].name;
        match claim.permit {
            Some(number) => format!("{name}{number}").into(),
            None => Name::clone(name),
        }
    }

    fn look(&mut self, flight: &Flight, key: Key) -> Option<Name> {
        let room = self.rooms.get_mut(key)?;
        if !std::mem::take(&mut room.in_looks) || room.queue.is_empty() {
            return None;
        }
        room.pause_until = flight.sent + span(NO_REPLY);
        (room.asked, room.asked_by) = (flight.sent, flight.number);
        let (name, next) = (room.name.clone(), room.pause_until);
        self.arm(Due::Room(key), next);
        Some(name)
    }

    fn claim_row(&mut self, luck: &mut dyn Luck, flight: &mut Flight, key: Key) -> Option<(When, Then)> {
        let (now, short_limit, limit) = (flight.sent, self.short_limit(), &mut flight.limit);
        let claim = self.claims.get(key).filter(|claim| claim.is_asking())?;
        let is_shared = self.is_shared(claim.room);
        let claim = &mut self.claims[key];
        let room = &mut self.rooms[claim.room];
        // A claim that resumes a lease has its caller already.
        let caller = claim.caller.or_else(|| room.queue.first().copied());
        let caller = &self.callers[caller?];
        if let Some(deadline) = caller.deadline() {
            *limit = (*limit).min(((deadline - now) * 4 / 5).max(limits::LIMIT_LEAST));
        }
        // A claim that a slow majority has not confirmed gets the longer time.
        let may_be_another = claim.permit.is_some() && caller.width > 1 && claim.unclear_until.is_none();
        if claim.flights > 0 || may_be_another {
            *limit = (*limit).min(short_limit);
        }
        let kind = match () {
            () if claim.resumes.is_some() => IdKind::Resumed,
            () if claim.permit.is_some() => IdKind::Permit,
            () if caller.is_set() => IdKind::Set,
            () => IdKind::Single,
        };
        let slot = u8::try_from((limits::SLOT + self.trip) / MS).unwrap_or(u8::MAX);
        let conf = &self.conf;
        // The owner of a resumed lease stays, so that the end of its session ends this hold as well.
        let resumed = claim.resumes.as_deref().and_then(|(lease, _)| owner(lease));
        let new_id = || Id::drawn(conf.mark, kind, slot, luck.id()).text(resumed.unwrap_or(&conf.owner));
        let id = claim.id.get_or_insert_with(new_id).clone();
        if claim.tokens == 0 {
            claim.tokens = if is_shared { limits::TOKENS } else { 1 };
        }
        let (margin, expiry, tokens) = (conf.margin, claim.rules.expiry, claim.tokens);
        Some(match claim.resumes.as_deref() {
            Some((lease, _)) => (When::runs(lease), Then::Adopt { id, expiry, tokens }),
            None => (When::Free { margin }, Then::Claim { id, expiry, tokens }),
        })
    }

    /// Whether claims of the lock reserve tokens. The locks of a set are handed over together.
    fn is_shared(&self, room: Key) -> bool {
        let room = &self.rooms[room];
        let set = self.first(room).filter(|caller| caller.is_set());
        let mut names = set.iter().flat_map(|caller| &caller.names);
        room.is_shared || names.any(|name| self.names.get(name).is_some_and(|key| self.rooms[*key].is_shared))
    }

    /// The condition and the change of a row that ends a hold. After a resumption that was given up it restores the id
    /// of the lease.
    fn end_row(&self, key: Key) -> Option<(When, Then)> {
        let claim = &self.claims[key];
        let id = claim.id.as_ref()?;
        let rename = |(to, ttl): (&LockId, Ms), min_hold| Then::Rename {
            to: to.clone(),
            ttl,
            min_hold,
        };
        let Stage::Ending(closing) = &claim.stage else {
            return None;
        };
        Some(match (&closing.end, claim.resumes.as_deref()) {
            (End::Mark(until), _) => (claim.runs()?, Then::Mark { until: *until }),
            (End::Detach(to, ttl), _) => (claim.runs()?, rename((to, *ttl), claim.rules.min_hold)),
            (End::Release(_), Some((to, ttl))) => (When::is(id), rename((to, *ttl), 0)),
            (End::Release(min_hold), None) => {
                let (min_hold, unused) = (*min_hold, claim.last - claim.token);
                (When::is(id), Then::End { min_hold, unused })
            }
        })
    }
}

impl Claim {
    /// The condition that the claim has a lease that has not ended, with the tokens that it has reserved.
    fn runs(&self) -> Option<When> {
        let (id, token, runs) = (self.id.clone()?, Some(self.last), Some(0));
        Some(When::Own { id, token, runs })
    }
}

#[cfg(test)]
mod tests {
    use super::super::claims::relied_on;
    use super::*;

    /// A group with a blocked document is divided once before each renewal is sent alone.
    #[test]
    fn two_blocked_renewals_leave_time_for_a_third() {
        for expiry in [100, 150, 231, 300, 600, 612, 1_000, 1_200, 2_000, 30_000] {
            let third = expiry * MS / 3 + 2 * renewal_limit(expiry);
            assert!(third < relied_on(expiry), "{expiry} ms");
        }
        assert_eq!(
            [400, 1_000, 12_000].map(renewal_limit),
            [100 * MS, 200 * MS, 2_000 * MS]
        );
    }
}
