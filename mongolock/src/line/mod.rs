//! What a provider knows of the line of one name, and when it may send its next acquire request.
//!
//! The line is a hint: the lock document alone decides who has the lock. So nothing here can keep a free lock from a
//! waiter for longer than a moment, whatever is wrong about what it knows. The state has no clock and sends nothing: its
//! owner passes the time, the events of the change stream and the lines that were read.

mod passes;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::Instant;

use self::passes::Passes;
use crate::store::Waiter;
use crate::timing::{
    LINE_LOOK, LINE_MOMENTS_MAX, REMEMBERED_ACQUIRE, STAND_BACK_AFTER_MOMENT, STAND_BACK_MIN,
};

/// A place in the line: its provider, and the time at which it took the place. A provider that moves to the end has
/// another place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    provider: Arc<str>,
    at: DateTime,
}

/// Another provider in the line.
#[derive(Debug, Clone)]
struct Other {
    place: Place,
    /// The time that it is left after a release.
    moment: Duration,
}

/// The line of one name as one provider knows it.
#[derive(Debug)]
pub(crate) struct Line {
    /// The mark of this provider.
    own: Arc<str>,
    /// Whether this provider has a document in the line.
    is_entered: bool,
    /// Those that stand before this provider, the first one first.
    ahead: Vec<Other>,
    /// All others in the line, in their order.
    others: Vec<Other>,
    /// The turns that those in front have let pass.
    passes: Passes,
    /// The time of the last acquisition by another provider.
    last_acquired: Option<Instant>,
    /// Whether this provider leaves its next turn to another one.
    stands_back: bool,
    /// The time at which the next request may be sent; `None` until an event says that the lock is free.
    ask_at: Option<Instant>,
    /// The time of the last event or reply.
    last_heard: Instant,
    request: RequestState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestState {
    None,
    /// An acquire request is under way.
    UnderWay,
    /// A request is under way, and the lock was released since it was sent.
    Outdated,
}

impl Line {
    pub(crate) fn new(own: Arc<str>, now: Instant) -> Self {
        Self {
            own,
            is_entered: false,
            ahead: Vec::new(),
            others: Vec::new(),
            passes: Passes::default(),
            last_acquired: None,
            stands_back: false,
            ask_at: None,
            last_heard: now,
            request: RequestState::None,
        }
    }

    /// Whether this provider has a document in the line.
    pub(crate) fn is_entered(&self) -> bool {
        self.is_entered
    }

    /// Notes that this provider has entered the line, or moved to its end.
    pub(crate) fn entered(&mut self) {
        self.is_entered = true;
    }

    /// Notes that this provider has left the line.
    pub(crate) fn left(&mut self) {
        self.is_entered = false;
        self.ahead.clear();
        self.others.clear();
    }

    /// Takes over a line that was read. If the own document is not in it, all others stand before this provider.
    pub(crate) fn read(&mut self, line: &[Waiter], now: Instant) {
        self.last_heard = now;
        let is_own = |waiter: &&Waiter| waiter.provider == self.own;
        let before_own = line.iter().take_while(|waiter| !is_own(waiter)).count();
        let other = |waiter: &Waiter| Other {
            place: Place {
                provider: Arc::clone(&waiter.provider),
                at: waiter.at,
            },
            moment: waiter.moment,
        };
        self.ahead = line[..before_own].iter().map(other).collect();
        self.others = line.iter().filter(|waiter| !is_own(waiter)).map(other).collect();
        let others = &self.others;
        self.passes
            .retain(|place| others.iter().any(|other| other.place == *place));
        self.leave_out_absent();
    }

    /// Another provider has acquired the lock; `None` if it is not known which one, as for the claim of another program.
    /// A request that was about to be sent is not sent.
    pub(crate) fn acquired_by(&mut self, provider: Option<&str>, now: Instant) {
        let place = self
            .ahead
            .iter()
            .position(|other| Some(&*other.place.provider) == provider);
        if place != Some(0)
            && let Some(first) = self.ahead.first()
        {
            self.passes.add(&first.place);
        }
        if let Some(place) = place {
            self.ahead.remove(place);
        }
        self.leave_out_absent();
        self.last_acquired = Some(now);
        self.last_heard = now;
        self.stands_back = false;
        self.ask_at = None;
    }

