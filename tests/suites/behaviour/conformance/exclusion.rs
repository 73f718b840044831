//! At most one holder at a time, in one process and in several, and tokens that rise from one hold to the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongolock::{FencingToken, LockGuard, LockProvider};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::subject::Subject;
use super::target::Target;
use super::{conformance, conformance_of_kinds, unrenewed};
use crate::fixture::{Fixture, in_time, until_expired};

conformance!(
    different_names_do_not_wait,
    one_of_many_wins_a_new_name,
    one_of_many_wins_an_expired_lock,
    many_locks_are_held_at_once,
);

conformance_of_kinds!(
    one_at_a_time_in_one_process: HOLDS with threads,
    one_at_a_time_between_processes: HOLDS with threads,
    tokens_rise_from_hold_to_hold: HOLDS with threads,
);

/// Has so many tasks acquire these targets, and checks that they hold them one after the other.
async fn assert_one_at_a_time(tasks: usize, target: impl Fn(usize) -> Target) {
    let inside = Arc::new(AtomicUsize::new(0));
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (target, inside) = (target(task), Arc::clone(&inside));
        running.spawn(async move {
            let hold = target.acquire().await.unwrap();
            let others = inside.fetch_add(1, Ordering::SeqCst);
            assert_eq!(others, 0, "another task is inside");
            sleep(Duration::from_millis(2)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            hold.release().await.unwrap();
        });
    }
    running.join_all().await;
}

/// S0.1
async fn one_at_a_time_in_one_process(subject: Subject) {
    assert_one_at_a_time(20, |_| subject.ours()).await;
}

/// S0.1, S2.5: a set is named in another order by each of them.
async fn one_at_a_time_between_processes(subject: Subject) {
    let rivals: Vec<LockProvider> = (0..3).map(|_| subject.fixture.rival()).collect();
    let target = |task| match rivals.get(task % 4) {
        Some(rival) => subject.of(rival),
        None => subject.ours(),
    };
    assert_one_at_a_time(20, target).await;
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
    in_time(async { tokio::join!(meet("a"), meet("b")) }).await;
}

/// S0.12, S2.5, S3.4: 64 tasks try at the same time to acquire a name without a document. One wins, and no task gets an
/// error.
async fn one_of_many_wins_a_new_name(fixture: Fixture) {
    assert_one_wins(&fixture, "new", 64).await;
}

/// S3.7, S1.6
async fn one_of_many_wins_an_expired_lock(fixture: Fixture) {
    let expired = unrenewed(&fixture.provider, "expired").acquire().await.unwrap();
    until_expired(&fixture.provider, "expired").await;
    let winner = assert_one_wins(&fixture, "expired", 32).await;
    assert!(winner > expired.fencing_token());
}

/// Has tasks of so many processes try at the same time to acquire the lock, and returns the token of the only winner, which
/// keeps it until all have tried.
async fn assert_one_wins(fixture: &Fixture, name: &'static str, takers: usize) -> FencingToken {
    let mut tasks = JoinSet::new();
    let start = Arc::new(tokio::sync::Barrier::new(takers));
    for _ in 0..takers {
        let (lock, start) = (fixture.rival().lock(name), Arc::clone(&start));
        tasks.spawn(async move {
            start.wait().await;
            lock.try_acquire().await.unwrap()
        });
    }
    let guards: Vec<LockGuard> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(guards.len(), 1);
    guards[0].fencing_token()
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
async fn tokens_rise_from_hold_to_hold(subject: Subject) {
    let targets = [subject.ours(), subject.theirs()];
    let mut last = None;
    for round in 0..50 {
        let hold = targets[round % 2].acquire().await.unwrap();
        if let Some(last) = last.replace(hold.context()) {
            subject.assert_newer(&hold.context(), &last);
        }
        hold.release().await.unwrap();
    }
}
