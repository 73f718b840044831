use tokio::time::Instant;

use crate::LockError;
use crate::store::{AcquireReply, driver_error};
use crate::timing::{LATE_RELEASE_OF_SET, LATE_RELEASES, SLOW_REPLY};

/// What this process knows of the acquire requests that were sent with one id, for one lock or for those of a set. They are
/// copies of one another: the first one that takes effect acquires the locks, and the others find their own claims in the
/// documents. Each claim is released again as long as one of them may still take effect.
#[derive(Default, Clone, Hash)]
pub(crate) struct Book {
    /// The number of requests without a reply.
    in_flight: u32,
    /// The time at which the last request was sent.
    last_sent: Option<Instant>,
    /// Whether the requests are for a set.
    is_of_set: bool,
    /// The claim of the only lock, or of the first one: it takes no allocation.
    first: Claim,
    /// The claims of the other locks of a set.
    others: Vec<Claim>,
}

/// The claim of one lock.
#[derive(Default, Clone, Hash)]
struct Claim {
    /// Whether a request may take effect after its reply, or although it failed.
    is_uncertain: bool,
    /// Whether a reply said that the claim has the lock.
    has_acquired: bool,
    phase: Phase,
}

/// How this process uses a claim.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// A caller waits for the lock or holds it.
    #[default]
    InUse,
    /// The claim is being released. A reply in the meantime may mean that the claim has acquired the lock again.
    Releasing { may_be_reacquired: bool },
    /// The claim was released, and is released again whenever a request may have acquired the lock for it.
    GivenUp,
}

/// What an answer to a request says of one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It has its lock.
    Acquired,
    /// The request has changed nothing: another claim has the lock, or the server has refused the request.
    Refused,
    /// The server has rejected each copy that the driver has sent, and nothing was written. The driver's pauses between the
    /// copies make such a reply late, which says nothing.
    Rejected,
    /// The request may have been applied, or may be applied later.
    Unknown,
}

impl Answer {
    /// What a reply says, an error, or that there will be none.
    pub(crate) fn of(reply: Option<Result<&AcquireReply, &LockError>>) -> Self {
        match reply {
            Some(Ok(AcquireReply::Acquired { .. })) => Self::Acquired,
            Some(Ok(AcquireReply::Held { .. })) => Self::Refused,
            Some(Err(error)) if driver_error::wrote_nothing(error) => Self::Rejected,
            Some(Err(error)) if driver_error::was_not_applied(error) => Self::Refused,
            Some(Err(_)) | None => Self::Unknown,
        }
    }
}

/// The release of a claim that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextRelease {
    /// None: no request can take effect any more.
    Never,
    /// At once: a request may have acquired the lock.
    Now,
    /// At this time, because a request may take effect late.
    At(Instant),
}

impl Book {
    /// The requests of a set of this number of locks.
    pub(crate) fn of_set(names: usize) -> Self {
        Self {
            is_of_set: true,
            others: vec![Claim::default(); names.saturating_sub(1)],
            ..Self::default()
        }
    }

    fn claim(&self, index: usize) -> &Claim {
        index
            .checked_sub(1)
            .map_or(&self.first, |other| &self.others[other])
    }

    fn claim_mut(&mut self, index: usize) -> &mut Claim {
        match index.checked_sub(1) {
            Some(other) => &mut self.others[other],
            None => &mut self.first,
        }
    }

