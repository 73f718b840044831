use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep, timeout};

use super::contacts::Present;
use super::fleet::World;
use super::ledger::{Begun, Promise, is_live};
use super::plan::{Kind, Scenario};
use super::process::Process;
use super::server::shown_token;
use super::verdict::JudgedCall;
use super::wish::{End, How, Wish};
use super::{between, chance, errors};
use crate::lease::Lease;
use crate::store::LeaseId;
use crate::{LockContext, LockError, LockGuard, LockProvider};

/// The time after its timeout within which a call must end.
const SLACK: Duration = Duration::from_millis(10);

/// The longest wait in [`Scenario::ManyLeases`], where hardly two callers want the same lock.
const LONGEST_WAIT: Duration = Duration::from_secs(40);

/// A caller in a process.
pub(super) struct Worker {
    pub(super) world: Arc<World>,
    pub(super) process: Arc<Process>,
    pub(super) provider: LockProvider,
    pub(super) rng: Rng,
}

impl Worker {
    /// Calls until the simulation ends or the provider is shut down.
    pub(super) async fn work(mut self) {
        while !self.world.is_over() {
            let may_give_up = !self.world.plan.knobs.outages && !self.world.plan.scenario.has_turns();
            let gives_up = may_give_up && chance(&mut self.rng, 200);
            let patience = gives_up.then(|| between(&mut self.rng, 0, 3000));
            let process = Arc::clone(&self.process);
            let kind = self.world.plan.kind_of_calls();
            let call = async {
                match kind {
                    Kind::Sets => self.call_target().await,
                    Kind::Works => self.call_job().await,
                    Kind::Handles => self.call_with_handles().await,
                    Kind::Locks => self.call().await,
                }
            };
            let called = match patience {
                // The caller gives up after a random time and drops the call.
                Some(patience) => tokio::select! {
                    biased;
                    () = process.give_up.notified() => Ok(()),
                    called = timeout(patience, call) => called.unwrap_or(Ok(())),
                },
                None => call.await,
            };
            if matches!(called, Err(LockError::ShutDown { .. })) {
                return;
            }
            sleep(between(&mut self.rng, 0, self.world.plan.rest)).await;
        }
    }

    async fn call(&mut self) -> Result<(), LockError> {
        let wish = &Wish::new(&self.world.plan, &mut self.rng);
        let call = self.begin_call(wish);
        let lock = wish.lock(&self.provider, wish.name);
        let guard = match wish.how {
            How::Run => return self.run(wish).await,
            How::Wait => lock.acquire().await.map(Some),
            How::Try => lock.try_acquire().await,
        };
        self.check_wait(wish, call.begun);
        match guard {
            Ok(Some(guard)) => self.hold(guard, wish).await,
            Ok(None) => self.check_busy(wish, &call),
            Err(error) => return self.failed(wish, &call, error),
        }
        Ok(())
    }

    /// Releases the lock. That it was lost needs a reason, such as the end of the lease or an operator.
    async fn release(&self, guard: LockGuard, wish: &Wish) {
        let world = &self.world;
        let is_capped = guard.lease().options.max_hold.is_some();
        let (key, end) = (guard.lease().key().clone(), guard.lease().deadline());
        let released = guard.release().await;
        if let Err(error) = &released {
            self.check_says_overloaded(error);
        }
        let expected = released.is_ok() || is_capped || !world.is_calm();
        self.check(expected, || format!("release after {wish:?}: {released:?}"));
        let was_live = end.is_some_and(|end| Instant::now() < end);
        let is_lost = matches!(released, Err(LockError::Lost { .. }));
        // The second one of two copies of a release finds nothing to release.
        let may_lose = !world.plan.scenario.has_sound_clock() || world.plan.knobs.repetitions > 0;
        let has_reason = may_lose || !was_live || world.server.ledger.was_forced(&key);
        self.check(!is_lost || has_reason, || {
            format!("the release of {} says that it was lost", key.name)
        });
    }

    async fn run(&mut self, wish: &Wish) -> Result<(), LockError> {
        let call = self.begin_call(wish);
        let body = async |context: LockContext| {
            self.check_wait(wish, call.begun);
            let _held = self.begin(&context);
            let until = Instant::now() + wish.hold;
            while Instant::now() < until {
                sleep((until - Instant::now()).min(wish.step)).await;
                self.check(is_live(context.lease()), || {
                    format!("the body under {wish:?} went on after the lock was lost")
                });
            }
            Ok(())
        };
        let ran: Result<(), LockError> = wish.lock(&self.provider, wish.name).run(body).await;
        match ran {
            Ok(()) => Ok(()),
            Err(LockError::Lost { .. }) => {
                self.check_loss(wish, std::slice::from_ref(&call.name));
                Ok(())
            }
            Err(error) => {
                self.check_wait(wish, call.begun);
                self.failed(wish, &call, error)
            }
        }
    }

