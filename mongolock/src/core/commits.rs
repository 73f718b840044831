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

use super::event::{Ended, Hold, Loss, Notice};
use super::lanes::Flight;
use super::limits::{LIMIT, NO_REPLY};
use super::slab::Key;
use super::state::{Core, Due, Postponed, Set, Stage, Unknown};
use super::time::{MS, Time};
use crate::protocol::{Reply, Until};

impl<C: Clone> Core<C> {
    pub(super) fn commit_begins(&mut self, now: Time, hold: Hold, marks: bool) {
        for key in self.claims_of(hold) {
            let claim = self.claims.get_mut(key).filter(|claim| claim.is_held());
            let Some(claim) = claim else { continue };
            claim.commits.open += 1;
            if marks {
                claim.commits.marks = true;
                claim.commits.mark_ends = claim.mark_until.map(|(until, ends)| match until {
                    Until::After(kept) => now + kept.saturating_mul(MS),
                    Until::At(_) => ends,
                });
                self.end_with_mark(key);
            }
        }
    }

    /// After a transaction may have marked the work, the lock becomes free when the mark ends: the holder does not rely
    /// on its lease for longer.
    pub(super) fn end_with_mark(&mut self, key: Key) {
        let claim = &mut self.claims[key];
        let mark_ends = claim.commits.mark_ends.unwrap_or(Time::NEVER);
        if let Some(lease) = claim.lease_mut()
            && lease.until > mark_ends
        {
            lease.until = mark_ends;
            self.arm(Due::Claim(key), mark_ends);
            self.notify_extended(key);
        }
    }

    /// A commit has ended, or its caller no longer waits. The first claim notifies the caller.
    pub(super) fn commit_ends(
        &mut self,
        now: Time,
        hold: Hold,
        marks: bool,
        was_made: Option<bool>,
        mut awaited: Option<C>,
    ) {
        let claims = match hold {
            // Also for a set whose hold has ended meanwhile: its claims wait for the commit.
            Hold::Set(set) => self.claims_after(set),
            Hold::One(..) => self.claims_of(hold),
        };
        for key in claims {
            let claim = self.claims.get_mut(key).filter(|claim| claim.is_held());
            let Some(claim) = claim.filter(|claim| claim.commits.open > 0) else {
                continue;
            };
            claim.commits.open -= 1;
            let is_last = claim.commits.open == 0;
            // A renewal has not found the claim during the transaction.
            let is_missed = claim
                .lease_mut()
                .is_some_and(|lease| lease.renew_at >= lease.until);
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
        self.notify(awaited, Notice::Committed(Err(None)));
    }

    /// A transaction has marked the work, which ends the hold; of a set that of all its locks.
    fn marked(&mut self, now: Time, key: Key) {
        let claim = &self.claims[key];
        let (room, set) = (claim.room, claim.set);
        if let Stage::Held(cell, _) = &claim.stage {
            let cell = cell.clone();
            if let Some(set) = set.filter(|set| self.sets.get(*set).is_some_and(Set::has_some)) {
                self.sets.remove(set);
            }
            self.notify(cell, Notice::Ended(Ok(Ended::Marked)));
        }
        self.leave_commits(now, key, Ended::Marked);
        self.end_released(now, now, key);
        self.pass_turn(now, room, key);
        self.touch(now, room);
    }

    fn claims_after(&self, set: Key) -> Vec<Key> {
        let own = self.claims.iter().filter(|(_, claim)| claim.set == Some(set));
        own.map(|(key, _)| key).collect()
    }

    /// Sends a renewal: its reply shows whether a transaction was made.
    fn ask_for_commit(&mut self, now: Time, key: Key, waiter: Option<C>) {
        let limit = now + (LIMIT + NO_REPLY);
        self.claims[key].commits.unknown = Some(Unknown {
            waiter,
            limit,
            since: now,
            asked: None,
        });
        self.arm(Due::Claim(key), limit);
        self.renew(key);
    }

    /// Does what was postponed while a commit was in progress: ends or loses the hold.
    fn end_postponed(&mut self, now: Time, key: Key) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        let token = claim.token;
        match claim.commits.postponed.take() {
            Some(Postponed::Ending(awaited)) => self.end(now, key, token, awaited, &[]),
            Some(Postponed::Loss(loss)) => self.lose(now, key, loss),
            None => {}
        }
    }

    /// The claim leaves its hold. Callers that wait for the outcome of a commit, or for the end of the hold after one,
    /// are notified.
    pub(super) fn leave_commits(&mut self, now: Time, key: Key, ended: Ended) {
        let commits = &mut self.claims[key].commits;
        let (unknown, postponed) = (commits.unknown.take(), commits.postponed.take());
        let waiter = unknown.and_then(|unknown| unknown.waiter);
        self.notify(waiter, Notice::Committed(Err(None)));
        if let Some(Postponed::Ending(awaited)) = postponed {
            self.notify_ended(now, awaited, Ok(ended));
        }
    }

    /// A renewal does not find the claim.
    pub(super) fn renewal_missed(&mut self, now: Time, flight: &Flight, key: Key, reply: &Reply) {
        let claim = &mut self.claims[key];
        if claim.is_marked_by(reply) {
            self.commit_decided(flight, key, true);
            self.marked(now, key);
        } else if !(claim.commits.open > 0 && claim.commits.marks) {
            self.lose(now, key, Loss::Gone);
        } else if let Some(lease) = claim.lease_mut() {
            // Another renewal is sent when the commit ends.
            lease.renew_at = lease.until;
        }
    }

    /// The reply to a renewal shows whether a transaction with an unknown outcome was made.
    pub(super) fn commit_decided(&mut self, flight: &Flight, key: Key, was_made: bool) {
        let decides = |unknown: &mut Unknown<C>| {
            was_made || unknown.asked == Some(flight.key) || flight.sent > unknown.since
        };
        let commits = &mut self.claims[key].commits;
        let unknown = commits.unknown.take_if(decides);
        if unknown.is_some() && commits.open == 0 {
            commits.mark_ends = None;
        }
        let waiter = unknown.and_then(|unknown| unknown.waiter);
        self.notify(waiter, Notice::Committed(Ok(was_made)));
    }

    /// The caller waits for an unknown outcome no longer than a command can take.
    pub(super) fn commit_due(&mut self, now: Time, key: Key) {
        let Some(unknown) = &mut self.claims[key].commits.unknown else {
            return;
        };
        if unknown.limit > now {
            let at = unknown.limit;
            self.arm(Due::Claim(key), at);
        } else {
            let waiter = unknown.waiter.take();
            self.notify(waiter, Notice::Committed(Err(None)));
        }
    }
}
