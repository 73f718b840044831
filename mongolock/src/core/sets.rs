//! Delivery: a caller gets the claims that its locks have acquired, and begins its hold with the last one.

use super::event::{Cause, Grant, Notice};
use super::slab::Key;
use super::state::{Core, Stage};
use super::time::{MS, Time};

impl<C: Clone> Core<C> {
    /// The first caller of its room gets the claim. With its last claim it is told that it has its hold.
    pub(super) fn deliver(&mut self, now: Time, key: Key) {
        let room = self.claims[key].room;
        let Some(first) = self.rooms[room].queue.pop_front() else {
            return;
        };
        self.claims[key].caller = Some(first);
        let caller = &mut self.callers[first];
        if caller.rooms.first() != Some(&room) {
            // It comes before earlier locks of the caller.
            caller.rooms.remove(room);
            return self.release(now, key, None);
        }
        caller.rooms.pop_front();
        caller.won.push(key);
        let has_all = caller.won.len() >= caller.names.len();
        self.claims[key].stage = Stage::Held;
        if has_all {
            self.grant(now, first);
        } else {
            self.advance(now, first);
        }
    }

    /// The caller has all of its locks: its hold begins, and with it the turn of each lock that no caller has held yet.
    pub(super) fn grant(&mut self, now: Time, key: Key) {
        self.stops_waiting(key);
        let caller = &self.callers[key];
        let mut grants = Vec::with_capacity(caller.won.len());
        for claim in caller.won.iter() {
            let claim = &mut self.claims[*claim];
            if let (Some(lease), Some(most)) = (&mut claim.lease, claim.rules.max_hold) {
                lease.renewable_until = now + most.saturating_mul(MS);
            }
            if claim.last - claim.token == claim.tokens - 1 {
                claim.turn_since = now;
            }
            grants.push(Grant {
                id: claim.id.clone().unwrap_or_default(),
                token: claim.token,
                permit: claim.permit,
                mark: claim.mark_until.as_deref().map(|(until, _)| *until),
                has_waited: caller.has_waited,
            });
        }
        let cell = caller.join.cell.clone();
        if let Some(until) = self.until(key) {
            self.notify(cell, Notice::Held(key, grants, until));
        }
    }

    /// Whether the first caller of a room asks for its next lock, and not for a later one with the same command.
    pub(super) fn is_next(&self, room: Key) -> bool {
        let first = self.first(&self.rooms[room]);
        first.is_some_and(|caller| caller.rooms.first() == Some(&room))
    }

    /// A claim has not got its lock. If an earlier lock of its caller was found held, the caller waits only for that one.
    pub(super) fn withdraw(&mut self, room: Key) {
        let Some(first) = self.rooms[room].queue.first().copied() else {
            return;
        };
        let caller = &mut self.callers[first];
        if caller.rooms.first() != Some(&room) {
            caller.rooms.remove(room);
            self.rooms[room].queue.remove(first);
        }
    }

    /// When the first lease of a caller ends.
    pub(super) fn until(&self, key: Key) -> Option<Time> {
        let caller = self.callers.get(key)?;
        let until = |claim: &Key| Some(self.claims.get(*claim)?.lease?.until);
        caller.won.iter().filter_map(until).min()
    }

    /// A caller that waits has lost the lock of this room. It begins again, or its resumption fails.
    pub(super) fn begin_again(&mut self, now: Time, key: Key, room: Key) {
        let Some(caller) = self.callers.get_mut(key).filter(|caller| caller.waits) else {
            return;
        };
        if caller.rooms.is_empty() {
            return self.fail(now, key, room, Cause::Gone);
        }
        let won = std::mem::take(&mut caller.won);
        self.leave_queues(now, key, None);
        for claim in won.iter() {
            self.end(now, *claim, None);
        }
        self.advance(now, key);
    }
}
