//! Calls for several locks, or for a permit of a semaphore.

use fastrand::Rng;
use std::sync::Arc;
use tokio::time::{Instant, sleep};

use super::chance;
use super::contacts::Present;
use super::errors;
use super::ledger::is_live;
use super::plan::{Plan, Scenario};
use super::verdict::ONE_ANSWER;
use super::wish::{End, How, Wish};
use super::worker::Worker;
use crate::{
    DistributedLock, LockContext, LockError, LockGuard, LockSet, LockSetGuard, Permit, Semaphore, slot,
};

/// What a call acquires.
enum Target {
    Lock(DistributedLock),
    Set(LockSet),
    Semaphore(Semaphore),
}

/// What a call holds.
enum Held {
    Lock(LockGuard),
    Set(LockSetGuard),
    Permit(Permit),
}

/// One call, kept to judge how it failed.
struct TargetCall {
    /// The documents of which one must be held if the call finds its target held; of a semaphore all of them.
    documents: Vec<Arc<str>>,
    begun: Instant,
    /// Whether other callers in this process wanted one of the names when the call began.
    others: bool,
    _present: Vec<Present>,
}

impl Worker {
    /// Acquires what a random part of the plan's names stands for.
    pub(super) async fn call_target(&mut self) -> Result<(), LockError> {
        let wish = Wish::new(&self.world.plan, &mut self.rng).uncapped();
        let names = names(&self.world.plan, &mut self.rng, &wish);
        let target = self.target(&wish, &names);
        let call = self.begin_target_call(&names);
        let held = match wish.how {
            How::Run => return self.run_target(&wish, target, &call).await,
            How::Wait => target.acquire().await.map(Some),
            How::Try => target.try_acquire().await,
        };
        self.check_wait(&wish, call.begun);
        match held {
            Ok(Some(held)) => self.hold_target(held, &wish).await,
            Ok(None) => self.check_target_busy(&wish, &call),
            Err(error) => return self.target_failed(&wish, &call, error),
        }
        Ok(())
    }

    fn target(&self, wish: &Wish, names: &[usize]) -> Target {
        let provider = &self.provider;
        if self.world.plan.scenario == Scenario::Permits {
            let semaphore = provider
                .semaphore(wish.name, self.world.plan.permits)
                .expiry(wish.expiry)
                .acquire_timeout(wish.limit);
            return Target::Semaphore(semaphore);
        }
        match names {
            [_] => Target::Lock(wish.lock(provider)),
            _ => Target::Set(
                provider
                    .lock_all(names)
                    .expiry(wish.expiry)
                    .acquire_timeout(wish.limit),
            ),
        }
    }

    fn begin_target_call(&self, names: &[usize]) -> TargetCall {
        let contacts = &self.process.contacts;
        let name_of = |name: &usize| -> Arc<str> { name.to_string().into() };
        let callers = |name: &usize| contacts.contact(&name.to_string()).callers;
        let permits = self.world.plan.permits;
        let documents = names.iter().map(name_of);
        let documents: Vec<Arc<str>> = if self.world.plan.scenario == Scenario::Permits {
            documents
                .flat_map(|name| (0..permits).map(move |number| slot::id(&name, number)))
                .collect()
        } else {
            documents.collect()
        };
        TargetCall {
            documents,
            begun: Instant::now(),
            others: names.iter().any(|name| callers(name) > 0),
            _present: names.iter().map(|name| contacts.call(&name_of(name))).collect(),
        }
    }

    async fn run_target(&mut self, wish: &Wish, target: Target, call: &TargetCall) -> Result<(), LockError> {
        let body = async |context: LockContext| {
            self.check_wait(wish, call.begun);
            let _held = self.begin(&context);
            self.check_permits(&context);
            let until = Instant::now() + wish.hold;
            while Instant::now() < until {
                sleep((until - Instant::now()).min(wish.step)).await;
                self.check(is_live(context.lease()), || {
                    format!("the body under {wish:?} went on after the lock was lost")
                });
            }
            self.world.note_progress();
            Ok(())
        };
        let ran: Result<(), LockError> = match target {
            Target::Lock(lock) => lock.run(body).await,
            Target::Set(set) => set.run(body).await,
            Target::Semaphore(semaphore) => semaphore.run(body).await,
        };
        match ran {
            Ok(()) | Err(LockError::Lost { .. }) => Ok(()),
            Err(error) => {
                self.check_wait(wish, call.begun);
                self.target_failed(wish, call, error)
            }
        }
    }

