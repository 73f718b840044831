//! Calls for several locks, or for a permit of a semaphore.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::chance;
use super::contacts::Present;
use super::errors;
use super::ledger::is_live;
use super::plan::Scenario;
use super::verdict::ONE_ANSWER;
use super::wish::{End, How, Wish};
use super::worker::Worker;
use crate::{DistributedLock, LockContext, LockError, LockGuard, LockSet, Permit, Semaphore, permit_id};

/// The longest time for a call inside another one: it waits for 10 s at most, works for a moment and releases its locks.
const INNER_LIMIT: Duration = Duration::from_secs(20);

/// What a call acquires.
enum Target {
    Lock(DistributedLock),
    Set(LockSet),
    Semaphore(Semaphore),
}

/// What a call holds.
enum Held {
    Lock(LockGuard),
    Permit(Permit),
}

/// One call, kept to judge how it failed.
struct TargetCall {
    /// The documents of which one must be held if the call finds its target held; of a semaphore all of them.
    documents: Vec<Arc<str>>,
    begun: Instant,
    /// Whether other callers in this process wanted one of the names when the call began, or its release was on its way.
    others: bool,
    _present: Vec<Present>,
}

impl Worker {
    /// Acquires what a random part of the plan's names stands for.
    pub(super) async fn call_target(&mut self) -> Result<(), LockError> {
        let wish = Wish::new(&self.world.plan, &mut self.rng).uncapped();
        let names = self.names(&wish);
        let target = self.target(&wish, &names);
        let call = self.begin_target_call(&names);
        let held = match wish.how {
            How::Run => {
                let inner = self.inner_names(&names);
                return self.run_target(&wish, target, &call, inner).await;
            }
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

    /// The names of one call in the order of the caller: one lock, or several.
    fn names(&mut self, wish: &Wish) -> Vec<usize> {
        let (plan, rng) = (&self.world.plan, &mut self.rng);
        if plan.scenario == Scenario::SetTurns {
            return plan.set_in_turn(self.process.number, rng);
        }
        if plan.scenario == Scenario::Permits || chance(rng, 250) {
            return vec![wish.name];
        }
        let mut names: Vec<usize> = (0..plan.names).collect();
        rng.shuffle(&mut names);
        names.truncate(rng.usize(2..=plan.names.max(2)));
        names
    }

    fn target(&self, wish: &Wish, names: &[usize]) -> Target {
        let provider = &self.provider;
        if self.world.plan.scenario == Scenario::Permits {
            let semaphore = provider
                .semaphore(wish.name, self.permits())
                .expiry(wish.expiry)
                .acquire_timeout(wish.limit);
            return Target::Semaphore(semaphore);
        }
        match names {
            [name] => Target::Lock(wish.lock(provider, *name)),
            _ => Target::Set(
                provider
                    .lock_all(names)
                    .expiry(wish.expiry)
                    .acquire_timeout(wish.limit),
            ),
        }
    }

    /// The number of permits that this process takes its semaphores to have: in some plans every other process has one less.
    fn permits(&self) -> u32 {
        let plan = &self.world.plan;
        let has_less = plan.seed % 3 == 2 && self.process.number % 2 == 1;
        if has_less {
            (plan.permits - 1).max(1)
        } else {
            plan.permits
        }
    }

    fn begin_target_call(&self, names: &[usize]) -> TargetCall {
        let contacts = &self.process.contacts;
        let name_of = |name: &usize| -> Arc<str> { name.to_string().into() };
        let has_others = |name: &usize| {
            let contact = contacts.contact(&name.to_string());
            let is_released_now = contact.held.is_some_and(|held| held.elapsed() < ONE_ANSWER);
            contact.callers > 0 || is_released_now
        };
        let permits = self.permits();
        let documents = names.iter().map(name_of);
        let documents: Vec<Arc<str>> = if self.world.plan.scenario == Scenario::Permits {
            documents
                .flat_map(|name| (0..permits).map(move |number| permit_id::new(&name, number)))
                .collect()
        } else {
            documents.collect()
        };
        TargetCall {
            documents,
            begun: Instant::now(),
            others: names.iter().any(has_others),
            _present: names.iter().map(|name| contacts.call(&name_of(name))).collect(),
        }
    }

    /// The names of a call inside the body of a set, which joins at least one of the set's names.
    fn inner_names(&mut self, outer: &[usize]) -> Option<Vec<usize>> {
        if self.world.plan.scenario != Scenario::Sets || outer.len() < 2 || !chance(&mut self.rng, 250) {
            return None;
        }
        let mut names: Vec<usize> = (0..self.world.plan.names).collect();
        self.rng.shuffle(&mut names);
        names.truncate(self.rng.usize(1..=names.len()));
        names.push(outer[0]);
        Some(names)
    }

    /// Runs a call inside the body of a set: it joins some locks and acquires the others, all of which it needs to the end.
    async fn run_inner(&self, wish: &Wish, outer: &LockContext, names: &[usize]) {
        let is_own = |name: &&usize| !outer.names().any(|held| held == name.to_string());
        let own: Vec<usize> = names.iter().filter(is_own).copied().collect();
        let call = self.begin_target_call(&own);
        let body = async |context: LockContext| {
            let own = context
                .leases()
                .filter(|lease| !Arc::ptr_eq(lease, outer.lease()));
            let _held: Vec<_> = own.map(|lease| self.begin_lease(lease)).collect();
            for _ in 0..3 {
                sleep(wish.step / 10).await;
                self.check(context.leases().all(|lease| is_live(lease)), || {
                    format!("the inner body under {wish:?} went on after a lock was lost")
                });
            }
            self.world.note_progress();
            Ok(())
        };
        let set = self.provider.lock_all(names).expiry(wish.expiry);
        let ran: Result<(), LockError> = set.acquire_timeout(wish.limit).run(body).await;
        let expected = match &ran {
            Ok(()) | Err(LockError::Timeout { .. } | LockError::Lost { .. } | LockError::ShutDown { .. }) => {
                true
            }
            Err(LockError::Mongo(error)) => {
                let is_short = wish.limit.is_some_and(|limit| limit < ONE_ANSWER);
                errors::is_permanent(error)
                    || is_short
                    || !self.is_untroubled_since(call.begun, &call.documents)
            }
            Err(_) => false,
        };
        self.check(expected, || {
            format!("{wish:?} for {names:?} in another call: {ran:?}")
        });
        self.check(
            call.begun.elapsed() <= INNER_LIMIT || self.process.was_paused_within(INNER_LIMIT),
            || {
                format!(
                    "{wish:?} for {names:?} in another call took {:?}",
                    call.begun.elapsed()
                )
            },
        );
    }

    async fn run_target(
        &mut self,
        wish: &Wish,
        target: Target,
        call: &TargetCall,
        inner: Option<Vec<usize>>,
    ) -> Result<(), LockError> {
        let body = async |context: LockContext| {
            self.check_wait(wish, call.begun);
            let _held = self.begin(&context);
            self.check_permits(&context);
            if let Some(names) = &inner {
                self.run_inner(wish, &context, names).await;
            }
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
            Ok(()) => Ok(()),
            Err(LockError::Lost { .. }) => {
                self.check_loss(wish, &call.documents);
                Ok(())
            }
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
        if held.is_lost() {
            let names: Vec<_> = context
                .lease()
                .keys()
                .iter()
                .map(|key| Arc::clone(&key.name))
                .collect();
            self.check_loss(wish, &names);
        }
        drop(context);
        if chance(&mut self.rng, 100) {
            self.process.give_up.notify_waiters();
        }
        self.world.note_progress();
        match wish.end {
            End::Release => drop(
                held.release()
                    .await
                    .inspect_err(|error| self.check_says_overloaded(error)),
            ),
            End::Drop | End::Leak => drop(held),
        }
    }

    /// Checks that no more permits of the semaphore are held than the greatest number that a process knows.
    fn check_permits(&self, context: &LockContext) {
        let permits = self.world.plan.permits as usize;
        let Some((semaphore, _)) = permit_id::parts(&context.lease().key().name) else {
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
        self.check_says_overloaded(&error);
        let may_end = wish.limit.is_some() || wish.how == How::Try;
        let is_short = wish.attempt_limit().is_some_and(|limit| limit < ONE_ANSWER);
        let expected = match &error {
            // A try of a semaphore ends in this way if no query has found all permits held within its limit.
            LockError::Timeout { waited, .. } => {
                wish.limit.is_some() || wish.attempt_limit().is_some_and(|limit| *waited >= limit)
            }
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
            Self::Set(set) => Held::Lock(set.acquire().await?),
            Self::Semaphore(semaphore) => Held::Permit(semaphore.acquire().await?),
        })
    }

    async fn try_acquire(&self) -> Result<Option<Held>, LockError> {
        Ok(match self {
            Self::Lock(lock) => lock.try_acquire().await?.map(Held::Lock),
            Self::Set(set) => set.try_acquire().await?.map(Held::Lock),
            Self::Semaphore(semaphore) => semaphore.try_acquire().await?.map(Held::Permit),
        })
    }
}

impl Held {
    fn context(&self) -> LockContext {
        match self {
            Self::Lock(guard) => guard.context(),
            Self::Permit(permit) => permit.context(),
        }
    }

    fn is_lost(&self) -> bool {
        match self {
            Self::Lock(guard) => guard.is_lost(),
            Self::Permit(permit) => permit.is_lost(),
        }
    }

    async fn release(self) -> Result<(), LockError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
        }
    }
}
