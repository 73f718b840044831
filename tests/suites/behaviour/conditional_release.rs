//! `ForceRelease::only_if`: an operator ends the hold that it has looked at, and no later one.

use std::time::Duration;

use mongolock::{FencingToken, LockInfo, LockState};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, eventually, must};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::conformance::conformance;
use crate::fixture::{Fixture, acquire_and_release, assert_released, renewing};

conformance!(
    a_hold_with_this_token_is_released,
    a_later_hold_is_left_alone,
    a_lock_that_is_free_is_not_released,
    a_minimum_hold_is_ended_by_its_token,
    holds_that_are_handed_over_share_the_token_of_the_document,
    a_request_that_is_not_awaited_sends_nothing,
);

async fn info(fixture: &Fixture, name: &str) -> LockInfo {
    let info = fixture.provider.admin().get(name).await.unwrap();
    info.expect("the lock has been used")
}

async fn release_if(fixture: &Fixture, name: &str, token: FencingToken) -> bool {
    let request = fixture.provider.admin().force_release(name).only_if(token);
    request.await.unwrap()
}

async fn a_hold_with_this_token_is_released(fixture: Fixture) {
    let rival = renewing(&fixture.rival(), Duration::from_millis(200));
    let stuck = rival.lock("stuck").await.unwrap();
    let seen = info(&fixture, "stuck").await;
    assert_eq!(seen.fencing_token, stuck.fencing_token());

    assert!(release_if(&fixture, "stuck", seen.fencing_token).await);
    assert_eq!(info(&fixture, "stuck").await.state, LockState::Released);
    timeout(BEFORE_EXPIRY, stuck.lost())
        .await
        .expect("its next renewal reports the loss");
    let next = fixture.provider.lock("stuck").await.unwrap();
    assert!(next.fencing_token() > stuck.fencing_token());
}

async fn a_later_hold_is_left_alone(fixture: Fixture) {
    let first = fixture.rival().lock("busy").await.unwrap();
    let seen = info(&fixture, "busy").await;
    first.release().await.unwrap();
    let second = fixture.rival().lock("busy").await.unwrap();

    for other in [
        seen.fencing_token,
        FencingToken::from(0),
        FencingToken::from(second.fencing_token().get() + 1),
    ] {
        assert!(!release_if(&fixture, "busy", other).await, "{other}");
    }
    assert_eq!(info(&fixture, "busy").await.state, LockState::Held);
    second.release().await.expect("no request has ended its lease");
}

async fn a_lock_that_is_free_is_not_released(fixture: Fixture) {
    assert!(!release_if(&fixture, "never used", FencingToken::from(1)).await);
    acquire_and_release(&fixture.provider.lock("free")).await;
    let token = info(&fixture, "free").await.fencing_token;
    assert!(!release_if(&fixture, "free", token).await);
}

async fn a_minimum_hold_is_ended_by_its_token(fixture: Fixture) {
    let lock = fixture.rival().lock("closed").min_hold(AMPLE * 10);
    acquire_and_release(&lock).await;
    let token = info(&fixture, "closed").await.fencing_token;
    let other = FencingToken::from(token.get() - 1);
    assert!(!release_if(&fixture, "closed", other).await);
    assert!(info(&fixture, "closed").await.remaining > AMPLE);
    assert!(release_if(&fixture, "closed", token).await);
    assert_released(&fixture.provider.lock("closed")).await;
}

/// A claim with waiters behind it reserves a token for each of them; the document has the last one.
async fn holds_that_are_handed_over_share_the_token_of_the_document(fixture: Fixture) {
    let before = fixture.rival().lock("queue").await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..3 {
        let lock = fixture.provider.lock("queue");
        waiters.spawn(async move { lock.acquire().await.unwrap() });
        tokio::task::yield_now().await;
    }
    // The first request has been refused: only the next one reserves tokens for those behind it.
    let in_line = || async { (!info(&fixture, "queue").await.waiters.is_empty()).then_some(()) };
    must(eventually(AMPLE, "the provider waits in line", in_line).await);
    before.release().await.unwrap();
    let holder = waiters.join_next().await.unwrap().unwrap();
    let seen = info(&fixture, "queue").await.fencing_token;
    assert!(seen > holder.fencing_token(), "{seen} is the last of a block");

    assert!(!release_if(&fixture, "queue", holder.fencing_token()).await);
    assert!(!holder.is_lost());
    assert!(release_if(&fixture, "queue", seen).await);
    timeout(BEFORE_EXPIRY, holder.lost())
        .await
        .expect("a holder of the same provider notices it at once");
    waiters.shutdown().await;
}

async fn a_request_that_is_not_awaited_sends_nothing(fixture: Fixture) {
    let guard = fixture.provider.lock("kept").await.unwrap();
    let request = fixture.provider.admin().force_release("kept");
    let shown = format!("{request:?}");
    assert!(shown.contains("kept"), "{shown}");
    drop(request);
    guard.release().await.expect("the lock was held to the end");
}
