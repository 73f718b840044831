//! A claim that has acquired its lock, and what the reply to the command that ends a claim says.

use super::event::{Cause, Ended};
use super::lanes::Flight;
use super::limits;
use super::once::{OncePolicy, Period};
use super::slab::Key;
use super::state::{Claim, Closing, Core, End, LeaseTimes, Phase, Stage};
use super::time::{MS, Span, Time};
use crate::protocol::{Ms, Reply, Sight, Until};

/// The part of a lease that its holder relies on: the clocks of two hosts can differ by 1 %, and times are whole milliseconds.
pub(crate) fn relied_on(lasts: Ms) -> Span {
    lasts * MS - margin(lasts)
}

/// The time for which the server keeps a lease longer than its holder relies on it.
pub(super) fn margin(lasts: Ms) -> Span {
    lasts * MS / 100 + 2 * MS
}

impl<C: Clone> Core<C> {
    /// A claim has acquired its lock. The first call of its room gets it, if that call has the same options.
    pub(super) fn won(&mut self, now: Time, flight: &Flight, key: Key, sight: &Sight, last: i64) {
        let claim = &mut self.claims[key];
        let (room, rules) = (claim.room, claim.rules.clone());
        let left = sight.left().unwrap_or(rules.expiry).min(rules.expiry);
        let lease = LeaseTimes {
            until: flight.sent + relied_on(left),
            // What is left after a copy may be less than the time between two renewals.
            renew_at: flight.sent + (left - (rules.expiry - rules.renew_every)) * MS,
            renewable_until: Time::NEVER,
            may_last: now - flight.sent > limits::SLOW,
            is_blocked: false,
        };
        (claim.last, claim.token) = (last, last - (claim.tokens - 1));
        let acquired_at = sight.document.acquired_at.date();
        let mark_until = |(once, at): (OncePolicy, Ms)| Box::new(once.mark_of(at, flight.sent));
        claim.mark_until = rules.once.zip(acquired_at).map(mark_until);
        if claim.resumes.is_some() {
            return self.resumed(now, key, lease);
        }
        let fits = self.fits(key);
        if self.claims[key].permit.is_some() {
            self.pass_turn(now, room, key);
        }
        let caller = self.first(&self.rooms[room]);
        let period = caller
            .and_then(|caller| caller.period.as_deref())
            .zip(acquired_at);
        // The lock was acquired for a call of an earlier period, and a mark of that period would not apply to this one.
        let is_earlier = match (self.claims[key].mark_until.as_deref(), period) {
            (Some((Until::At(end), _)), Some((period, _))) => *end < period.end,
            _ => false,
        };
        if lease.until <= now || !fits || is_earlier || self.phase == Phase::Closed {
            return self.release(now, key, None);
        }
        let first = self.rooms[room].queue[0];
        // The age counts from the request, because the server can have delayed the reply.
        let left = |(period, at): (&Period, Ms)| period.end.saturating_sub(at).saturating_mul(MS);
        if period.is_some_and(|period| left(period) <= now - flight.sent) {
            self.release(now, key, None);
            return self.fail(now, first, room, Cause::PeriodOver);
        }
        let (room, claim) = (&mut self.rooms[room], &mut self.claims[key]);
        room.order.acquired(now);
        room.misses = 0;
        if room.permits.is_of_lock() {
            // No other claim has the lock.
            room.seen = None;
        }
        (claim.turn_since, claim.turn_left) = (now, room.queue.len() - 1);
        claim.lease = Some(lease);
        self.deliver(now, key);
    }

    /// What a command says that ends a claim.
    pub(super) fn end_replied(&mut self, now: Time, sent: Time, key: Key, reply: &Reply) {
        if let Stage::Ending(closing) = &self.claims[key].stage {
            let ended = self.claims[key].ended_by(closing, now - sent, reply);
            self.ended(now, sent, key, Ok(ended));
        }
    }

