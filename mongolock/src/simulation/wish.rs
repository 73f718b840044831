use std::time::Duration;

use fastrand::Rng;

use super::plan::{Plan, Scenario};
use super::{between, chance};
use crate::{DistributedLock, LockProvider};

/// The options of one call, and what the caller does with the lock.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) name: usize,
    pub(super) expiry: Duration,
    min_hold: Duration,
    max_hold: Option<Duration>,
    pub(super) limit: Option<Duration>,
    pub(super) how: How,
    pub(super) hold: Duration,
    /// The time between two checks of the lock by its holder.
    pub(super) step: Duration,
    /// Whether the holder stops when the lock is lost.
    pub(super) is_careful: bool,
    pub(super) end: End,
    /// Whether a call with a body waits for its release.
    await_release: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Wait,
    Try,
    Run,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Release,
    Drop,
    Leak,
}

impl Wish {
    pub(super) fn new(plan: &Plan, rng: &mut Rng) -> Self {
        let name = rng.usize(0..plan.names);
        // The callers of a name usually use the same options: only then can a hold be handed over.
        let unusual = chance(rng, 150);
        let expiry = plan.least_expiry()
            + if unusual {
                between(rng, 1000, 5000)
            } else {
                usual_expiry(plan, name)
            };
        let is_capped = plan.scenario != Scenario::Calm && !plan.knobs.has_long_leases && chance(rng, 20);
        let max_hold = is_capped.then(|| between(rng, 0, 3000));
        let leaks = max_hold.is_some() && rng.bool();
        let wish = Self {
            name,
            expiry,
            min_hold: if unusual && rng.bool() {
                between(rng, 0, 1000)
            } else {
                Duration::ZERO
            },
            max_hold,
            limit: chance(rng, 600).then(|| limit(rng)),
            how: *rng
                .choice(&[How::Wait, How::Wait, How::Try, How::Run])
                .unwrap_or(&How::Wait),
            hold: match rng.u8(0..50) {
                0 => between(rng, 0, 6000),
                _ => between(rng, 0, plan.usual_hold),
            },
            step: between(rng, 1, 500),
            is_careful: rng.bool(),
            end: match rng.u8(0..4) {
                _ if leaks => End::Leak,
                0 => End::Drop,
                _ => End::Release,
            },
            await_release: rng.bool(),
        };
        let wish = Self {
            // A maximum hold below the minimum hold is refused.
            max_hold: wish.max_hold.map(|cap| cap.max(wish.min_hold)),
            ..wish
        };
        match plan.scenario {
            Scenario::ManyLeases => Self {
                // Each name has an expiry of its own.
                expiry: Duration::from_secs(2) + Duration::from_millis(u64::try_from(name).unwrap_or(0)),
                ..wish.plain(plan)
            },
            // A request may wait for a while until there is room for it.
            Scenario::Gathered => Self {
                limit: wish.limit.map(|limit| limit.max(Duration::from_secs(5))),
                ..wish
            },
            _ if plan.scenario.has_turns() => wish.plain(plan),
            _ => wish,
        }
    }

    /// The same wish without all that makes others wait for longer, or that gives up.
    fn plain(self, plan: &Plan) -> Self {
        Self {
            min_hold: Duration::ZERO,
            max_hold: None,
            limit: None,
            how: if self.how == How::Try { How::Wait } else { self.how },
            hold: self.hold.min(Duration::from_millis(plan.usual_hold)),
            end: End::Release,
            ..self
        }
    }

    /// The same wish without a minimum and a maximum hold.
    pub(super) fn uncapped(self) -> Self {
        let end = if self.end == End::Leak {
            End::Drop
        } else {
            self.end
        };
        Self {
            min_hold: Duration::ZERO,
            max_hold: None,
            end,
            ..self
        }
    }

    pub(super) fn lock(&self, provider: &LockProvider, name: usize) -> DistributedLock {
        let mut lock = provider
            .lock(name)
            .expiry(self.expiry)
            .min_hold(self.min_hold)
            .await_release(self.await_release);
        if let Some(cap) = self.max_hold {
            lock = lock.max_hold(cap);
        }
        lock.acquire_timeout(self.limit)
    }

    pub(super) fn is_capped(&self) -> bool {
        self.max_hold.is_some()
    }

    pub(super) fn asks_once(&self) -> bool {
        self.how == How::Try || self.limit == Some(Duration::ZERO)
    }

    /// The time for which the call may wait.
    pub(super) fn attempt_limit(&self) -> Option<Duration> {
        let one_attempt = Some(Duration::from_secs(10));
        match (self.how, self.limit) {
            (How::Try, None) | (_, Some(Duration::ZERO)) => one_attempt,
            (_, limit) => limit,
        }
    }
}

/// The expiry that most callers of a name use.
fn usual_expiry(plan: &Plan, name: usize) -> Duration {
    let seconds = match plan.scenario {
        _ if plan.holds_many() => 3,
        Scenario::SetTurns => 2,
        _ => 1 + name % 5,
    };
    Duration::from_secs(u64::try_from(seconds).unwrap_or(1))
}

/// A random limit: zero, or time for at least one reply.
fn limit(rng: &mut Rng) -> Duration {
    match rng.u8(0..10) {
        0 => Duration::ZERO,
        1..5 => between(rng, 20, 500),
        _ => between(rng, 20, 10_000),
    }
}
