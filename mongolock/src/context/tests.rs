use std::collections::VecDeque;
use std::sync::Weak;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::*;
use crate::core::Event;
use crate::few::Few;
use crate::{DistributedLock, LockProvider};

const TASKS: usize = 1000;

/// A provider whose locks are lost after a second.
fn short() -> LockProvider {
    let builder = LockProvider::in_memory().to_builder();
    let short = builder.expiry(Duration::from_secs(1)).max_hold(Duration::ZERO);
    short.build().unwrap()
}

async fn token_within(lock: &DistributedLock) -> Result<FencingToken, LockError> {
    lock.run(async |context| Ok(context.fencing_token())).await
}

#[tokio::test]
async fn a_long_chain_does_not_overflow_the_stack() {
    let guard = LockProvider::in_memory().lock("long").await.unwrap();
    let chain = || {
        let links = std::iter::repeat_n(guard.lease(), 300_000);
        links.fold(guard.context(), |outer, lease| {
            let leases = Few::One([Arc::clone(lease)]);
            LockContext::within(Some(outer.clone()), leases, View::of(lease))
        })
    };
    drop(chain());

    let innermost = chain();
    std::iter::successors(Some(innermost.clone()), LockContext::outer)
        .take(300_000)
        .for_each(|context| context.close());
    let outermost = innermost.outer().expect("the guard is held");
    assert!(Arc::ptr_eq(&outermost.level, &guard.context().level));
}

/// Runs one task after the other, each of which acquires a lock in the scope of the call before it, while `overlap`
/// earlier calls still run. Returns the largest number of levels and of leases that existed at the same time.
async fn chain_of_tasks(
    first: &LockContext,
    lock_of: impl Fn(usize) -> DistributedLock,
    overlap: usize,
) -> (usize, usize) {
    let mut outer = first.clone();
    let (mut levels, mut leases) = (Vec::<Weak<Level>>::new(), Vec::<Weak<Lease>>::new());
    let (mut most, mut running) = ((0, 0), VecDeque::new());
    for number in 0..TASKS {
        let (sender, context) = oneshot::channel();
        let (end, ending) = oneshot::channel::<()>();
        let lock = lock_of(number);
        let task = tokio::spawn(outer.scope(async move {
            let body = async move |context| {
                let _ = sender.send(context);
                let _ = ending.await;
                Ok::<_, LockError>(())
            };
            lock.run(body).await
        }));
        outer = context.await.unwrap();
        levels.push(Arc::downgrade(&outer.level));
        leases.push(Arc::downgrade(outer.lease()));
        running.push_back((task, end));
        if running.len() > overlap
            && let Some((task, end)) = running.pop_front()
        {
            // Dropping the sender ends the call.
            drop(end);
            task.await.unwrap().unwrap();
        }
        let alive = (count_alive(&levels), count_alive(&leases));
        most = (alive.0.max(most.0), alive.1.max(most.1));
    }
    most
}

fn count_alive<T>(all: &[Weak<T>]) -> usize {
    all.iter().filter(|weak| weak.strong_count() > 0).count()
}

#[tokio::test]
async fn ended_calls_are_not_kept() {
    let provider = LockProvider::in_memory();
    let first = provider.lock("first").await.unwrap();
    for overlap in [0, 1, 3] {
        let own = chain_of_tasks(&first.context(), |number| provider.lock(number), overlap).await;
        let joined = chain_of_tasks(&first.context(), |_| provider.lock("first"), overlap).await;
        assert!(own.0 <= 10 && own.1 <= 10, "levels and leases: {own:?}");
        assert!(joined.0 <= 10, "levels: {}", joined.0);
    }
}

/// Joining the hold from inside another lock fails as well.
#[tokio::test(start_paused = true)]
async fn a_lost_hold_whose_call_still_runs_cannot_be_joined() {
    let (provider, other) = (short(), LockProvider::in_memory());
    let (lost, inner) = (provider.lock("lost"), other.lock("inner"));
    let guard = lost.acquire().await.unwrap();
    let nested = guard.context().scope(async {
        inner
            .run(async |_| {
                guard.lost().await;
                token_within(&inner).await?;
                token_within(&lost).await
            })
            .await
    });
    assert!(matches!(nested.await, Err(LockError::Lost { name, .. }) if name == "lost"));
}

/// A task that outlives the call that started it runs under no lock of that call.
#[tokio::test]
async fn an_ended_call_is_seen_in_its_own_scope_only() {
    let provider = LockProvider::in_memory();
    let (ended, inner) = (provider.lock("ended"), provider.lock("inner"));
    let guard = ended.acquire().await.unwrap();
    let (context, token) = (guard.context(), guard.fencing_token());
    guard.release().await.unwrap();

    let direct = context.clone().scope(token_within(&ended)).await;
    assert!(matches!(direct, Err(LockError::Lost { .. })));
    let deeper = inner.run(async |_| token_within(&ended).await);
    assert!(context.scope(deeper).await.unwrap() > token);
}

/// Whoever waits for a loss does not wait for a transaction that marks the work.
#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_during_a_commit_wakes_those_who_wait_for_its_loss() {
    let guard = short().lock("commits").once().await.unwrap();
    let lease = guard.lease();
    let (hold, marks) = (lease.granted().hold, true);
    lease.commit_begins();
    lease.engine.apply(Event::CommitBegins { hold, marks });
    let begun = Instant::now();
    timeout(Duration::from_secs(60), guard.lost()).await.unwrap();
    assert!(begun.elapsed() <= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(!lease.is_lost(), "the commit may still succeed");

    lease.commit_ends(Some(false), marks);
    lease.engine.apply(Event::CommitEnds {
        hold,
        marks,
        was_made: Some(false),
        awaited: None,
    });
    assert!(lease.is_lost());
}