    async fn hold_target(&mut self, held: Held, wish: &Wish) {
        let context = held.context();
        let _present = self.begin(&context);
        self.check_permits(&context);
        let until = Instant::now() + wish.hold;
        while Instant::now() < until && !(wish.is_careful && held.is_lost()) {
            sleep((until - Instant::now()).min(wish.step)).await;
            self.check(held.is_lost() || is_live(context.lease()), || {
                "a lost lease is not noticed".into()
            });
        }
        drop(context);
        if chance(&mut self.rng, 100) {
            self.process.give_up.notify_waiters();
        }
        self.world.note_progress();
        match wish.end {
            End::Release => drop(held.release().await),
            End::Drop | End::Leak => drop(held),
        }
    }

    /// Checks that no more permits of the semaphore are held than there are.
    fn check_permits(&self, context: &LockContext) {
        let permits = self.world.plan.permits as usize;
        let Some(semaphore) = context.lease().semaphore() else {
            return;
        };
        let held = self.world.server.ledger.live_permits(semaphore);
        self.check(held <= permits, || {
            format!("{held} of {permits} permits of {semaphore} are held")
        });
    }

    /// Checks that a try that found its target held was right, if every request of the process had a reply.
    fn check_target_busy(&self, wish: &Wish, call: &TargetCall) {
        let server = &self.world.server;
        let tenures = &server.tenures;
        let was_held = |document: &Arc<str>| tenures.any_since(document, call.begun, |_| true);
        let is_right = if self.world.plan.scenario == Scenario::Permits {
            call.documents.iter().all(was_held)
        } else {
            call.documents.iter().any(was_held)
        };
        self.check(
            is_right || call.others || !self.is_untroubled_since(call.begun, &call.documents),
            || format!("{wish:?} found {:?} held, though it was free", call.documents),
        );
    }

    fn target_failed(&self, wish: &Wish, call: &TargetCall, error: LockError) -> Result<(), LockError> {
        self.world
            .server
            .note(|| format!("{} gives up: {error}", self.process.number));
        let may_end = wish.limit.is_some() || wish.how == How::Try;
        let is_short = wish.attempt_limit().is_some_and(|limit| limit < ONE_ANSWER);
        let expected = match &error {
            LockError::Timeout { .. } => wish.limit.is_some(),
            LockError::Mongo(error) if errors::is_permanent(error) => true,
            LockError::Mongo(_) => {
                may_end && (is_short || !self.is_untroubled_since(call.begun, &call.documents))
            }
            LockError::ShutDown { .. } => true,
            _ => false,
        };
        self.check(expected, || {
            format!("{wish:?} for {:?} ended with {error:?}", call.documents)
        });
        if matches!(error, LockError::Timeout { .. }) && wish.limit.is_some_and(|limit| limit >= ONE_ANSWER) {
            self.check_target_busy(wish, call);
        }
        Err(error)
    }
}

impl Target {
    async fn acquire(&self) -> Result<Held, LockError> {
        Ok(match self {
            Self::Lock(lock) => Held::Lock(lock.acquire().await?),
            Self::Set(set) => Held::Set(set.acquire().await?),
            Self::Semaphore(semaphore) => Held::Permit(semaphore.acquire().await?),
        })
    }

    async fn try_acquire(&self) -> Result<Option<Held>, LockError> {
        Ok(match self {
            Self::Lock(lock) => lock.try_acquire().await?.map(Held::Lock),
            Self::Set(set) => set.try_acquire().await?.map(Held::Set),
            Self::Semaphore(semaphore) => semaphore.try_acquire().await?.map(Held::Permit),
        })
    }
}

impl Held {
    fn context(&self) -> LockContext {
        match self {
            Self::Lock(guard) => guard.context(),
            Self::Set(guard) => guard.context(),
            Self::Permit(permit) => permit.context(),
        }
    }

    fn is_lost(&self) -> bool {
        match self {
            Self::Lock(guard) => guard.is_lost(),
            Self::Set(guard) => guard.is_lost(),
            Self::Permit(permit) => permit.is_lost(),
        }
    }

    async fn release(self) -> Result<(), LockError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Set(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
        }
    }
}

/// The names of one call in the order of the caller: one lock, or several.
fn names(plan: &Plan, rng: &mut Rng, wish: &Wish) -> Vec<usize> {
    if plan.scenario == Scenario::Permits || chance(rng, 250) {
        return vec![wish.name];
    }
    let mut names: Vec<usize> = (0..plan.names).collect();
    rng.shuffle(&mut names);
    names.truncate(rng.usize(2..=plan.names.max(2)));
    names
}