    /// Whether the first call of its room can have this claim.
    pub(super) fn fits(&self, key: Key) -> bool {
        let claim = &self.claims[key];
        self.first(&self.rooms[claim.room]).is_some_and(|caller| {
            caller.rules == claim.rules && claim.permit.is_none_or(|number| number < caller.width)
        })
    }
}

impl Claim {
    /// The document in the reply and its last token, if this claim has the lock.
    pub(super) fn own_sight<'a>(&self, reply: &'a Reply) -> Option<(&'a Sight, i64)> {
        let sight = reply.sight.as_ref()?;
        let is_own = self.id.as_ref().is_some_and(|id| sight.has(id));
        is_own.then_some((sight, sight.document.token.long()?))
    }

    /// Whether the document has the mark of the claim, which a transaction has made.
    pub(super) fn is_marked_by(&self, reply: &Reply) -> bool {
        matches!((&self.id, &reply.sight), (Some(id), Some(sight)) if sight.is_marked_by(id))
    }

    /// What the command, or an earlier one, has done to the document.
    fn ended_by(&self, closing: &Closing, took: Span, reply: &Reply) -> Ended {
        let Some(sight) = &reply.sight else {
            // Of several rows the reply may tell only that all of them have changed their documents.
            let is_done = reply.is_applied == Some(true) || closing.is_release() && closing.tries > 1;
            return match closing.end {
                _ if !is_done => Ended::Lost,
                End::Release(_) => Ended::Released,
                End::Mark(_) => Ended::Marked,
                End::Detach(..) => Ended::Detached,
            };
        };
        match &closing.end {
            End::Detach(id, _) if sight.has(id) => Ended::Detached,
            End::Release(_) | End::Mark(_) if self.is_marked_by(reply) => Ended::Marked,
            End::Release(_) if self.is_released_by(closing, took, reply, sight) => Ended::Released,
            End::Mark(Until::At(over)) if self.is_over_by(closing, reply, sight, *over) => Ended::Released,
            _ => Ended::Lost,
        }
    }

    /// Whether the lock was released until this reply. After a resumption that was given up no caller gets the result.
    fn is_released_by(&self, closing: &Closing, took: Span, reply: &Reply, sight: &Sight) -> bool {
        let is_ended = sight.has("") || self.id.as_ref().is_some_and(|id| sight.is_kept_by(id));
        let token = sight.document.token.long();
        // An operator may have released the lock earlier, with the same token.
        let is_recent = || {
            sight
                .left()
                .is_some_and(|left| left.saturating_mul(MS) + took + MS >= 0)
        };
        let is_own = reply.is_applied.unwrap_or_else(is_recent);
        // If an earlier command has released the lock, a repetition finds another document. The last token of the claim
        // shows a release by an operator. After a late claim the document has other tokens.
        match closing.tries {
            _ if self.last == 0 => reply.is_applied == Some(true),
            0 | 1 => is_ended && token == Some(self.token) && is_own,
            _ => !is_ended || token != Some(self.last) || self.last == self.token,
        }
    }

    /// Whether the period of its mark was over, so that the lock was released.
    fn is_over_by(&self, closing: &Closing, reply: &Reply, sight: &Sight, over: Ms) -> bool {
        let document = &sight.document;
        // An operator leaves the same document, also before the period is over.
        let may_be_by_mark = reply.is_applied != Some(false) || closing.tries > 1;
        let is_released = sight.has("") && document.token.long() == Some(self.last);
        is_released && may_be_by_mark && document.expires_at.date() >= Some(over)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sight;
    use super::Ended::{Detached, Lost, Marked, Released};
    use super::*;

    fn reply(is_applied: Option<bool>, sight: impl Into<Option<Sight>>) -> Reply {
        let sight = sight.into();
        Reply { is_applied, sight }
    }

    /// How the command ends, after this number of tries, of a claim that has the tokens 5 to 9 and the holder 5.
    fn ended(end: End, tries: u8, took: Span, reply: &Reply) -> Ended {
        let claim = Claim {
            id: Some("own".into()),
            token: 5,
            last: 9,
            ..Claim::default()
        };
        ended_of(&claim, end, tries, took, reply)
    }

    fn ended_of(claim: &Claim, end: End, tries: u8, took: Span, reply: &Reply) -> Ended {
        let closing = Closing {
            end,
            of: None,
            answer_by: Time::NEVER,
            tries,
            stop: Time::NEVER,
            fault: None,
            after: 0,
            is_acquired_again: false,
        };
        claim.ended_by(&closing, took, reply)
    }

    #[test]
    fn a_release_has_ended_the_claim_or_found_it_lost() {
        let release = |tries, reply: &Reply| ended(End::Release(0), tries, 0, reply);
        assert_eq!(release(1, &reply(Some(true), sight("", 5, 0))), Released);
        assert_eq!(
            release(1, &reply(Some(false), sight("", 5, 0))),
            Lost,
            "an operator was faster"
        );
        assert_eq!(release(1, &reply(Some(true), sight("other", 10, 0))), Lost);
        assert_eq!(
            release(1, &reply(Some(true), sight("", 9, 0))),
            Lost,
            "an operator leaves the last token"
        );
        // An earlier one may have released it.
        assert_eq!(release(2, &reply(Some(false), sight("other", 10, 0))), Released);
        assert_eq!(release(2, &reply(Some(false), sight("", 5, 0))), Released);
        assert_eq!(release(2, &reply(Some(false), sight("", 9, 0))), Lost);
        // Several rows in one command.
        assert_eq!(release(1, &reply(Some(true), None)), Released);
        assert_eq!(release(1, &reply(None, None)), Lost);
        assert_eq!(release(2, &reply(None, None)), Released);
        let left = |left| reply(None, sight("", 5, left));
        assert_eq!(
            ended(End::Release(0), 1, 3000 * MS, &left(-3001)),
            Released,
            "it is as old as the command"
        );
        assert_eq!(
            ended(End::Release(0), 1, 3000 * MS, &left(-3002)),
            Lost,
            "it is older"
        );
    }

    #[test]
    fn a_claim_without_tokens_is_released_by_its_own_command_only() {
        let claim = Claim {
            id: Some("own".into()),
            ..Claim::default()
        };
        let release = |reply: &Reply| ended_of(&claim, End::Release(0), 2, 0, reply);
        assert_eq!(release(&reply(Some(true), sight("", 0, 0))), Released);
        assert_eq!(release(&reply(Some(false), sight("other", 7, 0))), Lost);
    }

    #[test]
    fn a_mark_or_a_detachment_has_changed_the_id_or_the_period_is_over() {
        let mark = |tries, reply: &Reply| ended(End::Mark(Until::At(60)), tries, 0, reply);
        assert_eq!(mark(1, &reply(Some(true), sight("done:own", 9, 60))), Marked);
        assert_eq!(
            mark(1, &reply(Some(true), sight("", 9, 60))),
            Released,
            "the period is over"
        );
        assert_eq!(
            mark(2, &reply(Some(false), sight("", 9, 60))),
            Released,
            "an earlier one may have done it"
        );
        assert_eq!(
            mark(1, &reply(Some(false), sight("", 9, 60))),
            Lost,
            "an operator"
        );
        assert_eq!(mark(1, &reply(Some(true), sight("", 8, 60))), Lost);
        assert_eq!(
            mark(1, &reply(Some(true), sight("", 9, 59))),
            Lost,
            "before the period is over"
        );
        assert_eq!(mark(1, &reply(Some(true), None)), Marked);
        assert_eq!(mark(2, &reply(None, None)), Lost);
        let detach = |reply: &Reply| ended(End::Detach("handle".into(), 60), 1, 0, reply);
        assert_eq!(detach(&reply(Some(true), sight("handle", 9, 60))), Detached);
        assert_eq!(detach(&reply(Some(true), None)), Detached);
        assert_eq!(detach(&reply(Some(true), sight("own", 9, 60))), Lost);
    }
}
