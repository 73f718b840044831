//! Which command is sent when, and its rows. A row is made when it is sent, by the stage that its claim has then.

use super::event::{Effect, Lane, Look};
use super::lanes::{BY_WEIGHT, Flight};
use super::limits::{
    COPY, LIMIT_LEAST, LIMIT_OF_PERMIT, LIMIT_TOGETHER, LOOK_EVERY, PLACE, RENEWAL_LIMIT, RENEWAL_LIMIT_PART,
    SLOT, TOKENS, group_of, least_together, limit_of,
};
use super::slab::Key;
use super::state::{Change, Core, Due, Luck, Stage};
use super::time::{MS, Span, Time};
use crate::protocol::{Id, Kind, Order, Row, Then, When};

/// What a command has for one claim.
enum Part {
    Row(Row),
    Look(Look),
}

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
        while self.lanes.have_room_alone(lane)
            && let Some(claims) = self.lanes[lane].apart.pop_front()
        {
            self.send(now, luck, lane, claims, true, Order::Each);
        }
        while self.lanes.have_room(lane)
            && let Some(claims) = self.lanes[lane].sets.pop_front()
        {
            self.send(now, luck, lane, claims, false, Order::StopAtMiss);
        }
        while !self.lanes[lane].waiting.is_empty() && self.lanes.have_room(lane) {
            let ready_at = self.lanes[lane].ready_at;
            if ready_at > now {
                return self.arm(Due::Lanes, ready_at);
            }
            let queue = &mut self.lanes[lane];
            if lane == Lane::Looks {
                queue.ready_at = now + LOOK_EVERY;
            }
            let number = match queue.waiting.len() {
                few if few < least_together(lane) && queue.pause == 0 => 1,
                number => number.min(group_of(lane)),
            };
            let claims = queue.waiting.drain(..number).collect();
            self.send(now, luck, lane, claims, false, Order::Each);
        }
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
            LIMIT_TOGETHER
        } else {
            limit_of(lane)
        };
        let (mut rows, mut looks) = (Vec::new(), Vec::new());
        claims.retain(|key| match self.part(now, luck, lane, *key, &mut limit) {
            Some(Part::Row(row)) => {
                rows.push(row);
                true
            }
            Some(Part::Look(look)) => {
                looks.push(look);
                true
            }
            None => false,
        });
        if claims.is_empty() {
            return;
        }
        self.lanes.take_place(lane, is_alone);
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
        if let Some(own) = self.flights.get_mut(flight) {
            own.key = flight;
        }
        self.arm(Due::Flight(flight), now + PLACE);
        for key in claims {
            self.sent(now, flight, lane, key, limit);
        }
        self.effects.push(match lane {
            Lane::Looks => Effect::Look { flight, looks, limit },
            _ => Effect::Run {
                flight,
                rows,
                order,
                limit,
            },
        });
    }

    /// The timers of what has been sent.
    fn sent(&mut self, now: Time, flight: Key, lane: Lane, key: Key, limit: Span) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let room = claim.room;
        let next = now + COPY;
        match lane {
            Lane::Ends => {
                if let Some(closing) = claim.closing_mut() {
                    (closing.due, closing.tries) = (next, closing.tries.saturating_add(1));
                }
                self.arm(Due::Claim(key), next);
            }
            Lane::Renewals => {
                if let Some(lease) = claim.lease_mut() {
                    lease.renew_at = now + limit + 100 * MS;
                }
            }
            Lane::Claims => {
                claim.flights += 1;
                claim.sent = now;
                let due = if claim.resumes.is_some() {
                    Due::Claim(key)
                } else {
                    Due::Room(room)
                };
                self.arm(due, next);
                if due == Due::Room(room) {
                    self.note_asked(flight, room);
                }
            }
            Lane::Looks => {
                self.arm(Due::Room(room), next);
                self.note_asked(flight, room);
            }
        }
    }

    /// What the command has for this claim, if it is still wanted.
    fn part(
        &mut self,
        now: Time,
        luck: &mut dyn Luck,
        lane: Lane,
        key: Key,
        limit: &mut Span,
    ) -> Option<Part> {
        let claim = self.claims.get_mut(key)?;
        if lane == Lane::Renewals {
            std::mem::take(&mut claim.renews).then_some(())?;
        } else {
            claim.in_lane.take_if(|own| *own == lane)?;
        }
        let (when, then) = match lane {
            Lane::Looks => return self.look(now, key),
            Lane::Claims => self.claim_row(now, luck, key, limit)?,
            Lane::Ends => self.end_row(key)?,
            Lane::Renewals => {
                let id = claim.id.clone()?;
                let expiry = claim.rules.expiry;
                let when = When::Own {
                    id,
                    token: Some(claim.last),
                    runs: Some(0),
                };
                claim.lease_mut()?;
                let (least, most) = RENEWAL_LIMIT;
                *limit = (*limit).min((expiry * MS / RENEWAL_LIMIT_PART).clamp(least, most));
                (when, Then::Renew { expiry })
            }
        };
        let name = self.document_of(self.claims.get(key)?)?;
        Some(Part::Row(Row { name, when, then }))
    }

    fn look(&mut self, now: Time, key: Key) -> Option<Part> {
        let claim = self.claims.get(key).filter(|claim| claim.is_asking())?;
        let room = self
            .rooms
            .get_mut(claim.room)
            .filter(|room| !room.queue.is_empty())?;
        (room.pause_until, room.asked) = (now + COPY, now);
        let name = room.name.clone();
        Some(Part::Look(match room.permits.is_of_lock() {
            true => Look::Lock(name),
            false => Look::Permits(name),
        }))
    }

    fn claim_row(
        &mut self,
        now: Time,
        luck: &mut dyn Luck,
        key: Key,
        limit: &mut Span,
    ) -> Option<(When, Then)> {
        let claim = self.claims.get(key).filter(|claim| claim.is_asking())?;
        let (permit, expiry, resumes) = (claim.permit, claim.rules.expiry, claim.resumes.clone());
        let room = self.rooms.get(claim.room)?;
        let call = self.first(room);
        let deadline = match claim.set.filter(|_| resumes.is_some()) {
            Some(set) => self.sets.get(set)?.deadline,
            None => call?.deadline,
        };
        if let Some(deadline) = deadline {
            *limit = (*limit).min(((deadline - now) * 4 / 5).max(LIMIT_LEAST));
        }
        if permit.is_some() && call.is_some_and(|call| call.width > 1) {
            *limit = (*limit).min(LIMIT_OF_PERMIT);
        }
        let kind = match call {
            _ if resumes.is_some() => Kind::Resumed,
            _ if permit.is_some() => Kind::Permit,
            Some(call) if call.set.is_some() => Kind::Set,
            _ => Kind::Single,
        };
        let room = self.rooms.get_mut(claim.room)?;
        if room.turn == Some(key) {
            (room.copy_at, room.asked) = (now + COPY, now);
        }
        let slot = u8::try_from((SLOT + self.trip) / MS).unwrap_or(u8::MAX);
        let conf = &self.conf;
        let new_id = || Id::drawn(conf.mark, kind, slot, luck.id()).text(&conf.owner);
        let id = self.claims.get_mut(key)?.id.get_or_insert_with(new_id).clone();
        let tokens = TOKENS;
        Some(match resumes {
            Some((lease, _)) => (When::runs(&lease), Then::Adopt { id, expiry, tokens }),
            None => {
                let margin = self.conf.margin;
                (When::Free { margin }, Then::Claim { id, expiry, tokens })
            }
        })
    }

    /// What ends a hold. What was given up of a resumption gets back the id of the lease.
    fn end_row(&self, key: Key) -> Option<(When, Then)> {
        let claim = self.claims.get(key)?;
        let id = claim.id.as_ref()?;
        Some(match &claim.stage {
            Stage::Renaming { change, .. } => {
                let when = When::Own {
                    id: id.clone(),
                    token: Some(claim.last),
                    runs: Some(0),
                };
                let then = match change {
                    Change::Mark(until) => Then::Mark { until: *until },
                    Change::Detach { id, ttl } => Then::Rename {
                        to: id.clone(),
                        ttl: *ttl,
                        min_hold: claim.rules.min_hold,
                    },
                };
                (when, then)
            }
            Stage::Releasing { min_hold, .. } => {
                let then = match claim.resumes.clone() {
                    Some((to, ttl)) => Then::Rename { to, ttl, min_hold: 0 },
                    None => Then::End {
                        min_hold: *min_hold,
                        unused: claim.last - claim.token,
                    },
                };
                (When::is(id), then)
            }
            _ => return None,
        })
    }
}