    /// Notes that a request is sent.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.in_flight += 1;
        self.last_sent = Some(now);
    }

    /// Notes that a request is sent once more; `false` if the claim was given up, whose id is never sent again.
    pub(crate) fn sent_again(&mut self, now: Instant) -> bool {
        let is_in_use = self.first.phase == Phase::InUse;
        if is_in_use {
            self.sent(now);
        }
        is_in_use
    }

    /// Notes that a request has ended, with a reply or without one; [`answered`](Self::answered) follows for each claim.
    pub(crate) fn ended(&mut self) {
        self.in_flight -= 1;
    }

    /// Notes what the answer to a request that was sent then says of a claim. The release is due now if the request may have
    /// acquired the lock, and the claim was given up before.
    ///
    /// If a reply took longer than a healthy server needs, the driver may have repeated the request, and its first copy
    /// may arrive at the server later.
    pub(crate) fn answered(
        &mut self,
        now: Instant,
        sent: Instant,
        index: usize,
        answer: Answer,
    ) -> NextRelease {
        let claim = self.claim_mut(index);
        claim.has_acquired |= answer == Answer::Acquired;
        claim.is_uncertain |= match answer {
            Answer::Rejected => false,
            Answer::Unknown => true,
            Answer::Acquired | Answer::Refused => now - sent >= SLOW_REPLY,
        };
        let may_have_acquired = matches!(answer, Answer::Acquired | Answer::Unknown);
        match &mut claim.phase {
            Phase::GivenUp if may_have_acquired => return NextRelease::Now,
            Phase::Releasing { may_be_reacquired } => *may_be_reacquired |= may_have_acquired,
            Phase::InUse | Phase::GivenUp => {}
        }
        NextRelease::Never
    }

    /// Gives a claim up, and returns whether it may have its lock, now or later.
    pub(crate) fn give_up(&mut self, index: usize) -> bool {
        self.claim_mut(index).phase = Phase::GivenUp;
        !self.is_unused(index)
    }

    /// Whether no reply said that a claim has its lock, and no request may take effect from now on.
    pub(crate) fn is_unused(&self, index: usize) -> bool {
        !self.claim(index).has_acquired && !self.may_take_effect(index)
    }

    /// Notes that a release of a claim begins. Until the server has confirmed it, nothing else may release the claim:
    /// another release would end a minimum hold, and would make the confirmed one look like a loss.
    pub(crate) fn begin_release(&mut self, index: usize) {
        self.claim_mut(index).phase = Phase::Releasing {
            may_be_reacquired: false,
        };
    }

    /// Notes that the release of a claim has ended, and returns the one that follows.
    pub(crate) fn release_ended(&mut self, now: Instant, index: usize) -> NextRelease {
        let phase = std::mem::replace(&mut self.claim_mut(index).phase, Phase::GivenUp);
        let reacquired = Phase::Releasing {
            may_be_reacquired: true,
        };
        if phase == reacquired {
            return NextRelease::Now;
        }
        self.late_release(now, index)
            .map_or(NextRelease::Never, NextRelease::At)
    }

    /// The next of the times after the last request at which a claim is released, if a request may take effect late.
    fn late_release(&self, now: Instant, index: usize) -> Option<Instant> {
        let last = self.last_sent.filter(|_| self.may_take_effect(index))?;
        let first = self.is_of_set.then_some(&LATE_RELEASE_OF_SET);
        first
            .into_iter()
            .chain(&LATE_RELEASES)
            .map(|later| last + *later)
            .find(|at| *at > now)
    }

    /// Whether a request may take effect from now on for a claim.
    pub(crate) fn may_take_effect(&self, index: usize) -> bool {
        self.in_flight > 0 || self.claim(index).is_uncertain
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The requests for one lock, of which one is sent now.
    fn sent() -> (Book, Instant) {
        let (mut book, now) = (Book::default(), Instant::now());
        book.sent(now);
        (book, now)
    }

    fn answered(book: &mut Book, now: Instant, sent: Instant, answer: Answer) -> NextRelease {
        book.ended();
        book.answered(now, sent, 0, answer)
    }

    #[test]
    fn what_an_answer_says() {
        let held = AcquireReply::Held {
            dates: None,
            holder: None,
            held_for: None,
            remaining: None,
        };
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let failed = LockError::Mongo(broken.into());
        assert_eq!(Answer::of(Some(Ok(&held))), Answer::Refused);
        assert_eq!(Answer::of(Some(Err(&failed))), Answer::Unknown);
        assert_eq!(Answer::of(None), Answer::Unknown);
    }

    #[test]
    fn a_claim_that_was_given_up_is_never_sent_again() {
        let (mut book, now) = sent();
        assert!(book.sent_again(now));
        book.give_up(0);
        assert!(!book.sent_again(now));
    }

    #[test]
    fn a_prompt_reply_settles_its_request() {
        let (mut book, now) = sent();
        assert!(book.may_take_effect(0), "the request is in flight");
        assert_eq!(answered(&mut book, now, now, Answer::Refused), NextRelease::Never);
        assert!(!book.may_take_effect(0) && !book.give_up(0));
    }

    #[test]
    fn a_request_with_a_slow_or_unknown_answer_may_take_effect() {
        for (after, answer) in [(SLOW_REPLY, Answer::Refused), (Duration::ZERO, Answer::Unknown)] {
            let (mut book, begun) = sent();
            answered(&mut book, begun + after, begun, answer);
            assert!(book.may_take_effect(0) && book.give_up(0), "{answer:?}");
        }
    }

    /// The driver may have repeated a rejected request after pauses.
    #[test]
    fn a_rejection_settles_its_request_however_late_it_comes() {
        let (mut book, begun) = sent();
        answered(&mut book, begun + SLOW_REPLY, begun, Answer::Rejected);
        assert!(!book.may_take_effect(0) && !book.give_up(0));
    }

    #[test]
    fn one_of_two_requests_without_a_reply_may_take_effect() {
        let (mut book, now) = sent();
        book.sent(now);
        answered(&mut book, now, now, Answer::Refused);
        assert!(book.give_up(0));
        assert_eq!(
            answered(&mut book, now, now, Answer::Unknown),
            NextRelease::Now,
            "the request may have acquired the lock"
        );
    }

    #[test]
    fn a_claim_that_a_reply_names_during_its_release_is_released_again() {
        let (mut book, now) = sent();
        book.begin_release(0);
        assert_eq!(
            answered(&mut book, now, now, Answer::Acquired),
            NextRelease::Never
        );
        assert_eq!(book.release_ended(now, 0), NextRelease::Now);
        assert_eq!(book.release_ended(now, 0), NextRelease::Never);
    }

    /// The times of the releases after the first one, in milliseconds after the first request.
    fn late_releases(book: &mut Book, begun: Instant) -> Vec<u128> {
        let (mut now, mut times) = (begun, Vec::new());
        loop {
            book.begin_release(0);
            let NextRelease::At(at) = book.release_ended(now, 0) else {
                return times;
            };
            now = at;
            times.push((now - begun).as_millis());
        }
    }

    #[test]
    fn a_claim_is_released_at_three_times_after_the_last_request() {
        let (mut book, begun) = sent();
        book.sent(begun + Duration::from_secs(2));
        assert_eq!(late_releases(&mut book, begun), [12_000, 32_000, 92_000]);
    }

    #[test]
    fn a_claim_of_a_set_is_released_once_more_when_the_server_has_ended_the_request() {
        let (mut book, begun) = (Book::of_set(1), Instant::now());
        book.sent(begun);
        assert_eq!(late_releases(&mut book, begun), [5500, 10_000, 30_000, 90_000]);
    }

    /// The server has acquired one lock of a set and has refused the other one.
    #[test]
    fn each_claim_of_a_set_has_answers_of_its_own() {
        let (mut book, now) = (Book::of_set(2), Instant::now());
        book.sent(now);
        book.ended();
        book.answered(now, now, 0, Answer::Refused);
        book.answered(now, now, 1, Answer::Acquired);
        assert_eq!([0, 1].map(|index| book.give_up(index)), [false, true]);
        assert_eq!([0, 1].map(|index| book.may_take_effect(index)), [false; 2]);
    }
}
