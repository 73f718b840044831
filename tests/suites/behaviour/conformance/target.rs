//! Something that can be acquired, and its hold: one interface for all kinds, and for programs with and without async code.

use std::time::Duration;

use mongodb::bson::DateTime;
use mongolock::{
    DistributedLock, LeaseHandle, LockContext, LockError, LockGuard, LockOutput, LockProvider, LockSet,
    Permit, Semaphore, blocking,
};
use tokio::task::{JoinHandle, block_in_place};

use super::UNRENEWED;
use super::detached::HOUR;

/// What is acquired, with its options.
#[derive(Clone)]
pub(crate) struct Target {
    provider: LockProvider,
    handle: Handle,
    threads: Threads,
}

/// The provider of a program without async code: its threads make the calls.
pub(crate) type Threads = Option<blocking::LockProvider>;

#[derive(Clone)]
pub(super) enum Handle {
    Lock(DistributedLock),
    Set(LockSet),
    Permit(Semaphore),
    /// The name of a lock that is acquired, detached and resumed.
    Resumed(String),
}

/// A guard or a permit.
pub(crate) struct Hold {
    guard: Guard,
    threads: Threads,
}

enum Guard {
    Lock(LockGuard),
    Permit(Permit),
}

/// Evaluates this for a lock, a set or a semaphore, or the other expression for the name of a lock that is resumed.
macro_rules! of_handle {
    ($handle:expr, $lock:ident => $value:expr, $name:ident => $resumed:expr $(,)?) => {
        match $handle {
            Handle::Lock($lock) => $value,
            Handle::Set($lock) => $value,
            Handle::Permit($lock) => $value,
            Handle::Resumed($name) => $resumed,
        }
    };
}

/// Sets an option. A lease that is resumed has the options of its provider.
macro_rules! options {
    ($($option:ident: $value:ty),* $(,)?) => {$(
        pub(crate) fn $option(mut self, value: $value) -> Self {
            self.handle = match self.handle {
                Handle::Lock(lock) => Handle::Lock(lock.$option(value)),
                Handle::Set(set) => Handle::Set(set.$option(value)),
                Handle::Permit(semaphore) => Handle::Permit(semaphore.$option(value)),
                Handle::Resumed(name) => {
                    self.provider = self.provider.to_builder().$option(value).build().unwrap();
                    Handle::Resumed(name)
                }
            };
            self
        }
    )*};
}

impl From<LockGuard> for Guard {
    fn from(guard: LockGuard) -> Self {
        Self::Lock(guard)
    }
}

impl From<Permit> for Guard {
    fn from(permit: Permit) -> Self {
        Self::Permit(permit)
    }
}

/// Calls a method that guards and permits have.
macro_rules! of_guard {
    ($held:expr, $guard:ident => $value:expr) => {
        match $held {
            Guard::Lock($guard) => $value,
            Guard::Permit($guard) => $value,
        }
    };
}

async fn wait<F: IntoFuture>(threads: &Threads, future: F) -> F::Output {
    match threads {
        None => future.await,
        Some(locks) => block_in_place(|| locks.wait(future)),
    }
}

impl Target {
    pub(super) fn new(provider: &LockProvider, handle: Handle, threads: Threads) -> Self {
        Self {
            provider: provider.clone(),
            handle,
            threads,
        }
    }

    options! {
        expiry: Duration,
        acquire_timeout: Option<Duration>,
        min_hold: Duration,
        max_hold: Duration,
        await_release: bool,
    }

    /// A short lease that is not renewed, as that of a crashed or paused process.
    pub(crate) fn unrenewed(self) -> Self {
        self.expiry(UNRENEWED).max_hold(Duration::ZERO)
    }

    pub(crate) async fn acquire(&self) -> Result<Hold, LockError> {
        of_handle!(
            &self.handle,
            lock => match &self.threads {
                None => lock.acquire().await.map(|guard| self.hold(guard)),
                Some(locks) => block_in_place(|| locks.acquire(lock)).map(|guard| self.hold(guard)),
            },
            name => {
                let guard = wait(&self.threads, self.provider.lock(name).acquire()).await?;
                self.detach_and_resume(guard).await
            },
        )
    }

