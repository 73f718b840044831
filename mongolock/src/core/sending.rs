//! Which command is sent when, and its rows. A row is made when it is sent, by the stage that its claim has then.

use super::event::{Effect, Lane, Look};
use super::lanes::{BY_WEIGHT, Flight};
use super::limits;
use super::places::InFlight;
use super::slab::Key;
use super::state::{Change, Claim, Core, Due, Luck, Stage};
use super::time::{MS, Span, Time};
use crate::protocol::{Id, Kind, LockId, Ms, Order, Row, Then, When};

impl<C: Clone> Core<C> {
    /// Sends what may be sent.
    pub(super) fn pump(&mut self, now: Time, luck: &mut dyn Luck) {
        for lane in BY_WEIGHT {
            let at = self.lanes[lane].resumes_at;
            if at <= now {
                self.pump_lane(now, luck, lane);
            } else if !self.lanes[lane].is_empty() {
                self.arm(Due::Lanes, at);
            }
        }
    }

    fn pump_lane(&mut self, now: Time, luck: &mut dyn Luck, lane: Lane) {
        while self.has_room_alone(lane)
            && let Some(claims) = self.lanes[lane].apart.pop_front()
        {
            self.send(now, luck, lane, claims, true, Order::Each);
        }
        while !self.lanes[lane].sets.is_empty()
            && self.has_room(lane)
            && let Some(claims) = self.lanes[lane].sets.pop_front()
        {
            self.send(now, luck, lane, claims, false, Order::StopAtMiss);
        }
        while !self.lanes[lane].waiting.is_empty() && self.has_room(lane) {
            let ready_at = self.lanes[lane].ready_at;
            if ready_at > now {
                return self.arm(Due::Lanes, ready_at);
            }
            let queue = &mut self.lanes[lane];
            if lane == Lane::Looks {
                queue.ready_at = now + limits::LOOK_EVERY;
            }
            let number = match queue.waiting.len() {
                few if few < limits::least_together(lane) && queue.pause == 0 => 1,
                number => number.min(limits::group_of(lane)),
            };
            let claims = queue.waiting.drain(..number).collect();
            self.send(now, luck, lane, claims, false, Order::Each);
        }
    }

    fn has_room(&self, lane: Lane) -> bool {
        let is_single = self.lanes[lane].pause > 0;
        self.conf.places.have_room(lane, self.in_flight(), is_single)
    }

    fn has_room_alone(&self, lane: Lane) -> bool {
        !self.lanes[lane].apart.is_empty() && self.conf.places.have_room_alone(lane, self.in_flight())
    }

    /// The numbers of commands that have places, of each lane, and of those the ones that go alone.
    fn in_flight(&self) -> InFlight {
        let (mut own, mut alone) = ([0; 4], [0; 4]);
        for (_, flight) in self.flights.iter().filter(|(_, flight)| flight.has_place) {
            let counted = if flight.is_alone { &mut alone } else { &mut own };
            counted[flight.lane as usize] += 1;
        }
        (own, alone)
    }

    fn send(
        &mut self,
        now: Time,
        luck: &mut dyn Luck,
        lane: Lane,
        mut claims: Vec<Key>,
        is_alone: bool,
        order: Order,
    ) {
        let is_together = claims.len() > 1 && lane != Lane::Looks;
        let mut limit = if is_together {
            limits::LIMIT_TOGETHER
        } else {
            limits::limit_of(lane)
        };
        let (mut rows, mut looks) = (Vec::new(), Vec::new());
        claims.retain(|key| match lane {
            Lane::Looks => self.look(now, *key).map(|look| looks.push(look)).is_some(),
            _ => self
                .row(now, luck, lane, *key, &mut limit)
                .map(|row| rows.push(row))
                .is_some(),
        });
        if claims.is_empty() {
            return;
        }
        let flight = self.flights.insert(Flight {
            key: Key::NONE,
            lane,
            claims: claims.clone(),
            sent: now,
            limit,
            order,
            is_alone,
            has_place: true,
            due: None,
        });
        self.flights[flight].key = flight;
        self.arm(Due::Flight(flight), now + limits::PLACE);
        for key in claims {
            self.sent(now, flight, lane, key, limit);
        }
        self.effects.push(match lane {
            Lane::Looks => Effect::Look(flight, looks, limit),
            _ => Effect::Run(flight, rows, order, limit),
        });
    }

    /// The timers of what has been sent.
    fn sent(&mut self, now: Time, flight: Key, lane: Lane, key: Key, limit: Span) {
        let claim = &mut self.claims[key];
        let (room, next) = (claim.room, now + limits::COPY);
        match lane {
            Lane::Renewals => {
                if let Some(lease) = claim.lease_mut() {
                    lease.renew_at = now + limit + 100 * MS;
                }
                if let Some(unknown) = &mut claim.commits.unknown {
                    unknown.asked.get_or_insert(flight);
                }
                return;
            }
            Lane::Ends => {
                if let Some(closing) = claim.closing_mut() {
                    (closing.due, closing.tries) = (next, closing.tries.saturating_add(1));
                }
                return self.arm(Due::Claim(key), next);
            }
            Lane::Claims => (claim.flights, claim.sent) = (claim.flights + 1, now),
            Lane::Looks => {}
        }
        if claim.resumes.is_some() {
            self.arm(Due::Claim(key), next);
        } else {
            self.arm(Due::Room(room), next);
            self.rooms[room].asked_by = Some(flight);
            self.note_asked(flight, room);
        }
    }

