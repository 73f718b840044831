//! The pauses of a caller with the turn: what `acquire/pacing.rs` of the library does.

use std::time::Duration;

use super::{Call, Phase};
use crate::backoff::Backoff;
use crate::moment::Moment;
use crate::notifier::{Pauses, left_to_others};
use crate::process::{Cx, Process};
use crate::time::Instant;

/// The default of `LockProviderBuilder::retry_interval`.
const RETRY_INTERVAL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(800));

#[derive(Clone, Hash)]
pub(super) struct Pacing {
    pauses: Pauses,
    is_subscribed: bool,
    is_resting: bool,
}

/// How a pause ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Pause {
    /// At this time.
    Sleeps(Instant),
    /// When the waiter is woken, or at this time.
    WokenWithin(Instant),
    /// When the waiter is woken.
    Woken,
}

impl Pacing {
    pub(super) fn new() -> Self {
        let (shortest, longest) = RETRY_INTERVAL;
        Self {
            pauses: Pauses::new(Backoff::new(shortest..=longest), 0),
            is_subscribed: false,
            is_resting: false,
        }
    }

    /// Until when a call with this deadline leaves the lock to others.
    pub(super) fn most_for_others(deadline: Instant) -> Instant {
        let now = Instant::now();
        now + left_to_others(deadline.saturating_duration_since(now))
    }
}

impl Call {
    /// `Pacing::after_error`.
    pub(super) fn after_error(&mut self) -> Duration {
        let Some(pacing) = &mut self.pacing else {
            return Duration::ZERO;
        };
        pacing.is_resting = false;
        pacing.pauses.after_error(Moment::present())
    }

    /// `Pacing::pause`; a single try sleeps.
    pub(super) fn pause(&mut self, longest: Duration) {
        let until = Instant::now() + longest;
        let Some(pacing) = &mut self.pacing else { return };
        let is_resting = std::mem::take(&mut pacing.is_resting);
        self.phase = Phase::Pauses(match pacing.is_subscribed {
            true if is_resting => Pause::Woken,
            true => Pause::WokenWithin(until),
            false => Pause::Sleeps(until),
        });
    }
}

impl Process {
    /// `Pacing::subscribe`.
    pub(super) fn subscribe(&mut self, cx: &Cx<'_>, call: &mut Call) {
        if let Some(pacing) = &mut call.pacing
            && !std::mem::replace(&mut pacing.is_subscribed, true)
        {
            self.register(cx, pacing.pauses.backoff());
        }
    }

    /// `Pacing::after_held`.
    pub(super) fn after_held(
        &mut self,
        cx: &mut Cx<'_>,
        call: &mut Call,
        remaining: Option<Duration>,
    ) -> Duration {
        let Some(pacing) = &mut call.pacing else {
            return Duration::ZERO;
        };
        let registers = pacing.pauses.held(self.lines.has_line(), false);
        if registers.stream {
            self.subscribe(cx, call);
        }
        if registers.line {
            self.enter_line(cx, call.begun);
        }
        let Some(pacing) = &mut call.pacing else {
            return Duration::ZERO;
        };
        pacing.is_resting = pacing.is_subscribed;
        if !pacing.is_subscribed {
            return pacing.pauses.after_held(Moment::present(), remaining);
        }
        self.notifier
            .set_claim(call.attempt.as_ref().map(|attempt| attempt.id));
        self.rest(cx, remaining)
    }

    /// Whether a pause has ended: `Subscription::woken` and `woken_within`.
    pub(super) fn has_ended(&mut self, pause: Pause) -> bool {
        let now = Instant::now();
        let has_ended = match pause {
            Pause::Sleeps(until) => return until <= now,
            Pause::WokenWithin(until) => self.notifier.take_wake() || until <= now,
            Pause::Woken => self.notifier.take_wake(),
        };
        if has_ended {
            self.rest_ends();
        }
        has_ended
    }

    /// The drop of a `Pacing`: its subscription ends.
    pub(super) fn drop_pacing(&mut self, call: &Call) {
        if call.pacing.as_ref().is_some_and(|pacing| pacing.is_subscribed) {
            self.unregister();
        }
    }
}
