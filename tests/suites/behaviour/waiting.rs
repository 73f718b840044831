//! Tasks that wait for locks, and guards of many locks.

use std::fmt::Display;
use std::time::Duration;

use mongolock::{LockError, LockGuard, LockProvider, LockProviderBuilder};
use mongolock_tests::AMPLE;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The limit within which a release must wake a waiter.
pub(crate) const WOKEN: Duration = Duration::from_secs(10);

/// After the first few attempts such a provider polls so rarely that only a wake-up ends its waits in time.
pub(crate) fn seldom_polling(builder: LockProviderBuilder) -> LockProviderBuilder {
    let builder = builder.retry_interval(Duration::from_millis(10)..=AMPLE * 10);
    builder.acquire_timeout(AMPLE * 10)
}

/// A task that acquires a lock or a set.
pub(crate) fn waiter<L>(lock: L) -> JoinHandle<LockGuard>
where
    L: IntoFuture<Output = Result<LockGuard, LockError>, IntoFuture: Send + 'static>,
{
    let acquiring = lock.into_future();
    tokio::spawn(async move { acquiring.await.unwrap() })
}

/// The guard of a waiter, which acquires its lock within this time.
pub(crate) async fn acquired(waiter: JoinHandle<LockGuard>, limit: Duration) -> LockGuard {
    let acquired = timeout(limit, waiter).await;
    acquired.expect("the waiter acquires the lock").unwrap()
}

/// Releases a lock, and expects that its waiter has it within this time.
pub(crate) async fn release_to(held: LockGuard, waiter: JoinHandle<LockGuard>, limit: Duration) {
    held.release().await.unwrap();
    acquired(waiter, limit).await.release().await.unwrap();
}

/// Acquires these locks, one after the other.
pub(crate) async fn hold_all(
    provider: &LockProvider,
    names: impl IntoIterator<Item: Display>,
) -> Vec<LockGuard> {
    let mut held = Vec::new();
    for name in names {
        held.push(provider.lock(name).await.unwrap());
    }
    held
}

/// Expects that the holder of a lock that is gone notices it within this time.
pub(crate) async fn until_lost(guard: &LockGuard, limit: Duration) {
    let lost = timeout(limit, guard.lost()).await;
    lost.expect("the holder notices the loss");
}
