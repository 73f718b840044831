//! Several locks for one caller. A set acquires them in the order of their names, with one command as many as are free,
//! and keeps the acquired ones while it waits for the next one. In the queue of each lock it is a call like any other.

use super::event::{Cause, Ended, Hold, Lane, Notice, Outcome, Waiter};
use super::slab::Key;
use super::state::{Awaits, Call, Caller, Core, Set};
use super::time::Time;
use crate::protocol::{Name, Order};

impl<C> Set<C> {
    pub(super) fn new(names: Vec<Name>, caller: Caller<C>) -> Self {
        Self {
            caller,
            names,
            won: Vec::new(),
            calls: Vec::new(),
            waiter: None,
            left: 0,
            has_waited: false,
            ended: None,
        }
    }

    pub(super) fn has_some(&self) -> bool {
        !self.won.is_empty()
    }

    /// Its holder is done. Its claims end one by one.
    pub(super) fn ends(&mut self, waiter: Option<Awaits<C>>) -> Vec<Key> {
        let won = std::mem::take(&mut self.won);
        (self.waiter, self.left) = (waiter, won.len());
        won
    }
}

impl<C: Clone> Core<C> {
    pub(super) fn join_all(&mut self, now: Time, names: Vec<Name>, caller: Caller<C>) -> Waiter {
        let set = self.sets.insert(Set::new(names, caller));
        self.advance(now, set);
        Waiter::Set(set)
    }

    /// Waits for the next lock, and asks with the same command for later locks for which no call waits in this process.
    fn advance(&mut self, now: Time, key: Key) {
        let Some(set) = self.sets.get(key).cloned() else {
            return;
        };
        let first = set.won.len();
        let mut claims = Vec::new();
        for (place, name) in set.names.iter().enumerate().skip(first) {
            let room_key = self.room_of(name.clone());
            let is_free = self.may_be_free(room_key);
            if place > first && !is_free {
                break;
            }
            let call = self.enter(now, Call::new(set.caller.clone(), room_key, 0, Some(key)));
            self.sets[key].calls.push(call);
            if !is_free {
                return self.touch(now, room_key);
            }
            let claim_key = self.new_claim(now, room_key);
            self.give_turn(room_key, claim_key);
            let claim = &mut self.claims[claim_key];
            (claim.is_later, claim.in_lane) = (place > first, Some(Lane::Claims));
            claims.push(claim_key);
        }
        match claims[..] {
            [claim] => self.lane(Lane::Claims).waiting.push_back(claim),
            _ => self.go_together(Lane::Claims, claims),
        }
    }

    /// The claims of a set have a command of their own, which stops at a miss.
    pub(super) fn go_together(&mut self, lane: Lane, claims: Vec<Key>) {
        self.lane(lane).apart.push_back((Order::StopAtMiss, claims));
    }

    /// Whether no call of this process waits for it, and it is not left to another process.
    fn may_be_free(&self, key: Key) -> bool {
        let room = &self.rooms[key];
        let is_idle = room.turn.is_none() && room.queue.is_empty() && !room.order.yields;
        is_idle && !(self.stream.reports(room.filter) && room.time_slot(0.0) > 0)
    }

    /// A set has acquired one of its locks.
    pub(super) fn set_won(&mut self, now: Time, key: Key, claim: Key, call: Key) {
        let name = &self.rooms[self.claims[claim].room].name;
        let fits = |set: &&mut Set<C>| set.names.get(set.won.len()) == Some(name);
        let Some(set) = self.sets.get_mut(key).filter(fits) else {
            self.release(now, claim, None, true);
            return self.asks_no_more(now, key, call);
        };
        set.won.push(claim);
        set.calls.retain(|other| *other != call);
        let (has_all, asks) = (set.won.len() == set.names.len(), set.calls.is_empty());
        if has_all {
            self.begin_turns(now, key, claim);
            self.notify_held_all(key);
            return;
        }
        self.claims[claim].count_hold(None);
        if asks {
            self.advance(now, key);
        }
    }

    /// A call of a set has acquired its lock before earlier locks of the set, and has released it.
    fn asks_no_more(&mut self, now: Time, key: Key, call: Key) {
        let Some(set) = self.sets.get_mut(key) else { return };
        set.calls.retain(|other| *other != call);
        if set.calls.is_empty() {
            self.advance(now, key);
        }
    }