    async fn hold(&mut self, guard: LockGuard, wish: &Wish) {
        let held = self.begin(&guard.context());
        let until = Instant::now() + wish.hold;
        while Instant::now() < until && !(wish.is_careful && guard.is_lost()) {
            sleep((until - Instant::now()).min(wish.step)).await;
            self.check(guard.is_lost() || is_live(guard.lease()), || {
                "a lost lease is not noticed".into()
            });
        }
        if chance(&mut self.rng, 100) {
            // Some callers give up at the moment at which they could acquire the lock.
            self.process.give_up.notify_waiters();
        }
        if guard.is_lost() {
            self.check_loss(wish, &[Arc::clone(&guard.lease().key().name)]);
        }
        match wish.end {
            End::Release => self.release(guard, wish).await,
            End::Drop => drop(guard),
            // The guard is leaked, and its maximum hold ends the hold.
            End::Leak => drop(self.process.spawn(async move {
                guard.lost().await;
                drop(held);
            })),
        }
    }

    pub(super) fn begin(&self, context: &LockContext) -> Vec<Present> {
        self.begin_lease(context.lease())
    }

    /// Notes that a caller has this lease now, and checks that no other caller has one of its locks.
    pub(super) fn begin_lease(&self, lease: &Arc<Lease>) -> Vec<Present> {
        let world = &self.world;
        world.note_progress();
        let promise = Promise {
            has_sound_clock: world.plan.scenario.has_sound_clock(),
            keeps_min_holds: world.plan.keeps_min_holds(),
            tells_of_forced_ends: world.plan.tells_of_forced_ends(),
        };
        let process = self.process.number;
        let begins = |key: &LeaseId| {
            let lasts = world.server.memory.lease_of(&key.name, 0);
            let lasts = lasts.filter(|(id, _)| *id == key.lock_id).map(|(_, lasts)| lasts);
            world.server.overload.begins(process, lease, lasts)
        };
        if world.plan.knobs.overload.is_some() {
            let breach = begins(&lease.keys()[0]);
            self.check(breach.is_none(), || breach.unwrap_or_default());
        }
        let tokens = lease.tokens().map(|(_, token)| token.get());
        let begin = |(key, token): (&LeaseId, i64)| {
            let shown = shown_token(token);
            world
                .server
                .note(|| format!("{process} begins {} {shown}", key.name));
            let begun = Begun {
                process,
                lease,
                key,
                token,
                granted: world.server.granted_at(key),
            };
            world.server.ledger.begin(begun, promise);
            self.process.contacts.hold(&key.name)
        };
        let names: Vec<&Arc<str>> = lease.keys().iter().map(|key| &key.name).collect();
        for breach in world.server.turns.hold_begins(process, &names) {
            self.check(false, || breach);
        }
        lease.keys().iter().zip(tokens).map(begin).collect()
    }

    fn failed(&self, wish: &Wish, call: &JudgedCall, error: LockError) -> Result<(), LockError> {
        self.world
            .server
            .note(|| format!("{} gives up: {error}", self.process.number));
        match &error {
            LockError::Timeout { .. } => self.check_busy(wish, call),
            error => self.check_error(wish, call, error),
        }
        let may_end = wish.limit.is_some() || wish.how == How::Try || self.world.plan.knobs.outages;
        let expected = match &error {
            LockError::Timeout { .. } => wish.limit.is_some(),
            LockError::Mongo(error) if errors::is_permanent(error) => true,
            // One attempt may fail, and waiting may end with an attempt that failed.
            LockError::Mongo(_) => !self.world.is_calm() && may_end,
            LockError::ShutDown { .. } => true,
            _ => false,
        };
        self.check(expected, || format!("{wish:?} ended with {error:?}"));
        Err(error)
    }

    /// Checks that a lost lease had a reason to be lost. The holder may notice it only at the end of its work.
    pub(super) fn check_loss(&self, wish: &Wish, names: &[Arc<str>]) {
        let blocked = self.world.server.blocks.blocked_until(&wish.name.to_string());
        let was_blocked = blocked.is_some_and(|until| until + wish.expiry * 2 + wish.hold >= Instant::now());
        let since = Instant::now().checked_sub(wish.expiry * 2 + wish.hold);
        let may_lose = self
            .world
            .server
            .overload
            .may_lose(self.process.number, names, since);
        let expected = !self.world.plan.keeps_holds() || wish.is_capped() || was_blocked || may_lose;
        self.check(expected, || format!("{wish:?} lost its lock for no reason"));
    }

    /// Checks that the call did not wait beyond its limit, not counting a pause of its process.
    pub(super) fn check_wait(&self, wish: &Wish, begun: Instant) {
        let is_without_faults = self.world.plan.scenario == Scenario::ManyLeases;
        let Some(limit) = wish.attempt_limit().or(is_without_faults.then_some(LONGEST_WAIT)) else {
            return;
        };
        let due = (begun + limit).max(self.process.resumed()) + SLACK;
        let waited = begun.elapsed();
        self.check(Instant::now() <= due, || format!("{wish:?} waited {waited:?}"));
        self.world
            .longest_wait
            .fetch_max(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(super) fn check(&self, holds: bool, breach: impl FnOnce() -> String) {
        if !holds {
            let breach = format!("{}: {}", self.process.number, breach());
            self.world.server.note(|| breach.clone());
            self.world.server.ledger.breach(breach);
        }
    }
}
