//! The release of a claim, by the call that held it or in the background: what `claim_release.rs` of the library does, and
//! the loop of `release::send`. Each release is sent in a command of its own.

use std::time::Duration;

use super::Lease;
use super::book::NextRelease;
use crate::backoff::Backoff;
use crate::id::Id;
use crate::moment::Luck;
use crate::network::{Body, Failure};
use crate::process::{Cx, Process};
use crate::setup::Mutant;
use crate::time::Instant;
use crate::timing::RELEASE_NO_REPLY;

#[derive(Clone, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are those of the library's struct"
)]
pub(crate) struct Release {
    pub(crate) id: Id,
    /// The time at which it is due.
    at: Instant,
    /// The time from `at` until the claim no longer keeps the lock.
    taken_for: Duration,
    /// Whether it has the turn.
    pub(crate) has_turn: bool,
    /// Whether a shutdown would wait for it: its slot is an entry.
    has_entry: bool,
    failures: u32,
    has_copies: bool,
    is_late: bool,
    /// Whether a waiter of this process that meets the claim releases it.
    is_given_up: bool,
    pub(super) stage: Stage,
}

#[derive(Clone, Hash)]
pub(super) enum Stage {
    /// It is one of the renewer's pending releases.
    Pending,
    /// Its task runs, in the turn of the hold until this time, or in the background.
    Runs {
        in_turn_by: Option<Instant>,
        backoff: Backoff,
        step: ReleaseStep,
    },
}

#[derive(Clone, Copy, Hash)]
pub(super) enum ReleaseStep {
    Begins,
    /// It waits for the reply to this command.
    Sent {
        no: u32,
        until: Instant,
    },
    Pauses(Instant),
}

impl Stage {
    pub(super) fn in_turn() -> Self {
        Self::Runs {
            in_turn_by: Some(Instant::now() + RELEASE_NO_REPLY),
            backoff: Backoff::new(Duration::from_millis(20)..=Duration::from_secs(1)),
            step: ReleaseStep::Begins,
        }
    }

    fn in_background() -> Self {
        Self::Runs {
            in_turn_by: None,
            backoff: Backoff::new(Duration::from_millis(50)..=Duration::from_secs(2)),
            step: ReleaseStep::Begins,
        }
    }
}

impl Release {
    fn new(id: Id, taken_for: Duration) -> Self {
        Self {
            id,
            at: Instant::now(),
            taken_for,
            has_turn: false,
            has_entry: false,
            failures: 0,
            has_copies: false,
            is_late: false,
            is_given_up: false,
            stage: Stage::Pending,
        }
    }

    /// `ClaimRelease::of_lease`.
    pub(super) fn of_lease(lease: &Lease, taken_for: Duration) -> Self {
        Self {
            has_copies: lease.has_copies,
            ..Self::new(lease.id, taken_for)
        }
    }

    /// `ClaimRelease::of_claim`.
    pub(crate) fn of_claim(id: Id, taken_for: Duration, has_copies: bool) -> Self {
        Self {
            has_copies,
            has_entry: true,
            ..Self::new(id, taken_for)
        }
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.has_turn || self.has_entry
    }

    /// The next time at which something is due.
    pub(crate) fn due(&self) -> Instant {
        match &self.stage {
            Stage::Pending => self.at,
            Stage::Runs { step, .. } => match step {
                ReleaseStep::Begins => self.at,
                ReleaseStep::Sent { until, .. } | ReleaseStep::Pauses(until) => *until,
            },
        }
    }

    fn ends_at(&self) -> Instant {
        self.at + self.taken_for
    }

    fn awaits(&self, command: u32) -> bool {
        matches!(self.stage, Stage::Runs { step: ReleaseStep::Sent { no, .. }, .. } if no == command)
    }
}

impl Process {
    /// `Renewer::release_in_background`.
    pub(crate) fn release_in_background(&mut self, mut release: Release) {
        release.is_given_up = true;
        release.stage = Stage::Pending;
        self.releases.push(release);
    }

    /// Whether the claim is one that this process has given up: `GivenUp::find`.
    pub(crate) fn has_given_up(&self, cx: &Cx<'_>, id: Id) -> bool {
        !cx.setup.has(Mutant::GivenUpIdsAreNotRecognised)
            && self
                .releases
                .iter()
                .any(|release| release.id == id && release.is_given_up)
    }

    /// Does what is due for the releases: `State::take_releases`, and the timeouts and pauses of their tasks.
    pub(crate) fn run_releases(&mut self, cx: &mut Cx<'_>) -> bool {
        let now = Instant::now();
        let Some(index) = self.releases.iter().position(|release| release.due() <= now) else {
            return false;
        };
        match &self.releases[index].stage {
            Stage::Pending if self.is_settled(index) => drop(self.releases.swap_remove(index)),
            Stage::Pending => {
                self.releases[index].stage = Stage::in_background();
                self.send_release(cx, index);
            }
            Stage::Runs {
                step: ReleaseStep::Sent { .. },
                ..
            } => self.release_is_overdue(cx, index),
            Stage::Runs { .. } => self.send_release(cx, index),
        }
        true
    }