    /// The hold begins when the set has its last lock. At that time the turn of each lock that no call has held yet
    /// begins, too.
    fn begin_turns(&mut self, now: Time, key: Key, last: Key) {
        let since = self.claims[last].turn_since;
        for claim in &self.sets[key].won {
            let claim = &mut self.claims[*claim];
            claim.count_hold(Some(now));
            if claim.last - claim.token == claim.tokens - 1 {
                claim.turn_since = claim.turn_since.max(since);
            }
        }
    }

    /// The caller has all locks.
    pub(super) fn notify_held_all(&mut self, key: Key) {
        let Some(until) = self.until(key) else { return };
        let set = &self.sets[key];
        let grants = set
            .won
            .iter()
            .map(|claim| self.claims[*claim].grant(set.has_waited));
        let held = Notice::HeldAll(Hold::Set(key), grants.collect(), until);
        self.notify(set.caller.join.cell.clone(), held);
    }

    /// A lock behind the one that was found held is given up: the set may acquire its locks only in order.
    pub(super) fn withdraw(&mut self, now: Time, claim: Key) {
        let Some(claim) = self.claims.get_mut(claim) else {
            return;
        };
        if !std::mem::take(&mut claim.is_later) {
            return;
        }
        let room = &self.rooms[claim.room];
        let call = room.queue.front().copied();
        let of_set = call.and_then(|call| Some((call, self.calls[call].set?)));
        let Some((call, key)) = of_set else { return };
        let set = &mut self.sets[key];
        if set.names.get(set.won.len()) == Some(&room.name) {
            return;
        }
        set.calls.retain(|other| *other != call);
        let is_last = set.calls.is_empty();
        self.leave(now, call);
        // The other locks of the set were acquired by another command.
        if is_last {
            self.advance(now, key);
        }
    }

    /// When the first lease of a set ends.
    pub(super) fn until(&self, key: Key) -> Option<Time> {
        let until = |claim: &Key| Some(self.claims.get(*claim)?.held()?.1.until);
        self.sets.get(key)?.won.iter().filter_map(until).min()
    }

    /// The caller of a set no longer waits.
    pub(super) fn leave_set(&mut self, now: Time, key: Key) {
        let Some(set) = self.sets.get_mut(key) else { return };
        for call in std::mem::take(&mut set.calls) {
            self.leave(now, call);
        }
        if self.is_resuming(key) {
            return self.give_back(now, key);
        }
        self.untaken(Hold::Set(key));
        self.end_set(now, key, None);
    }

    /// The holder of a set ends the hold, or its caller no longer waits.
    pub(super) fn end_set(&mut self, now: Time, key: Key, awaited: Option<Awaits<C>>) {
        let Some(set) = self.sets.get_mut(key).filter(|set| set.left == 0) else {
            return self.notify_ended(now, awaited, Ok(Ended::Lost));
        };
        let won = set.ends(awaited);
        if won.is_empty() {
            self.sets.remove(key);
        }
        for claim in &won {
            let token = self.claims.get(*claim).map_or(0, |claim| claim.token);
            self.end(now, *claim, token, Some(Awaits::Set(key)), &won);
        }
    }

    /// A lease of a set is lost. A complete set is lost as a whole; an incomplete one starts again.
    pub(super) fn set_lost(&mut self, now: Time, key: Key, lost: Key) {
        self.fail_resumption(now, lost, Cause::Gone);
        let Some(set) = self.sets.get_mut(key) else { return };
        if set.calls.is_empty() {
            return;
        }
        let (calls, won) = (std::mem::take(&mut set.calls), std::mem::take(&mut set.won));
        for call in calls {
            self.leave(now, call);
        }
        for claim in won.into_iter().filter(|claim| *claim != lost) {
            let token = self.claims.get(claim).map_or(0, |claim| claim.token);
            self.end(now, claim, token, None, &[]);
        }
        self.advance(now, key);
    }

    /// One claim of a set has ended. The last one ends the set: it is lost if one of them was.
    pub(super) fn part_ended(&mut self, now: Time, key: Key, ended: Outcome) {
        let Some(set) = self.sets.get_mut(key) else { return };
        let lost = Ok(Ended::Lost);
        let is_worse = |before: &Result<_, _>| *before == lost || before.is_err() && ended != lost;
        let ended = set.ended.take().filter(is_worse).unwrap_or(ended);
        set.left -= 1;
        if set.left > 0 {
            set.ended = Some(ended);
            return;
        }
        let Some(set) = self.sets.remove(key) else { return };
        self.notify_ended(now, set.waiter, ended);
    }
}
