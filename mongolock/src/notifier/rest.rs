//! When the waiter at the front of a queue asks again.
//!
//! | what it hears | what it does |
//! |---|---|
//! | its provider leaves the lock to others before its first request | it rests until that time |
//! | its lock is held | it rests, until a little after the end of the lease and the time slots of those before it at most |
//! | the same, and the stream reports its lock | it rests for seconds, for less of them in line |
//! | the same without a stream | in line it rests for less time the nearer it is to the front, and backs off otherwise |
//! | a release | it asks after the time slots of those before it in line, at once if there are none |
//! | an acquisition by another claim | in line it rests anew, unless it may have missed a release |
//! | the stream begins or ends to report its lock | it asks or looks at once: a release before that is not known |
//! | a look has found its lock free | it asks; if others stand before it, it leaves them the lock once |
//! | a look has failed | it rests and looks again; after an error that lasts it asks, and fails by itself |
//!
//! A waiter that *looks* does not send a request when it is due: a query looks at its lock, and at those of others. Luck comes
//! from the [`Moment`] of a decision alone.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::line::Standing;
use crate::moment::{Luck, Moment};
use crate::timing::{ACQUIRE_OVERDUE, LINE_SILENCE, POLL_BESIDE_STREAM, STREAM_POLL_PAUSE};

/// A part of each pause by which a look may come early: so that one look takes many names.
pub(super) const EARLY_PART: u32 = 8;

/// The number of "held" replies with which a waiter registers for wake-ups, and stands in line with those of other processes:
/// shorter waits are not worth it.
pub(crate) const REPLIES_BEFORE_WAIT: u32 = 2;

/// The least time that a call with a deadline keeps for its own requests: a healthy server replies to one within it.
pub(crate) const OWN_REQUESTS: Duration = Duration::from_millis(100);

/// When one waiter is due. A waiter without a due time does not rest: it sends a request at present.
#[derive(Clone, Hash)]
pub(super) struct Rest {
    /// The pauses while the stream does not report this lock.
    backoff: Backoff,
    /// The time at which the waiter registered.
    since: Instant,
    /// Given while the waiter rests.
    due: Option<Due>,
    /// The number of the last query that looks at this lock; zero if its reply does not count any more.
    look: u64,
    /// Whether it looks before its next request: others stand before it in line, and the stream does not report its lock.
    looks: bool,
    /// Whether the last look of such a waiter found the lock free.
    saw_free: bool,
    /// Whether the stream has begun to report this lock since the last request or look: a release before is not known.
    is_outdated: bool,
}

/// When a waiter that rests is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Due {
    pub(super) at: Instant,
    /// Whether the waiter sends a request then, because its lock was released; otherwise a look is enough.
    pub(super) asks: bool,
    /// The time before `at` from which a look is useful.
    pub(super) early: Duration,
}

/// What is known of a lock besides what its waiter hears.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outlook {
    /// Whether the stream reports the lock.
    pub(super) is_reported: bool,
    /// Whether there is no stream because it costs too much.
    pub(super) is_too_costly: bool,
    /// The waiter's place in line, if it stands there.
    pub(super) standing: Option<Standing>,
}