    /// `ClaimRelease::is_settled`: it is a late one, and all requests are answered.
    fn is_settled(&self, index: usize) -> bool {
        let release = &self.releases[index];
        let book = self.books.iter().find(|(id, _)| *id == release.id);
        release.is_late && release.has_copies && book.is_some_and(|(_, book)| !book.may_take_effect(0))
    }

    pub(super) fn send_release(&mut self, cx: &mut Cx<'_>, index: usize) {
        let no = self.send(cx, Body::Release(self.releases[index].id));
        let release = &mut self.releases[index];
        let limit = RELEASE_NO_REPLY * 2_u32.saturating_pow(release.failures);
        if let Stage::Runs { in_turn_by, step, .. } = &mut release.stage {
            let until = in_turn_by.unwrap_or(Instant::now() + limit);
            *step = ReleaseStep::Sent { no, until };
        }
    }

    /// `QueueSlot::pass_turn_on`.
    fn pass_turn_of(&mut self, cx: &Cx<'_>, index: usize) {
        let release = &mut self.releases[index];
        if release.has_turn && !cx.setup.has(Mutant::TurnStaysAfterFailedRelease) {
            (release.has_turn, release.has_entry) = (false, true);
            self.queue.end_turn(None);
        }
    }

    /// There was no reply for too long: `repeat_alone`, or the same for a release in its turn.
    fn release_is_overdue(&mut self, cx: &Cx<'_>, index: usize) {
        self.pass_turn_of(cx, index);
        let release = &self.releases[index];
        let is_in_turn = matches!(
            release.stage,
            Stage::Runs {
                in_turn_by: Some(_),
                ..
            }
        );
        if is_in_turn || Instant::now() < release.ends_at() {
            self.release_alone(index, Instant::now());
        } else {
            self.release_has_ended(cx, index, false);
        }
    }

    /// `ClaimRelease::alone`.
    fn release_alone(&mut self, index: usize, at: Instant) {
        let release = self.releases.swap_remove(index);
        self.release_in_background(Release {
            taken_for: release.ends_at().saturating_duration_since(at),
            at,
            failures: release.failures + 1,
            ..release
        });
    }

    /// The reply to a release, or its error.
    pub(crate) fn release_replied(&mut self, cx: &mut Cx<'_>, no: u32, reply: Result<bool, Failure>) {
        if let Some(clear) = self.clears.iter().position(|(own, _)| *own == no) {
            let (_, number) = self.clears.swap_remove(clear);
            return self.clear_replied(no, number, reply);
        }
        let Some(index) = self.releases.iter().position(|release| release.awaits(no)) else {
            return;
        };
        if reply.is_ok() {
            return self.release_has_ended(cx, index, true);
        }
        self.pass_turn_of(cx, index);
        let now = Instant::now();
        let release = &mut self.releases[index];
        let ends_at = release.ends_at();
        let Stage::Runs {
            in_turn_by,
            backoff,
            step,
        } = &mut release.stage
        else {
            return;
        };
        let pause = backoff.next(Luck::draw());
        *step = ReleaseStep::Pauses(now + pause);
        match *in_turn_by {
            Some(by) => {
                release.is_given_up = true;
                if now + pause >= by {
                    self.release_alone(index, now + pause);
                }
            }
            None if now + pause >= ends_at => self.release_has_ended(cx, index, false),
            None => {}
        }
    }

    /// `Renewer::released`.
    fn release_has_ended(&mut self, cx: &Cx<'_>, index: usize, is_confirmed: bool) {
        let release = self.releases.swap_remove(index);
        let now = Instant::now();
        if is_confirmed {
            self.line_released(now);
            if release.has_turn {
                self.queue.front.release_confirmed(now);
            }
        }
        if release.has_copies {
            let next = match self.book(release.id).release_ended(now, 0) {
                NextRelease::Now if cx.setup.has(Mutant::ReplyDuringReleaseIsIgnored) => None,
                NextRelease::At(_) if cx.setup.has(Mutant::NoLateReleases) => None,
                NextRelease::Never => None,
                NextRelease::Now => Some((now, false)),
                NextRelease::At(at) => Some((at, true)),
            };
            if let Some((at, is_late)) = next {
                self.release_in_background(Release {
                    at,
                    is_late,
                    has_copies: true,
                    ..Release::new(release.id, release.taken_for)
                });
            }
        }
        if release.has_turn {
            self.queue.end_turn(None);
        }
    }
}
