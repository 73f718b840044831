//! Elections, lost primaries and lost majorities.

use std::time::Duration;

use mongolock::{LockError, LockEventKind, LockFilter, LockProvider};
use mongolock_tests::{AMPLE, Server, ServerOptions, must};
use tokio::time::{Instant, sleep, timeout};

use crate::{LONG_EXPIRY, acquire_soon, assert_free, connect, patient};

async fn provider(server: &Server) -> LockProvider {
    let database = connect(&server.uri(), "app").await;
    patient(&database)
}

/// B5, S1.19: the hold and the wait survive an election, because the lease is longer than the election.
#[tokio::test]
async fn a_stepdown_ends_neither_a_hold_nor_a_wait() {
    let server = Server::start(ServerOptions::three_members()).await.unwrap();
    let (ours, theirs) = (provider(&server).await, provider(&server).await);
    let guard = ours.lock("kept").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { theirs.lock("kept").acquire().await });
    sleep(Duration::from_millis(100)).await;
    let former = must(server.primary().await);
    let elected = must(server.step_down().await);
    assert_ne!(elected.address(), former.address());
    assert!(!guard.is_lost() && !waiter.is_finished());
    let held = guard.fencing_token();
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(next.fencing_token() > held);
    next.release().await.unwrap();
}

/// B12: a lock that a majority has acknowledged survives the loss of the primary.
#[tokio::test]
async fn a_killed_primary_loses_no_lock() {
    let server = Server::start(ServerOptions::three_members()).await.unwrap();
    let (ours, theirs) = (provider(&server).await, provider(&server).await);
    let guard = ours.lock("kept").expiry(LONG_EXPIRY).acquire().await.unwrap();
    let primary = server.primary().await.unwrap();
    must(primary.kill().await);
    let rival = theirs.lock("kept").acquire_timeout(Duration::from_secs(20));
    let answer = rival.try_acquire().await;
    assert!(matches!(answer, Ok(None)), "{answer:?}");
    assert!(!guard.is_lost());
    let held = guard.fencing_token();
    guard.release().await.unwrap();
    assert!(acquire_soon(&theirs, "kept").await.fencing_token() > held);
}

/// A member is stopped, and later the primary is killed: each hold before, between and after is told once, in its order.
#[tokio::test]
async fn events_outlast_a_stopped_member_and_a_killed_primary() {
    let server = Server::start(ServerOptions::three_members()).await.unwrap();
    let (ours, theirs) = (provider(&server).await, provider(&server).await);
    let mut events = theirs.admin().events(LockFilter::new().name("followed"));
    let first = ours.lock("followed").acquire().await.unwrap();
    let told = timeout(AMPLE, events.next()).await.expect("an event comes");
    assert!(told.expect("they go on").unwrap().kind.is_held());
    first.release().await.unwrap();

    let stopped = server.secondaries().await[0];
    must(stopped.stop());
    let mut tokens = Vec::new();
    for round in 0..12 {
        if round == 6 {
            must(stopped.resume());
            must(server.primary().await.unwrap().kill().await);
        }
        let held = acquire_soon(&ours, "followed").await;
        tokens.push(held.fencing_token());
        held.release().await.unwrap();
    }
    let mut holds = Vec::new();
    while holds.last() < tokens.last() {
        let event = timeout(AMPLE, events.next()).await.expect("an event comes");
        let event = event.expect("they go on").unwrap();
        match event.kind {
            LockEventKind::Acquired => holds.extend(event.fencing_token),
            kind => assert_eq!(kind, LockEventKind::Released),
        }
    }
    assert!(
        holds.is_sorted_by(|one, next| one < next),
        "once each, in order: {holds:?}"
    );
    // A request that is sent again during the election may be granted as well. It is given back, and no caller has its token.
    holds.retain(|token| tokens.contains(token));
    assert_eq!(holds, tokens);
}

/// B12: without a majority no lock is acquired, and the attempt leaves nothing behind.
#[tokio::test]
async fn without_a_majority_nothing_is_acquired() {
    let server = Server::start(ServerOptions::three_members()).await.unwrap();
    let provider = provider(&server).await;
    assert_free(&provider, "warm").await;
    let secondaries = server.secondaries().await;
    assert_eq!(secondaries.len(), 2);
    for node in &secondaries {
        must(node.stop());
    }
    let begun = Instant::now();
    let lock = provider.lock("lonely").acquire_timeout(Duration::from_secs(3));
    let error = lock.acquire().await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(10), "the limit holds");
    assert!(matches!(error, LockError::Mongo(_)), "{error}");
    for node in &secondaries {
        must(node.resume());
    }
    // The lock becomes free long before the expiry of 30 s.
    assert_free(&provider, "lonely").await;
}
