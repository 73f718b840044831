//! B2, B15: a call that is cancelled at any point leaves nothing behind.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join_all;
use mongolock::LockProvider;
use mongolock_tests::{AMPLE, test_db};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::act::Act;
use crate::{assert_free, patient, until_none_is_held};

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

/// Acquires and releases so many times.
pub(crate) async fn take_turns(act: Act, provider: LockProvider, name: String, times: usize) {
    for _ in 0..times {
        let held = act.acquire(&provider, &name).await.unwrap();
        sleep(Duration::from_millis(3)).await;
        held.release().await.unwrap();
    }
}

/// Beside calls of two processes that work: they all have their turns, and no caller or claim is forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_cancelled_waits_leave_no_claim() {
    join_all([(Act::Lock, 1000), (Act::Set, 300), (Act::Permit(2), 300)].map(cancel)).await;
}

async fn cancel((act, waits): (Act, u64)) {
    let db = test_db().await;
    let processes = [
        patient(db.database()),
        patient(&db.connect_again().await.unwrap()),
    ];
    let (mut working, mut cancelled) = (JoinSet::new(), JoinSet::new());
    for provider in &processes {
        for name in 0..3 {
            working.spawn(take_turns(act, provider.clone(), name.to_string(), 30));
        }
    }
    for number in 0..waits {
        let provider = processes[usize::from(number % 2 == 0)].clone();
        cancelled.spawn(async move {
            // Some are among the working calls, the others alone.
            let name = (number % 20).to_string();
            let acquiring = act.acquire(&provider, &name);
            if number % 3 == 0 {
                let polls = usize::try_from(number % 14).unwrap();
                drop(PollTimes(Box::pin(acquiring), polls).await);
            } else {
                // Up to 80 ms: before the first request, while it waits, and with the lock.
                let limit = Duration::from_micros(number * 7919 % 80_000);
                drop(timeout(limit, acquiring).await);
            }
        });
        if number % 20 == 0 {
            sleep(Duration::from_millis(20)).await;
        }
    }
    cancelled.join_all().await;
    let ended = timeout(AMPLE, working.join_all()).await;
    ended.expect("nobody is forgotten");
    for provider in &processes {
        assert_eq!(provider.health().await.waiting, 0);
    }
    until_none_is_held(db.database(), Duration::from_secs(5)).await;
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