impl Rest {
    pub(super) fn new(now: Instant, backoff: Backoff, is_outdated: bool) -> Self {
        Self {
            backoff,
            since: now,
            due: None,
            look: 0,
            looks: false,
            saw_free: false,
            is_outdated,
        }
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    pub(super) fn due(&self) -> Option<Due> {
        self.due
    }

    pub(super) fn is_resting(&self) -> bool {
        self.due.is_some()
    }

    /// Whether a query looks at the lock before the waiter's next request.
    pub(super) fn looks(&self) -> bool {
        self.looks
    }

    /// Rests after a reply or a look that found the lock held, for the remaining time of its lease if that is known. Returns
    /// for how long.
    pub(super) fn held(&mut self, at: Moment, outlook: &Outlook, remaining: Option<Duration>) -> Duration {
        let standing = outlook.standing;
        self.looks = !outlook.is_reported && standing.is_some_and(|standing| standing.ahead > 0);
        let pause = self.pause(at, outlook);
        // A lease that ends is followed in the order of the line as well.
        let time_slots = time_slots(standing);
        let until_free = remaining.map(|left| after_its_end(left + time_slots, at.luck()));
        self.rest_for(at.now, pause, until_free)
    }

    /// How long the waiter rests for a lock whose lease does not end before.
    fn pause(&mut self, at: Moment, outlook: &Outlook) -> Duration {
        let least = *self.backoff.range().start();
        match outlook.standing {
            _ if self.is_outdated => Duration::ZERO,
            Some(_) if outlook.is_reported => at.luck().spread(LINE_SILENCE),
            None if outlook.is_reported => at.luck().spread(POLL_BESIDE_STREAM),
            Some(standing) => {
                let most = *self.backoff.range().end();
                at.luck().spread(standing.polling_pause).clamp(least, most)
            }
            None if outlook.is_too_costly => {
                let pause = self.backoff.next(at.luck());
                pause.min(STREAM_POLL_PAUSE.max(least))
            }
            None => self.backoff.next(at.luck()),
        }
    }

    fn rest_for(&mut self, now: Instant, pause: Duration, until_free: Option<Duration>) -> Duration {
        let (pause, early) = match until_free {
            Some(until_free) if until_free < pause => (until_free, Duration::ZERO),
            _ => (pause, pause / EARLY_PART),
        };
        self.due = Some(Due {
            at: now + pause,
            asks: false,
            early,
        });
        pause
    }

    fn rest_until(&mut self, at: Instant, asks: bool) {
        self.due = Some(Due {
            at,
            asks,
            early: Duration::ZERO,
        });
    }

    /// Rests before the first request, until this time. Without a stream it looks at that time.
    pub(super) fn yields(&mut self, until: Instant, is_reported: bool) {
        self.looks = !is_reported;
        // What happens at that time finds out what is not known now.
        self.is_outdated = false;
        self.rest_until(until, is_reported);
    }

    /// Notes a release, and returns whether the waiter asks at once. Otherwise it asks after the time slots of those before it.
    pub(super) fn released(&mut self, now: Instant, standing: Option<Standing>) -> bool {
        let time_slots = time_slots(standing);
        if time_slots.is_zero() || !self.is_resting() {
            self.due = None;
            return true;
        }
        // The reply to a query that was sent before must not have the waiter rest on.
        self.look = 0;
        self.rest_until(now + time_slots, true);
        false
    }

    /// Whether the waiter rests on after an acquisition by another claim, which is the holder then.
    pub(super) fn rests_on(&self, is_in_line: bool) -> bool {
        self.is_resting() && !self.is_outdated && is_in_line
    }

    /// Hears that the stream begins or ends to report the lock. A waiter that rests is due at once, those that have waited
    /// longest first.
    pub(super) fn outdated(&mut self) {
        self.is_outdated = true;
        if self.is_resting() {
            self.rest_until(self.since, false);
        }
    }

    /// Notes that a query of this number looks at the lock. If its reply is overdue, another one is sent.
    pub(super) fn look_sent(&mut self, now: Instant, number: u64) {
        self.is_outdated = false;
        self.look = number;
        self.rest_until(now + ACQUIRE_OVERDUE, false);
    }

    /// Whether the reply to the query of this number counts: no later one looks at the lock.
    pub(super) fn awaits_look(&self, number: u64) -> bool {
        self.look == number
    }

    /// A look has found the lock free. Returns whether the waiter asks; otherwise it leaves the lock to those before it in
    /// line, and looks again. It does so once.
    pub(super) fn found_free(&mut self, now: Instant, standing: Option<Standing>) -> bool {
        let ahead = standing.filter(|standing| self.looks && standing.ahead > 0 && !self.saw_free);
        self.saw_free = ahead.is_some();
        if let Some(standing) = ahead.filter(|_| self.is_resting()) {
            let time_slots = standing.time_slots.max(*self.backoff.range().start());
            self.rest_until(now + time_slots, false);
            return false;
        }
        self.due = None;
        true
    }

    /// A look has found the lock held; [`held`](Self::held) follows if the waiter rests.
    pub(super) fn found_held(&mut self) {
        self.saw_free = false;
    }

    /// A look has failed. Returns the pause of a waiter that rests.
    pub(super) fn look_failed(&mut self, at: Moment) -> Option<Duration> {
        let pause = self.backoff.next(at.luck());
        self.is_resting().then(|| self.rest_for(at.now, pause, None))
    }

    /// Ends the rest: the waiter sends a request, or is gone.
    pub(super) fn finish(&mut self) {
        self.due = None;
    }

    /// Ends the rest of a waiter that is due: its request finds out what is not known.
    pub(super) fn ask(&mut self) {
        self.due = None;
        self.is_outdated = false;
    }
}

/// How long a waiter leaves a lock that was released to those before it in line.
pub(super) fn time_slots(standing: Option<Standing>) -> Duration {
    standing.map_or(Duration::ZERO, |standing| standing.time_slots)
}

/// A little later than the end of a lease by the server's clock, so that a request does not come just before it.
fn after_its_end(left: Duration, luck: Luck) -> Duration {
    left + luck.millis(1..=10)
}

/// The pauses that a call makes by itself: after a failed request, and before it registers.
#[derive(Clone, Hash)]
pub(crate) struct Pauses {
    backoff: Backoff,
    /// The number of replies that said that the lock is held.
    held_replies: u32,
}

/// Where a call registers after such a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registers {
    /// For wake-ups.
    pub(crate) stream: bool,
    /// In the line of the waiters of all processes.
    pub(crate) line: bool,
}

impl Pauses {
    /// The pauses of a call that has had this number of earlier replies, which found the lock held.
    pub(crate) fn new(backoff: Backoff, held_replies: u32) -> Self {
        Self {
            backoff,
            held_replies,
        }
    }

    /// Notes a reply that found the lock held.
    pub(crate) fn held(&mut self, is_in_line: bool, has_many: bool) -> Registers {
        self.held_replies += 1;
        // A provider in line already says that its place is still needed.
        let line = self.held_replies >= REPLIES_BEFORE_WAIT || is_in_line;
        Registers {
            stream: line || has_many,
            line,
        }
    }

    pub(crate) fn held_replies(&self) -> u32 {
        self.held_replies
    }

    /// The pause after a request that has failed.
    pub(crate) fn after_error(&mut self, at: Moment) -> Duration {
        self.backoff.next(at.luck())
    }

    /// The pause after a reply that found the lock held: no longer than the holder's lease lasts by the server's clock.
    pub(crate) fn after_held(&mut self, at: Moment, remaining: Option<Duration>) -> Duration {
        let (pause, luck) = (self.backoff.next(at.luck()), at.luck());
        remaining.map_or(pause, |left| pause.min(after_its_end(left, luck)))
    }

    /// The pauses of the same caller when it registers.
    pub(crate) fn backoff(&self) -> Backoff {
        self.backoff.clone()
    }
}

/// For how long a call with so much time left leaves the lock to others before its first request: it keeps half of its time for
/// its own requests, and at least [`OWN_REQUESTS`].
pub(crate) fn left_to_others(left: Duration) -> Duration {
    left.saturating_sub((left / 2).max(OWN_REQUESTS))
}

#[cfg(test)]
mod tests;