    /// The row of this claim, if it is still wanted.
    fn row(&mut self, now: Time, luck: &mut dyn Luck, lane: Lane, key: Key, limit: &mut Span) -> Option<Row> {
        let claim = self.claims.get_mut(key)?;
        let is_wanted = match lane {
            Lane::Renewals => std::mem::take(&mut claim.renews),
            _ => claim.in_lane.take_if(|own| *own == lane).is_some(),
        };
        if !is_wanted {
            return None;
        }
        let (when, then) = match lane {
            Lane::Looks => return None,
            Lane::Claims => self.claim_row(now, luck, key, limit)?,
            Lane::Ends => self.end_row(key)?,
            Lane::Renewals => {
                claim.lease_mut()?;
                let expiry = claim.rules.expiry;
                let (least, most) = limits::RENEWAL_LIMIT;
                *limit = (*limit).min((expiry * MS / limits::RENEWAL_LIMIT_PART).clamp(least, most));
                (claim.runs()?, Then::Renew { expiry })
            }
        };
        let name = self.document_of(&self.claims[key]);
        Some(Row { name, when, then })
    }

    fn look(&mut self, now: Time, key: Key) -> Option<Look> {
        let claim = self.claims.get_mut(key)?;
        claim.in_lane.take_if(|own| *own == Lane::Looks)?;
        let room = &mut self.rooms[claim.room];
        if room.queue.is_empty() || !claim.is_asking() {
            return None;
        }
        (room.pause_until, room.asked) = (now + limits::COPY, now);
        let name = room.name.clone();
        let look = if room.permits.is_of_lock() {
            Look::Lock
        } else {
            Look::Permits
        };
        Some(look(name))
    }

    fn claim_row(
        &mut self,
        now: Time,
        luck: &mut dyn Luck,
        key: Key,
        limit: &mut Span,
    ) -> Option<(When, Then)> {
        let claim = self.claims.get_mut(key).filter(|claim| claim.is_asking())?;
        let room = &mut self.rooms[claim.room];
        let call = room.queue.front().map(|call| &self.calls[*call]);
        let resumption = claim.set.filter(|_| claim.resumes.is_some());
        let deadline = match resumption {
            Some(set) => self.sets[set].caller.deadline,
            None => call?.caller.deadline,
        };
        if let Some(deadline) = deadline {
            *limit = (*limit).min(((deadline - now) * 4 / 5).max(limits::LIMIT_LEAST));
        }
        if claim.permit.is_some() && call.is_some_and(|call| call.width > 1) {
            *limit = (*limit).min(limits::LIMIT_OF_PERMIT);
        }
        let kind = match call {
            _ if resumption.is_some() => Kind::Resumed,
            _ if claim.permit.is_some() => Kind::Permit,
            Some(call) if call.set.is_some() => Kind::Set,
            _ => Kind::Single,
        };
        if room.turn == Some(key) {
            (room.copy_at, room.asked) = (now + limits::COPY, now);
        }
        let slot = u8::try_from((limits::SLOT + self.trip) / MS).unwrap_or(u8::MAX);
        let conf = &self.conf;
        let new_id = || Id::drawn(conf.mark, kind, slot, luck.id()).text(&conf.owner);
        let id = claim.id.get_or_insert_with(new_id).clone();
        let (expiry, tokens) = (claim.rules.expiry, limits::TOKENS);
        Some(match &claim.resumes {
            Some((lease, _)) => (When::runs(lease), Then::Adopt { id, expiry, tokens }),
            None => (
                When::Free { margin: conf.margin },
                Then::Claim { id, expiry, tokens },
            ),
        })
    }

    /// What ends a hold. What was given up of a resumption gets back the id of the lease.
    fn end_row(&self, key: Key) -> Option<(When, Then)> {
        let claim = &self.claims[key];
        let id = claim.id.as_ref()?;
        let rename = |(to, ttl): (&LockId, Ms), min_hold| Then::Rename {
            to: to.clone(),
            ttl,
            min_hold,
        };
        Some(match (&claim.stage, &claim.resumes) {
            (Stage::Renaming(Change::Mark(until), ..), _) => (claim.runs()?, Then::Mark { until: *until }),
            (Stage::Renaming(Change::Detach(to, ttl), ..), _) => {
                (claim.runs()?, rename((to, *ttl), claim.rules.min_hold))
            }
            (Stage::Releasing(_), Some((to, ttl))) => (When::is(id), rename((to, *ttl), 0)),
            (Stage::Releasing(closing), None) => {
                let (min_hold, unused) = (closing.min_hold, claim.last - claim.token);
                (When::is(id), Then::End { min_hold, unused })
            }
            _ => return None,
        })
    }
}

impl<C> Claim<C> {
    /// It has a lease that runs, with the tokens that it has reserved.
    fn runs(&self) -> Option<When> {
        let (id, token, runs) = (self.id.clone()?, Some(self.last), Some(0));
        Some(When::Own { id, token, runs })
    }
}