    /// The lock was released, or its lease has ended and the takeover margin with it: a waiter asks when those before it
    /// had their moments.
    pub(crate) fn released(&mut self, now: Instant) {
        self.last_heard = now;
        match self.request {
            RequestState::UnderWay | RequestState::Outdated => self.request = RequestState::Outdated,
            RequestState::None if self.stands_back => {}
            RequestState::None => self.ask_after_moments(now),
        }
    }

    /// A caller begins to wait for a lock that may be free. In the line it waits for the place of its provider.
    pub(crate) fn begin_to_wait(&mut self, now: Instant) {
        if self.ask_at.is_none() && self.request == RequestState::None {
            self.ask_after_moments(now);
        }
    }

    /// This provider has released the lock. If others are known to wait, or another provider has just acquired it, the
    /// next request waits until another one has acquired it, for a moment at most.
    pub(crate) fn released_by_own(&mut self, now: Instant) {
        self.last_heard = now;
        self.stands_back = self.others_wait(now);
        self.ask_at = Some(if self.stands_back {
            now + self.standing_back()
        } else {
            now
        });
    }

    /// Whether other providers are known to wait, or one has acquired the lock so recently that it may wait again.
    pub(crate) fn others_wait(&self, now: Instant) -> bool {
        let is_recent = |acquired: Instant| now.saturating_duration_since(acquired) < REMEMBERED_ACQUIRE;
        !self.others.is_empty() || self.last_acquired.is_some_and(is_recent)
    }

    /// The time at which the next request may be sent: when the lock is known to be free and those before this provider
    /// had their moments, or when nothing was heard for a while. `None` while a request is under way.
    pub(crate) fn next_request(&self) -> Option<Instant> {
        match self.request {
            RequestState::None => Some(self.ask_at.unwrap_or(self.last_heard + LINE_LOOK)),
            RequestState::UnderWay | RequestState::Outdated => None,
        }
    }

    /// Notes that a request is sent.
    pub(crate) fn request_sent(&mut self) {
        self.request = RequestState::UnderWay;
        self.stands_back = false;
        self.ask_at = None;
    }

    /// The request has found the lock held, or failed. If the lock was released in the meantime, another one follows at
    /// once.
    pub(crate) fn request_failed(&mut self, now: Instant) {
        self.ask_at = (self.request == RequestState::Outdated).then_some(now);
        self.request = RequestState::None;
        self.last_heard = now;
    }

    /// The request has acquired the lock.
    pub(crate) fn acquired_by_own(&mut self, now: Instant) {
        self.request = RequestState::None;
        self.ask_at = None;
        self.last_heard = now;
    }

    /// The time that those before this provider are left together.
    fn moments(&self) -> Duration {
        let moments = self.ahead.iter().map(|other| other.moment);
        let together = moments.fold(Duration::ZERO, Duration::saturating_add);
        together.min(LINE_MOMENTS_MAX)
    }

    fn ask_after_moments(&mut self, now: Instant) {
        self.ask_at = Some(now + self.moments());
    }

    /// The longest time for which a releaser leaves the lock to others: the first of them must be able to acquire it.
    fn standing_back(&self) -> Duration {
        let first = self.others.first().map_or(Duration::ZERO, |first| {
            first.moment.min(LINE_MOMENTS_MAX) + STAND_BACK_AFTER_MOMENT
        });
        first.max(STAND_BACK_MIN)
    }

    /// Leaves out those that have let so many turns pass that they count as dead until they move.
    fn leave_out_absent(&mut self) {
        self.passes.judge();
        let passes = &self.passes;
        self.ahead.retain(|other| !passes.is_absent(&other.place));
        self.others.retain(|other| !passes.is_absent(&other.place));
    }
}
