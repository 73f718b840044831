//! Transactions that commit only if the lock is still held. Their last statement changes the document of the lock, so no other claim
//! can acquire it between the statement and the commit.
//!
//! | event | held | held, a commit is in progress | held, the outcome of a mark is unknown | being released |
//! |---|---|---|---|---|
//! | a commit begins | it is in progress | one more is in progress | it is in progress | nothing: it cannot commit |
//! | a commit was made | – | one fewer is in progress | – | – |
//! | a commit was made, with a mark | – | the hold has ended with its mark | – | the release finds the mark |
//! | a commit was not made | – | one fewer; a renewal that did not find the claim is repeated | – | – |
//! | the outcome of a commit without a mark is unknown | – | one fewer; the claim is not handed over | – | – |
//! | the outcome of a commit with a mark is unknown | – | a renewal is sent and shows the outcome | – | the release finds the claim or the mark |
//! | the holder ends its hold | handed over or released | the same, after the last commit | released | – |
//! | a renewal is due | together with others | alone: it waits for the transaction | alone | alone |
//! | a renewal finds the claim | renewed | renewed | renewed; the transaction was not made, if it was sent after its end | renewed |
//! | a renewal finds the mark | – | the hold has ended with its mark | the same; the transaction was made | nothing |
//! | a renewal finds another id | lost | lost; while a commit with a mark is in progress, nothing | lost | nothing |
//! | the lease ends | lost | lost; with a mark, after that commit | lost, the outcome stays unknown | – |
//! | shutdown | lost | lost; with a mark, after that commit | lost, the outcome stays unknown | continues |
//! | the claim is to be released | – | the release waits in the server for the transaction, and is repeated | – | – |
//!
//! A commit without a mark does not change the id, so its outcome has no effect on the hold. It may still be made while
//! its documents are blocked, and only a release waits for that. A set has each event for all of its claims, and is
//! lost as a whole if one claim is lost. A commit in a joined context belongs to the hold that was joined. A permit has
//! no token that data could check, so no commit is possible under it.

use super::event::{Ended, LossReason, Notice};
use super::lanes::Flight;
use super::slab::Key;
use super::state::{Claim, Core, Postponed, Unknown};
use super::time::{MS, Time, span};
use crate::protocol::{Reply, Until};
use crate::timing::{COMMAND_LIMIT, NO_REPLY};

impl<C: Clone> Core<C> {
    pub(super) fn commit_begins(&mut self, now: Time, hold: Key, marks: bool) {
        for key in self.claims_of(hold) {
            let claim = self.claims.get_mut(key).filter(|claim| claim.is_held());
            let Some(claim) = claim else { continue };
            claim.commits.open += 1;
            if marks {
                claim.commits.marks = true;
                claim.commits.mark_ends = claim.mark_until.as_deref().map(|(until, ends)| match until {
                    Until::After(kept) => now + kept.saturating_mul(MS),
                    Until::At(_) => *ends,
                });
                self.end_with_mark(now, key);
            }
        }
    }

    /// After a transaction may have marked the work, the lock becomes free when the mark ends: the holder does not rely
    /// on its lease for longer.
    pub(super) fn end_with_mark(&mut self, now: Time, key: Key) {
        let claim = &mut self.claims[key];
        let mark_ends = claim.commits.mark_ends.unwrap_or(Time::NEVER);
        if let Some(lease) = &mut claim.lease
            && lease.until > mark_ends
        {
            lease.until = mark_ends;
            self.arm_claim(now, key);
            self.notify_extended(key);
        }
    }

    /// A commit has ended, or its caller no longer waits. The first claim notifies the caller.
    pub(super) fn commit_ends(
        &mut self,
        now: Time,
        hold: Key,
        marks: bool,
        was_made: Option<bool>,
        mut awaited: Option<C>,
    ) {
        // A hold that has ended meanwhile waits for the commit.
        for key in self.claims_of(hold) {
            let is_open = |claim: &&mut Claim| claim.is_held() && claim.commits.open > 0;
            let Some(claim) = self.claims.get_mut(key).filter(is_open) else {
                continue;
            };
            claim.commits.open -= 1;
            let is_last = claim.commits.open == 0;
            // A renewal has not found the claim during the transaction.
            let is_missed = claim.lease.is_some_and(|lease| lease.renew_at >= lease.until);
            claim.commits.marks &= !is_last;
            claim.commits.is_unclear |= was_made.is_none();
            if is_last && was_made == Some(false) {
                claim.commits.mark_ends = None;
            }
            match was_made {
                _ if !marks => {}
                Some(true) => self.marked(now, key),
                Some(false) if is_missed => self.renew(key),
                Some(false) => {}
                None => self.ask_for_commit(now, key, awaited.take()),
            }
            if is_last {
                self.end_postponed(now, key);
            }
        }
        self.notify(awaited, Notice::Committed(None));
    }

