//! Holds and their ends: what `lease/mod.rs`, `handover.rs` and `release.rs` of the library do.

use std::time::Duration;

#[path = "../../../../mongolock/src/lease/book.rs"]
#[allow(dead_code, reason = "only a part of the library is explored")]
pub(crate) mod book;
mod release;

pub(crate) use release::Release;
use release::Stage;

use crate::id::{Id, Token};
use crate::process::{Caller, Cx, Process};
use crate::setup::Mutant;
use crate::time::Instant;

/// One hold.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Lease {
    pub(crate) id: Id,
    pub(crate) token: Token,
    pub(crate) last_token: Token,
    /// The time at which the holder stops relying on it. Nothing renews it.
    pub(crate) deadline: Instant,
    /// Whether a request of the claim may still take effect: `Grant::copies`.
    pub(crate) has_copies: bool,
    pub(crate) acquired: Instant,
}

/// How a caller ends its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndOfHold {
    /// It waits for the release.
    Awaited,
    /// Its call returns before the release is confirmed.
    Unawaited,
}

/// The part of a lease that its holder relies on: `lease::without_margin`.
pub(crate) fn without_margin(lasts: Duration) -> Duration {
    lasts.saturating_sub(lasts / 100 + Duration::from_millis(2))
}

impl Lease {
    pub(crate) fn is_over(&self) -> bool {
        self.deadline <= Instant::now()
    }

    /// `Lease::successor`.
    fn successor(&self, cx: &Cx<'_>) -> Option<Self> {
        let more = i64::from(!cx.setup.has(Mutant::HandoverReusesToken));
        (self.token < self.last_token).then(|| Self {
            token: Token(self.token.0 + more),
            acquired: Instant::now(),
            ..self.clone()
        })
    }

    /// `Hold::taken_over`. All callers have the same options.
    pub(crate) fn taken_over(self) -> Result<Self, Self> {
        if self.is_over() { Err(self) } else { Ok(self) }
    }
}

impl Process {
    /// A caller ends its hold: `release::end`, and what follows it in `begin`, `unawaited` and `in_background`.
    pub(crate) fn end_hold(&mut self, cx: &mut Cx<'_>, caller: usize, end: EndOfHold) {
        match std::mem::replace(&mut self.callers[caller], Caller::after(cx.setup)) {
            // The server may still have the claim.
            Caller::Lost(lease) => self.release_claim(cx, &lease),
            Caller::Holds(lease) if self.hands_over(cx, &lease) => {}
            Caller::Holds(lease) if end == EndOfHold::Unawaited => self.release_unawaited(cx, &lease),
            Caller::Holds(lease) => self.release_in_turn(cx, &lease),
            other => self.callers[caller] = other,
        }
    }

    /// The time of each hold that has ended: `Renewer::expire`. The turn passes on at once.
    pub(crate) fn close_renewer(&mut self) {
        for caller in &mut self.callers {
            if let Caller::Holds(lease) = caller
                && lease.is_over()
            {
                *caller = Caller::Lost(lease.clone());
                self.queue.end_turn(None);
            }
        }
    }

    /// `release::turn_to_hand_over`.
    fn may_pass(cx: &Cx<'_>, lease: &Lease) -> bool {
        lease.deadline - Instant::now() > cx.setup.expiry / 2
    }

    /// `release::hand_over`.
    fn hands_over(&mut self, cx: &Cx<'_>, lease: &Lease) -> bool {
        if !Self::may_pass(cx, lease) || !self.queue.others_wait() {
            return false;
        }
        let rivals = self.rivals();
        if !self.queue.budget.allows_handover(Instant::now(), rivals) {
            return false;
        }
        let Some(next) = lease.successor(cx) else {
            return false;
        };
        self.queue.end_turn(Some(next));
        true
    }

    /// `release::unawaited`.
    fn release_unawaited(&mut self, cx: &mut Cx<'_>, lease: &Lease) {
        self.queue.front.release_sent(Instant::now());
        cx.judge.no_holder(self.index);
        if !cx.setup.has(Mutant::UnawaitedReleaseIsNotSent) {
            self.release_in_turn(cx, lease);
        }
    }

    /// `release::send`, which keeps the turn until the release is confirmed.
    fn release_in_turn(&mut self, cx: &mut Cx<'_>, lease: &Lease) {
        self.book(lease.id).begin_release(0);
        let mut release = Release::of_lease(lease, cx.setup.expiry);
        release.has_turn = true;
        release.stage = Stage::in_turn();
        self.releases.push(release);
        let last = self.releases.len() - 1;
        self.send_release(cx, last);
    }

    /// `Renewer::release_claim` of a lease without a turn.
    pub(crate) fn release_claim(&mut self, cx: &Cx<'_>, lease: &Lease) {
        self.book(lease.id).begin_release(0);
        self.release_in_background(Release::of_lease(lease, cx.setup.expiry));
    }
}
