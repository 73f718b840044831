//! Handing a lock over to the next waiter of the same process, and yielding it to other processes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::doc;
use mongolock::{FencingToken, LockError, LockProvider};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::conformance;
use crate::fixture::{Fixture, acquire_and_release, assert_released};
use crate::waiting::{acquired, waiter};

conformance!(
    waiters_acquire_in_the_order_of_their_arrival_each_with_a_greater_token,
    waiters_with_other_options_get_a_hold_with_their_options,
    a_cancelled_waiter_keeps_no_claim,
    a_minimum_hold_is_not_handed_over,
    another_process_acquires_between_hand_overs,
    names_that_were_used_once_leave_no_work,
);

/// The numbers and tokens of the waiters of a queue of this length, in the order in which they acquired the lock. Every other
/// one drops its guard.
async fn noted_queue(provider: &LockProvider, waiters: usize) -> Vec<(usize, FencingToken)> {
    let (noted, mut tasks) = (Arc::<Mutex<Vec<_>>>::default(), JoinSet::new());
    let first = provider.lock("queue").await.unwrap();
    for index in 0..waiters {
        let (lock, noted) = (provider.lock("queue"), Arc::clone(&noted));
        tasks.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            noted.lock().unwrap().push((index, guard.fencing_token()));
            if index.is_multiple_of(2) {
                guard.release().await.unwrap();
            }
        });
        tokio::task::yield_now().await;
    }
    first.release().await.unwrap();
    let all = timeout(BEFORE_EXPIRY, tasks.join_all()).await;
    all.expect("all waiters acquire the lock");
    std::mem::take(&mut *noted.lock().unwrap())
}

/// S1.19
async fn waiters_acquire_in_the_order_of_their_arrival_each_with_a_greater_token(fixture: Fixture) {
    let queue = noted_queue(&fixture.provider, 50).await;
    let (order, tokens): (Vec<_>, Vec<_>) = queue.into_iter().unzip();
    assert!(order.iter().copied().eq(0..50), "{order:?}");
    assert!(
        tokens.is_sorted_by(|earlier, later| earlier < later),
        "{tokens:?}"
    );
    let next = fixture.rival().lock("queue").await.unwrap();
    assert!(
        next.fencing_token() > tokens[49],
        "greater than all reserved tokens"
    );
}

/// S1.19: only the tokens that were reserved tell the holds apart from earlier and later ones, because the time is behind.
#[tokio::test]
async fn the_tokens_of_hand_overs_rise_after_a_token_ahead_of_the_clock() {
    let fixture = Fixture::mongodb().await;
    let ahead = i64::pow(2, 52);
    let document = doc! { "_id": "queue", "fencingToken": ahead };
    fixture.locks().insert_one(document).await.unwrap();
    let mut tokens = vec![FencingToken::from(ahead)];
    for _ in 0..3 {
        let queue = noted_queue(&fixture.provider, 20).await;
        tokens.extend(queue.into_iter().map(|(_, token)| token));
        let rival = fixture.rival().lock("queue").await.unwrap();
        tokens.push(rival.fencing_token());
        rival.release().await.unwrap();
    }
    assert!(tokens.is_sorted_by(|before, token| before < token), "{tokens:?}");
}

/// S1.19: the server's time has gone further than the tokens that were reserved for hand-overs.
#[tokio::test]
async fn tokens_rise_after_hand_overs_and_a_deletion() {
    let fixture = Fixture::mongodb().await;
    let mut last = FencingToken::from(0);
    for _ in 0..3 {
        for _ in 0..2 {
            let queue = noted_queue(&fixture.provider, 20).await;
            last = queue[19].1.max(last);
        }
        let query = doc! { "_id": "queue" };
        fixture.locks().delete_one(query).await.unwrap();
        // A lease that begins in the millisecond of the one before, or in the next one, may share its tokens.
        sleep(Duration::from_millis(5)).await;
        let rival = fixture.rival().lock("queue").await.unwrap();
        let token = rival.fencing_token();
        assert!(token > last, "{token} after {last}");
        rival.release().await.unwrap();
    }
}

async fn waiters_with_other_options_get_a_hold_with_their_options(fixture: Fixture) {
    let first = fixture.provider.lock("options").await.unwrap();
    let mut tasks = JoinSet::new();
    for expiry in [30, 60, 60, 90].map(Duration::from_secs) {
        let lock = fixture.provider.lock("options").expiry(expiry);
        tasks.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let remaining = guard.remaining();
            guard.release().await.unwrap();
            assert!(expiry / 2 < remaining && remaining <= expiry, "{remaining:?}");
        });
        tokio::task::yield_now().await;
    }
    first.release().await.unwrap();
    let all = timeout(BEFORE_EXPIRY, tasks.join_all()).await;
    all.expect("all waiters acquire the lock");
}

async fn a_cancelled_waiter_keeps_no_claim(fixture: Fixture) {
    for micros in (0..2000).step_by(50) {
        let first = fixture.provider.lock("leaving").await.unwrap();
        let leaving = fixture.provider.lock("leaving");
        let waiter = tokio::spawn(async move {
            let _ = timeout(Duration::from_micros(micros), leaving.acquire()).await;
        });
        tokio::task::yield_now().await;
        sleep(Duration::from_micros(micros)).await;
        first.release().await.unwrap();
        waiter.await.unwrap();
    }
    assert_released(&fixture.rival().lock("leaving")).await;
}

async fn a_minimum_hold_is_not_handed_over(fixture: Fixture) {
    let lock = fixture.provider.lock("rate").min_hold(Duration::from_millis(200));
    let begun = Instant::now();
    for _ in 0..3 {
        acquire_and_release(&lock).await;
    }
    assert!(begun.elapsed() >= Duration::from_millis(400));
}

/// Four callers of one process acquire the lock without a pause. A caller of another process still acquires it, several
/// times.
async fn another_process_acquires_between_hand_overs(fixture: Fixture) {
    let busy = fixture.provider.clone();
    let mut unceasing = JoinSet::new();
    for _ in 0..4 {
        let lock = busy.lock("shared");
        unceasing.spawn(async move {
            loop {
                let guard = lock.acquire().await.unwrap();
                sleep(Duration::from_millis(1)).await;
                guard.release().await.unwrap();
            }
        });
    }
    let other = fixture.rival();
    for _ in 0..5 {
        let guard = acquired(waiter(other.lock("shared")), AMPLE / 2).await;
        sleep(Duration::from_millis(1)).await;
        guard.release().await.unwrap();
    }
    unceasing.shutdown().await;
}

/// S2.11, B17: names that were used once leave no work behind in this process.
async fn names_that_were_used_once_leave_no_work(fixture: Fixture) {
    for index in 0..200 {
        acquire_and_release(&fixture.provider.lock(format!("once:{index}"))).await;
    }
    // The shutdown waits for all work of this process on any name.
    let begun = Instant::now();
    fixture.provider.shutdown().await;
    assert!(begun.elapsed() < Duration::from_secs(10));
    let refused = fixture.provider.lock("once:0").acquire().await;
    assert!(matches!(refused, Err(LockError::ShutDown { .. })), "{refused:?}");
}

/// A long queue inside one process costs only a few commands.
#[tokio::test]
async fn a_hand_over_costs_no_command() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    let holds = noted_queue(&provider, 200).await.len();
    let trips = commands.count("findAndModify") + commands.count("update");
    assert_eq!(holds, 200);
    assert!(trips <= 40, "{trips} commands for 201 holds");
}
