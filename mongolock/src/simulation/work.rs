//! The work of the callers of a process.

use std::sync::Arc;

use tokio::time::{sleep, timeout};

use super::calls::Call;
use super::holds::Tenure;
use super::plan::Work;
use super::process::Process;
use super::wish::{SEMAPHORE, Wish, patience};
use super::{chance, millis};
use crate::context::LockContext;
use crate::{Guard, Lock, LockError, LockKind};

pub(super) struct Caller(pub(super) Arc<Process>);

/// The failure of a body: its own, or that of its lock.
struct Failed(Option<LockError>);

impl From<LockError> for Failed {
    fn from(error: LockError) -> Self {
        Self(Some(error))
    }
}

impl Caller {
    pub(super) async fn works(self) {
        let world = self.0.world();
        while !(world.is_over() || self.0.is_stopping()) {
            sleep(millis(0..=world.plan.thinks)).await;
            let wish = Wish::draw(&world.plan, world.plan.work(), world.now());
            self.calls(wish).await;
        }
    }

    async fn calls(&self, wish: Wish) {
        let (provider, plan) = (&self.0.provider, &self.0.world().plan);
        let name = wish.names[0].clone();
        match wish.work {
            Work::Set => self.call(provider.lock_all(wish.names.clone()), wish).await,
            Work::Permit => self.call(provider.semaphore(SEMAPHORE, plan.permits), wish).await,
            Work::Period => self.call(provider.lock(name).once_per(plan.period), wish).await,
            Work::Once => self.call(provider.lock(name).once(), wish).await,
            Work::Lock => self.call(provider.lock(name), wish).await,
        }
    }

    async fn call<T, K: LockKind<Guard = Guard<T>>>(&self, lock: Lock<K>, wish: Wish) {
        let (lock, is_try) = (wish.of(lock), wish.is_try);
        let call = Call::begin(&self.0, wish);
        if call.wish.runs {
            return self.runs(lock, call).await;
        }
        let acquiring = async {
            if is_try {
                return lock.try_acquire().await;
            }
            lock.acquire().await.map(Some)
        };
        let Ok(outcome) = timeout(call.wish.patience, acquiring).await else {
            return;
        };
        call.judge(outcome.as_ref().map(Option::is_some));
        if let Ok(Some(guard)) = outcome {
            self.holds(call, guard).await;
        }
    }

    async fn runs<K: LockKind>(&self, lock: Lock<K>, call: Call) {
        let (mut facts, mut has_succeeded) = (None, false);
        let body = async |context: LockContext| {
            call.judge(Ok(true));
            let tenure = Tenure::begin(&call, context);
            facts = Some(Arc::clone(&tenure.facts));
            let lasts = tenure.lasts(call.wish.holds).await;
            if !lasts || chance(200) {
                return Err(Failed(None));
            }
            tenure.facts.succeeds();
            has_succeeded = true;
            Ok(())
        };
        let Ok(outcome) = timeout(call.wish.patience, lock.run(body)).await else {
            return;
        };
        let is_well = has_succeeded || outcome.is_err();
        self.0
            .world()
            .check(is_well, || format!("{:?} succeeds without its body", call.wish));
        match (outcome, facts) {
            (Err(Failed(Some(error))), None) => call.judge(Err(&error)),
            (Err(Failed(Some(error))), Some(facts)) => facts.judge_end(Some(&error), call.called),
            (Ok(()), Some(facts)) => facts.ended(true),
            _ => {}
        }
    }

    /// Keeps the hold of a call, and ends it in one of many ways.
    async fn holds<T>(&self, call: Call, guard: Guard<T>) {
        let tenure = Tenure::begin(&call, guard.context());
        let facts = Arc::clone(&tenure.facts);
        let is_held = tenure.lasts(call.wish.holds).await;
        drop(tenure);
        let patience = patience(&self.0.world().plan, 20);
        match call.wish.work {
            _ if chance(200) => drop(guard),
            Work::Period | Work::Once => facts.end(guard, is_held && chance(800), patience).await,
            _ => facts.end(guard, false, patience).await,
        }
    }
}