    pub(crate) async fn try_acquire(&self) -> Result<Option<Hold>, LockError> {
        of_handle!(
            &self.handle,
            lock => {
                let tried = match &self.threads {
                    None => lock.try_acquire().await,
                    Some(locks) => block_in_place(|| locks.try_acquire(lock)),
                };
                Ok(tried?.map(|guard| self.hold(guard)))
            },
            name => match wait(&self.threads, self.provider.lock(name).try_acquire()).await? {
                Some(guard) => self.detach_and_resume(guard).await.map(Some),
                None => Ok(None),
            },
        )
    }

    async fn detach_and_resume(&self, guard: LockGuard) -> Result<Hold, LockError> {
        let handle = wait(&self.threads, guard.detach(HOUR)).await?;
        self.resume(&handle).await
    }

    pub(crate) async fn resume(&self, handle: &LeaseHandle) -> Result<Hold, LockError> {
        if let Handle::Permit(_) = self.handle {
            let permit = wait(&self.threads, self.provider.resume_permit(handle)).await?;
            return Ok(self.hold(permit));
        }
        let guard = wait(&self.threads, self.provider.resume(handle)).await?;
        Ok(self.hold(guard))
    }

    pub(crate) async fn extend(&self, handle: &LeaseHandle, ttl: Duration) -> Result<DateTime, LockError> {
        wait(&self.threads, self.provider.extend(handle, ttl)).await
    }

    pub(crate) async fn release(&self, handle: &LeaseHandle) -> Result<bool, LockError> {
        wait(&self.threads, self.provider.release(handle)).await
    }

    fn hold(&self, guard: impl Into<Guard>) -> Hold {
        Hold {
            guard: guard.into(),
            threads: self.threads.clone(),
        }
    }

    /// Runs a body that may await. A thread waits for its end.
    pub(crate) async fn run<B: Future<Output: LockOutput>>(
        &self,
        body: impl FnOnce(LockContext) -> B,
    ) -> B::Output {
        of_handle!(
            &self.handle,
            lock => match &self.threads {
                None => lock.run(body).await,
                Some(locks) => block_in_place(|| locks.run(lock, |context| locks.wait(body(context)))),
            },
            _name => unreachable!("no call resumes a lease and runs a body"),
        )
    }

    pub(crate) fn spawn_acquire(&self) -> JoinHandle<Result<Hold, LockError>> {
        let target = self.clone();
        tokio::spawn(async move { target.acquire().await })
    }

    pub(crate) async fn acquire_and_release(&self) {
        self.acquire().await.unwrap().release().await.unwrap();
    }

    /// Has another task acquire and release it.
    pub(crate) fn spawn_turn(&self) -> JoinHandle<()> {
        let target = self.clone();
        tokio::spawn(async move { target.acquire_and_release().await })
    }

    /// Whether another caller can acquire it now.
    pub(crate) async fn is_free(&self) -> bool {
        match self.try_acquire().await.unwrap() {
            Some(hold) => hold.release().await.is_ok(),
            None => false,
        }
    }
}

impl Hold {
    pub(crate) fn context(&self) -> LockContext {
        of_guard!(&self.guard, guard => guard.context())
    }
    pub(crate) fn is_lost(&self) -> bool {
        of_guard!(&self.guard, guard => guard.is_lost())
    }
    pub(crate) fn remaining(&self) -> Duration {
        of_guard!(&self.guard, guard => guard.remaining())
    }
    pub(crate) fn ensure_held(&self) -> Result<(), LockError> {
        of_guard!(&self.guard, guard => guard.ensure_held())
    }
    pub(crate) async fn lost(&self) {
        of_guard!(&self.guard, guard => guard.lost().await);
    }
    pub(crate) async fn release(self) -> Result<(), LockError> {
        of_guard!(self.guard, guard => wait(&self.threads, guard.release()).await)
    }
    pub(crate) async fn detach(self, ttl: Duration) -> Result<LeaseHandle, LockError> {
        of_guard!(self.guard, guard => wait(&self.threads, guard.detach(ttl)).await)
    }
}
