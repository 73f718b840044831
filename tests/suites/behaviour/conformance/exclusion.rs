//! At most one holder at a time, in one process and in several, and tokens that rise from one hold to the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongolock::{DistributedLock, FencingToken, LockProvider};
use mongolock_tests::AMPLE;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{conformance, unrenewed};
use crate::fixture::Fixture;

conformance!(
    one_at_a_time_in_one_process,
    one_at_a_time_between_processes,
    different_names_do_not_wait,
    one_of_many_wins_a_new_name,
    one_of_many_wins_an_expired_lock,
    many_locks_are_held_at_once,
    tokens_rise_from_hold_to_hold,
);

/// A section that counts how many tasks are inside at the same time.
#[derive(Clone, Default)]
struct Section {
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Section {
    async fn pass(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        sleep(Duration::from_millis(2)).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    async fn pass_many(&self, locks: Vec<DistributedLock>) {
        let mut tasks = JoinSet::new();
        for lock in locks {
            let section = self.clone();
            tasks.spawn(async move {
                let guard = lock.acquire().await.unwrap();
                section.pass().await;
                guard.release().await.unwrap();
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    }
}

/// S0.1
async fn one_at_a_time_in_one_process(fixture: Fixture) {
    let section = Section::default();
    section
        .pass_many((0..20).map(|_| fixture.provider.lock("one")).collect())
        .await;
    assert_eq!(section.most.load(Ordering::SeqCst), 1);
}

/// S0.1, S2.5
async fn one_at_a_time_between_processes(fixture: Fixture) {
    let section = Section::default();
    let rivals: Vec<LockProvider> = (0..4).map(|_| fixture.rival()).collect();
    section
        .pass_many((0..20).map(|i| rivals[i % 4].lock("one")).collect())
        .await;
    assert_eq!(section.most.load(Ordering::SeqCst), 1);
}

/// S0.2: both tasks pass the barrier only if they hold their locks at the same time.
async fn different_names_do_not_wait(fixture: Fixture) {
    let barrier = tokio::sync::Barrier::new(2);
    let meet = |name: &'static str| {
        let (lock, barrier) = (fixture.provider.lock(name), &barrier);
        async move {
            let _guard = lock.acquire().await.unwrap();
            barrier.wait().await;
        }
    };
    timeout(AMPLE, async { tokio::join!(meet("a"), meet("b")) })
        .await
        .expect("both tasks hold their locks at the same time");
}

/// S0.12, S2.5, S3.4: 64 tasks try at the same time to acquire a name without a document. One wins, and no task gets an
/// error.
async fn one_of_many_wins_a_new_name(fixture: Fixture) {
    assert_eq!(winners(&fixture, "new", 64).await.len(), 1);
}

/// S3.7, S1.6
async fn one_of_many_wins_an_expired_lock(fixture: Fixture) {
    let expired = unrenewed(&fixture.provider, "expired").acquire().await.unwrap();
    expired.lost().await;
    sleep(Duration::from_millis(60)).await;
    let winners = winners(&fixture, "expired", 32).await;
    assert_eq!(winners.len(), 1);
    assert!(winners[0] > expired.fencing_token());
}

/// The tokens of the processes that acquired the lock, of `takers` that try at the same time. A winner keeps the lock
/// until all have tried.
async fn winners(fixture: &Fixture, name: &'static str, takers: usize) -> Vec<FencingToken> {
    let mut tasks = JoinSet::new();
    let start = Arc::new(tokio::sync::Barrier::new(takers));
    for _ in 0..takers {
        let (lock, start) = (fixture.rival().lock(name), Arc::clone(&start));
        tasks.spawn(async move {
            start.wait().await;
            lock.try_acquire().await.unwrap()
        });
    }
    let guards = tasks.join_all().await;
    guards
        .iter()
        .flatten()
        .map(mongolock::LockGuard::fencing_token)
        .collect()
}

/// S1.10, S2.11
async fn many_locks_are_held_at_once(fixture: Fixture) {
    let mut guards = Vec::new();
    for index in 0..50 {
        guards.push(fixture.provider.lock(index).await.unwrap());
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// S1.19
async fn tokens_rise_from_hold_to_hold(fixture: Fixture) {
    let providers = [fixture.provider.clone(), fixture.rival()];
    let mut last = None;
    for round in 0..50 {
        let guard = providers[round % 2].lock("token").await.unwrap();
        let token = guard.fencing_token();
        assert!(last < Some(token), "{last:?} before {token:?}");
        assert!(token.get() < 1 << 53);
        last = Some(token);
        guard.release().await.unwrap();
    }
}
