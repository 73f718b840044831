//! A hold of a caller, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::calls::{BLUR, Call};
use super::ledger::Holder;
use super::plan::Knob::Late;
use super::process::Process;
use super::wish::Wish;
use super::world::whole;
use crate::context::LockContext;
use crate::protocol::{Ms, Name, Until};
use crate::timing::RELEASE_REPLY_LIMIT;
use crate::{Guard, LockError};

/// The time between two checks of a holder that it still has its lock.
const LOOK: Duration = Duration::from_millis(50);

/// A hold. It is in the ledger until this value is dropped.
pub(super) struct Tenure {
    pub(super) facts: Arc<Facts>,
    context: LockContext,
    key: u64,
}

/// What is known about a hold, also after its end.
pub(super) struct Facts {
    pub(super) process: Arc<Process>,
    wish: Wish,
    called: Ms,
    begun: Instant,
    names: Vec<Name>,
    /// When it was acquired, if the document still says so.
    acquired: Option<Ms>,
    mark: Option<Until>,
}

impl Tenure {
    pub(super) fn begin(call: &Call, context: LockContext) -> Self {
        let (process, wish) = (Arc::clone(&call.process), call.wish.clone());
        let (world, lease) = (process.world(), context.lease());
        let now = world.memory.now();
        let sight = world.memory.sight(now, &lease.key().name);
        let sight = sight.filter(|sight| sight.has(&lease.key().lock_id));
        // A late command may have read the clock long before.
        let sight = sight.filter(|_| !world.plan.has(Late));
        let acquired = sight.and_then(|sight| sight.document.acquired_at.date());
        for (name, token) in lease.tokens() {
            let acquired = acquired.filter(|_| lease.keys().len() == 1);
            let judged = world
                .ledger()
                .judge_grant(name, token.get(), call.called, acquired, now);
            world.check(judged.is_none(), || {
                format!("{name}: {}", judged.unwrap_or_default())
            });
        }
        let names: Vec<Name> = lease.tokens().map(|(name, _)| Arc::clone(name)).collect();
        let who = format!("{} with {names:?} since {}", process.line.number, world.now());
        world.note(|| format!("{who} holds with {:?}", lease.token()));
        let own = context.clone();
        let holder = Holder {
            who: who.clone(),
            called: call.called,
            names: names.clone(),
            believes: Box::new(move || own.ensure_held().is_ok()),
        };
        let (key, rival) = world.ledger().begin(holder);
        world.check(rival.is_none(), || {
            format!("{who} holds beside {}", rival.unwrap_or_default())
        });
        let (out, most) = (world.ledger().permits_out(), world.plan.permits as usize);
        world.check(out <= most, || format!("{out} permits are out"));
        let (called, begun, mark) = (call.called, Instant::now(), lease.granted().mark);
        let facts = Arc::new(Facts {
            process,
            wish,
            called,
            begun,
            names,
            acquired,
            mark,
        });
        Self { facts, context, key }
    }

    /// Works under the hold, and returns whether it has lasted for this time.
    pub(super) async fn lasts(&self, time: Duration) -> bool {
        let ends_at = Instant::now() + time;
        loop {
            if self.context.ensure_held().is_err() {
                self.facts.check_lost();
                return false;
            }
            let left = ends_at - Instant::now();
            if left.is_zero() {
                return true;
            }
            sleep(left.min(LOOK)).await;
        }
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        let world = self.facts.process.world();
        world.note(|| format!("{} ends {:?}", self.facts.process.line.number, self.facts.names));
        world.ledger().holders.remove(&self.key);
    }
}

impl Facts {
    fn was_forced(&self) -> bool {
        let ledger = self.process.world().ledger();
        self.names.iter().any(|name| ledger.was_forced(name, self.called))
    }

    /// The hold was lost: a fault must have prevented its renewals.
    fn check_lost(&self) {
        let (world, held) = (self.process.world(), self.begun.elapsed());
        let renewed = world.memory.now() - whole(self.wish.expiry);
        // The time of a set counts from its first lock, long before the set is complete.
        let is_over = |most| held + BLUR >= most || self.wish.wants_all();
        let has_cause = self.wish.max_hold.is_some_and(is_over)
            || self.was_forced()
            || self.process.is_stopping()
            || !self.process.is_quiet_since(renewed.max(self.called));
        world.check(has_cause, || format!("{:?} was lost after {held:?}", self.wish));
    }

    /// The work is about to succeed.
    pub(super) fn succeeds(&self) {
        let until = match self.mark {
            Some(Until::At(end)) => Some(end),
            _ => None,
        };
        let success = (Arc::clone(&self.names[0]), until);
        self.process.world().ledger().successes.insert(success);
    }

    /// The hold has ended successfully: its minimum hold or the mark of its work keeps the lock taken.
    pub(super) fn ended(&self, has_succeeded: bool) {
        let world = self.process.world();
        let end = self.acquired.map(|acquired| acquired + whole(self.wish.min_hold));
        if let ([name], Some(end), false) = (&*self.names, end, self.was_forced()) {
            world.ledger().kept.insert(Arc::clone(name), end);
        }
        let until = match self.mark.filter(|_| has_succeeded) {
            Some(Until::At(end)) => end,
            Some(Until::After(_)) => Ms::MAX,
            None => return,
        };
        let is_first = world.ledger().is_marked(&self.names[0], self.called, until);
        world.check(is_first, || format!("{:?} was done twice", self.names));
    }

    /// Releases the lock, or ends a work that has succeeded. The caller drops the future after this time.
    pub(super) async fn end<T>(&self, mut guard: Guard<T>, is_done: bool, patience: Duration) {
        let (begun, called) = (Instant::now(), self.process.world().memory.now());
        if is_done {
            self.succeeds();
        }
        let ending = async {
            if is_done && guard.lease().about.options.once.is_some() {
                return guard.hold.mark().await;
            }
            guard.release().await
        };
        let Ok(outcome) = timeout(patience, ending).await else {
            return;
        };
        let limit = RELEASE_REPLY_LIMIT + BLUR + self.wish.expiry * u32::from(is_done);
        let took = begun.elapsed();
        self.process
            .world()
            .check(took <= limit, || format!("{:?} ended after {took:?}", self.wish));
        self.judge_end(outcome.as_ref().err(), called);
        if outcome.is_ok() {
            self.ended(is_done);
        }
    }

    pub(super) fn judge_end(&self, error: Option<&LockError>, called: Ms) {
        let (world, number) = (self.process.world(), self.process.line.number);
        world.note(|| format!("{number} has ended {:?}: {error:?}", self.names));
        match error {
            None => {}
            Some(LockError::Lost { .. }) => self.check_lost(),
            Some(error) => {
                let may_fail = self.process.may_fail(called, error);
                world.check(may_fail, || {
                    format!("{:?} of {number} has ended with {error:?}", self.wish)
                });
            }
        }
    }
}
