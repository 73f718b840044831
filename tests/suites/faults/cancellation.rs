//! B2, B15: a wait that is cancelled at any point leaves nothing behind.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use mongodb::Database;
use mongolock::{LockGuard, LockProvider};
use mongolock_tests::test_db;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{assert_free, document, patient, until_none_is_held};

/// Polls a future this many times and then drops it, so that a test can cancel it at each of its await points.
struct PollTimes<F>(F, usize);

impl<F: Future + Unpin> Future for PollTimes<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.1 == 0 {
            return Poll::Ready(None);
        }
        self.1 -= 1;
        Pin::new(&mut self.0).poll(cx).map(Some)
    }
}

/// Asserts that the document stores the token, or the last one of the block that the claim has reserved for the calls that
/// may get the lock from this one.
async fn assert_stores_its_token(database: &Database, guard: &LockGuard) {
    let stored = document(database, guard.name()).await;
    let ahead = stored.get_i64("fencingToken").unwrap() - guard.fencing_token().get();
    assert!([0, 999].contains(&ahead), "{}: {ahead}", guard.name());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_cancelled_waits_leave_no_claim() {
    let db = test_db().await;
    let provider = patient(db.database());
    let mut tasks = JoinSet::new();
    for index in 0..1000_u64 {
        let lock = provider.lock(format!("cancelled:{}", index % 50));
        tasks.spawn(async move {
            if index % 2 == 0 {
                let polls = usize::try_from(index % 14).unwrap();
                drop(PollTimes(Box::pin(lock.acquire()), polls).await);
            } else {
                let micros = index * 7919 % 12_000;
                let _ = timeout(Duration::from_micros(micros), lock.acquire()).await;
            }
        });
        if index % 25 == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    tasks.join_all().await;
    until_none_is_held(db.database(), Duration::from_secs(5)).await;
    for index in 0..50 {
        let guard = provider.lock(format!("cancelled:{index}")).await.unwrap();
        assert_stores_its_token(db.database(), &guard).await;
        guard.release().await.unwrap();
    }
}

/// A release whose future is dropped still reaches the server.
#[tokio::test]
async fn a_cancelled_release_arrives() {
    let db = test_db().await;
    let provider = LockProvider::new(db.database());
    for polls in 0..4 {
        let guard = provider.lock("released").acquire().await.unwrap();
        drop(PollTimes(Box::pin(guard.release()), polls).await);
        assert_free(&provider, "released").await;
    }
}