    /// A transaction has marked the work, which ends the hold; of a set that of all its locks.
    fn marked(&mut self, now: Time, key: Key) {
        let claim = &self.claims[key];
        let (room, caller) = (claim.room, claim.caller);
        let cell = self.holder(claim).cloned();
        self.notify(cell, Notice::Ended(Ok(Ended::Marked)));
        if let Some(caller) = caller
            && self.callers.get(caller).is_some_and(|own| own.left == 0)
        {
            self.callers.remove(caller);
        }
        self.end_released(now, now, key, Ended::Marked);
        self.pass_turn(now, room, key);
        self.touch(now, room);
    }

    /// Sends a renewal: its reply shows whether a transaction was made.
    fn ask_for_commit(&mut self, now: Time, key: Key, waiter: Option<C>) {
        let limit = now + span(COMMAND_LIMIT) + span(NO_REPLY);
        let (claim, after) = (&mut self.claims[key], self.commands);
        claim.commits.unknown = Some(Box::new(Unknown { limit, after }));
        let caller = claim.caller.and_then(|caller| self.callers.get_mut(caller));
        match caller.filter(|_| waiter.is_some()) {
            Some(caller) => caller.asks_outcome = waiter,
            None => self.notify(waiter, Notice::Committed(None)),
        }
        self.renew(key);
        self.arm_claim(now, key);
    }

    /// Does what was postponed while a commit was in progress: ends or loses the hold.
    fn end_postponed(&mut self, now: Time, key: Key) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let of = claim.caller;
        match claim.commits.postponed.take() {
            Some(Postponed::Ending) => self.end(now, key, of),
            Some(Postponed::Loss(loss)) => self.lose(now, key, loss),
            None => {}
        }
    }

    /// The claim leaves its hold. Callers that wait for the outcome of a commit, or for the end of the hold after one,
    /// are notified.
    pub(super) fn leave_commits(&mut self, key: Key, ended: Ended) {
        let claim = &mut self.claims[key];
        let (unknown, postponed) = (claim.commits.unknown.take(), claim.commits.postponed.take());
        let of = claim.caller;
        if unknown.is_some() {
            self.tell_outcome(key, None);
        }
        if let Some(Postponed::Ending) = postponed {
            self.part_ended(of, Ok(ended));
        }
    }

    /// Notifies the holder that waits for the outcome of a transaction.
    pub(super) fn tell_outcome(&mut self, key: Key, was_made: Option<bool>) {
        let caller = self.claims[key].caller;
        let caller = caller.and_then(|caller| self.callers.get_mut(caller));
        let waiter = caller.and_then(|caller| caller.asks_outcome.take());
        self.notify(waiter, Notice::Committed(was_made));
    }

    /// A renewal does not find the claim.
    pub(super) fn renewal_missed(&mut self, now: Time, flight: &Flight, key: Key, reply: &Reply) {
        let claim = &mut self.claims[key];
        if claim.is_marked_by(reply) {
            self.commit_decided(flight, key, true);
            self.marked(now, key);
        } else if !(claim.commits.open > 0 && claim.commits.marks) {
            self.lose(now, key, LossReason::Gone);
        } else if let Some(lease) = &mut claim.lease {
            // Another renewal is sent when the commit ends.
            lease.renew_at = lease.until;
        }
    }

    /// The reply to a renewal shows whether a transaction with an unknown outcome was made.
    pub(super) fn commit_decided(&mut self, flight: &Flight, key: Key, was_made: bool) {
        let decides = |unknown: &mut Box<Unknown>| was_made || flight.number > unknown.after;
        let commits = &mut self.claims[key].commits;
        let unknown = commits.unknown.take_if(decides);
        if unknown.is_some() {
            if commits.open == 0 {
                commits.mark_ends = None;
            }
            self.tell_outcome(key, Some(was_made));
        }
    }
}
