use std::pin::pin;

use tokio::task::coop::consume_budget;

use super::*;
use crate::LockProvider;
use crate::task::is_pending;

/// The lock is acquired at once, and the caller's thread is busy until the lease is over.
#[tokio::test(start_paused = true)]
async fn a_hold_that_is_over_is_not_handed_out() {
    let expiry = Duration::from_secs(1);
    let lock = LockProvider::in_memory().lock("n").expiry(expiry);
    let mut acquiring = Box::pin(lock.max_hold(Duration::ZERO).acquire());
    // The caller takes the reply when it runs again, because this run has used up its budget.
    while !is_pending(pin!(consume_budget())).await {}
    assert!(is_pending(acquiring.as_mut()).await);
    tokio::time::sleep(expiry * 2).await;
    let guard = acquiring.await.unwrap();
    assert!(!guard.lease().is_over());
    assert!(guard.remaining() > expiry / 2);
}

/// The lease ends between the reply and the call's next step, as when the caller's thread is stopped there.
#[tokio::test(start_paused = true)]
async fn a_hold_that_ends_meanwhile_is_acquired_anew() {
    let provider = LockProvider::in_memory();
    let (engine, name) = (provider.engine(), RenderedName::new("n"));
    let options = Arc::new(Options::default());
    let acquire = Acquire::one(engine, &name, &options, false, OnBusy::Wait);
    let entry = engine.queues.join(name.text());
    let mut claim = acquire.new_claim(&entry);
    let turn = entry.try_turn().unwrap();
    let mut pacing = Pacing::new(&acquire.call, &turn);
    let first_id = Arc::clone(claim.lock_id());
    let outcome = claim.request().await;
    let Outcome::Acquired(hold) = &outcome else {
        panic!("the lock is free");
    };
    hold.lease().lose(crate::LossReason::Expired);
    let step = acquire.step(&entry, &mut claim, &mut pacing, outcome).await;
    assert!(matches!(step, Ok(Step::Retry(Duration::ZERO))));
    assert_ne!(*claim.lock_id(), first_id, "the first claim is released");
}

/// The first request needs no future on the heap, and no permit that is waited for.
#[tokio::test]
async fn a_free_lock_is_acquired_when_the_call_begins() {
    let provider = LockProvider::in_memory();
    let (engine, name) = (provider.engine(), RenderedName::new("n"));
    let options = Arc::new(Options::default());
    let acquire = Acquire::one(engine, &name, &options, false, OnBusy::Wait);
    let begun = acquire.begin(&acquire.join()).await;
    assert!(matches!(begun, Ok(Ok(_))));
}

/// Thousands of calls may wait at the same time, each in a future of its own.
#[tokio::test]
async fn the_future_of_a_wait_is_small() {
    let provider = LockProvider::in_memory();
    let (engine, name) = (provider.engine(), RenderedName::new("n"));
    let options = Arc::new(Options::default());
    let acquire = Acquire::one(engine, &name, &options, false, OnBusy::Wait);
    let entry = engine.queues.join(name.text());
    let size = size_of_val(&acquire.bounded(&entry, Begun::default()));
    assert!(size <= 1152, "{size}");
}
