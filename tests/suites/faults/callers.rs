//! What goes on beside a fault: leases that last, tasks that acquire and release locks of their own, and the application's
//! use of its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use mongodb::Database;
use mongodb::bson::doc;
use mongolock::{DistributedLock, LockGuard, LockProvider};
use mongolock_tests::{AMPLE, FailPoint, TestDb, must};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::fail;

/// How the names of the leases begin.
pub(crate) const LEASE: &str = "lease:";

/// Acquires so many locks at the same time.
pub(crate) async fn hold(provider: &LockProvider, count: usize) -> Vec<LockGuard> {
    hold_all((0..count).map(|number| provider.lock(format!("{LEASE}{number}")))).await
}

/// Acquires these locks at the same time.
pub(crate) async fn hold_all(locks: impl Iterator<Item = DistributedLock>) -> Vec<LockGuard> {
    let acquired = join_all(locks.map(|lock| lock.acquire_timeout(AMPLE).acquire()));
    acquired.await.into_iter().map(Result::unwrap).collect()
}

/// Releases all locks at the same time.
pub(crate) async fn release_all(guards: Vec<LockGuard>) {
    for released in join_all(guards.into_iter().map(LockGuard::release)).await {
        released.unwrap();
    }
}

/// The number of guards whose locks are lost.
pub(crate) fn lost(guards: &[LockGuard]) -> usize {
    guards.iter().filter(|guard| guard.is_lost()).count()
}

/// Tasks that acquire and release one lock each until they are stopped. No acquire may fail.
pub(crate) struct Callers {
    stops: Arc<AtomicBool>,
    tasks: JoinSet<Calls>,
}

/// What tasks have seen.
#[derive(Default)]
pub(crate) struct Calls {
    /// How many acquires there were, and how long the longest one took.
    pub(crate) count: usize,
    pub(crate) longest: Duration,
    /// Releases without a reply, which go on in the background.
    pub(crate) failed_releases: usize,
}

impl Callers {
    pub(crate) fn start(locks: impl IntoIterator<Item = DistributedLock>, pause: Duration) -> Self {
        let (stops, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for lock in locks {
            let stops = Arc::clone(&stops);
            tasks.spawn(async move {
                let mut calls = Calls::default();
                while !stops.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let guard = lock.acquire().await.unwrap();
                    calls.count += 1;
                    calls.longest = calls.longest.max(begun.elapsed());
                    calls.failed_releases += usize::from(guard.release().await.is_err());
                    sleep(pause).await;
                }
                calls
            });
        }
        Self { stops, tasks }
    }

    /// What all tasks have seen, when their calls have ended.
    pub(crate) async fn stop(self) -> Calls {
        self.stops.store(true, Ordering::Relaxed);
        let mut all = Calls::default();
        for calls in self.tasks.join_all().await {
            all.count += calls.count;
            all.longest = all.longest.max(calls.longest);
            all.failed_releases += calls.failed_releases;
        }
        all
    }
}

/// Has the application use so many connections of a client for this time.
pub(crate) async fn use_connections(
    db: &TestDb,
    database: &Database,
    count: usize,
    time: Duration,
) -> JoinHandle<()> {
    let point = fail(db, FailPoint::on(&["ping"]).always().block(time)).await;
    let database = database.clone();
    tokio::spawn(async move {
        let pings = (0..count).map(|_| database.run_command(doc! { "ping": 1 }).into_future());
        for ping in join_all(pings).await {
            ping.unwrap();
        }
        must(point.clear().await);
    })
}
