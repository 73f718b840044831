//! At most one holder at a time, in one process and in several.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use mongolock::{LockGuard, LockProvider};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::subject::Subject;
use super::{UNRENEWED, conformance, conformance_of_kinds};
use crate::fixture::{Fixture, in_time, until_expired};

conformance!(
    one_of_many_wins_a_new_name_or_an_expired_lock,
    different_names_do_not_wait,
);

conformance_of_kinds!(
    one_at_a_time_between_processes: HOLDS with threads,
);

/// S0.1, S2.5: three tasks of each of four processes ask again and again, for a set with its names in different orders. No process is
/// left out, however much another one hands over.
async fn one_at_a_time_between_processes(subject: Subject) {
    let inside = Arc::new(AtomicUsize::new(0));
    let rivals: Vec<LockProvider> = (0..3).map(|_| subject.fixture.rival()).collect();
    let mut running = JoinSet::new();
    for task in 0..12 {
        let target = rivals
            .get(task % 4)
            .map_or_else(|| subject.ours(), |rival| subject.of(rival));
        let inside = Arc::clone(&inside);
        running.spawn(async move {
            for _ in 0..3 {
                let hold = target.acquire().await.unwrap();
                let others = inside.fetch_add(1, Ordering::SeqCst);
                assert_eq!(others, 0, "another task is inside");
                sleep(Duration::from_millis(2)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                hold.release().await.unwrap();
            }
        });
    }
    in_time(running.join_all()).await;
}

/// S0.2, S1.10, S2.11: one provider holds them all at the same time.
async fn different_names_do_not_wait(fixture: Fixture) {
    let acquiring = (0..50).map(|name| fixture.provider.lock(name).acquire());
    let held = in_time(try_join_all(acquiring)).await.unwrap();
    assert!(held.iter().all(|guard| !guard.is_lost()));
}

/// S0.12, S1.6, S2.5, S3.4, S3.7: 64 processes try at the same time to acquire a name without a document, or a lock whose lease has
/// ended. One wins, and none gets an error.
async fn one_of_many_wins_a_new_name_or_an_expired_lock(fixture: Fixture) {
    fixture.crash_holding("expired", UNRENEWED).await;
    let expired = until_expired(&fixture.provider, "expired").await;
    for name in ["new", "expired"] {
        let (mut tasks, start) = (JoinSet::new(), Arc::new(tokio::sync::Barrier::new(64)));
        for _ in 0..64 {
            let (lock, start) = (fixture.rival().lock(name), Arc::clone(&start));
            tasks.spawn(async move {
                start.wait().await;
                lock.try_acquire().await.unwrap()
            });
        }
        let guards: Vec<LockGuard> = tasks.join_all().await.into_iter().flatten().collect();
        assert_eq!(guards.len(), 1, "{name}");
        assert!(name == "new" || guards[0].fencing_token() > expired.fencing_token);
    }
}
