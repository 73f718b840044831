//! `ForceRelease::only_if`: an operator ends the hold that it has looked at, and no later one.

use std::time::Duration;

use mongolock::{FencingToken, LockState};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, eventually, must};
use tokio::task::JoinSet;

use crate::conformance::conformance;
use crate::fixture::{Fixture, acquire_and_release, assert_released, renewing};
use crate::waiting::until_lost;

conformance!(
    only_the_hold_with_this_token_is_released,
    a_lock_that_is_free_is_not_released,
    a_minimum_hold_is_ended_by_its_token,
    a_request_that_is_not_awaited_sends_nothing,
);

async fn release_if(fixture: &Fixture, name: &str, token: FencingToken) -> bool {
    let request = fixture.provider.admin().force_release(name).only_if(token);
    request.await.unwrap()
}

/// Not one that began before or after it.
async fn only_the_hold_with_this_token_is_released(fixture: Fixture) {
    let lock = renewing(&fixture.rival(), Duration::from_millis(200)).lock("stuck");
    acquire_and_release(&lock).await;
    let earlier = fixture.info("stuck").await.fencing_token;
    let stuck = lock.acquire().await.unwrap();
    let seen = fixture.info("stuck").await.fencing_token;
    assert_eq!(seen, stuck.fencing_token());
    for other in [earlier, FencingToken::from(0), FencingToken::from(seen.get() + 1)] {
        assert!(!release_if(&fixture, "stuck", other).await, "{other}");
    }
    assert_eq!(fixture.info("stuck").await.state, LockState::Held);
    stuck.ensure_held().unwrap();

    assert!(release_if(&fixture, "stuck", seen).await);
    assert_eq!(fixture.info("stuck").await.state, LockState::Released);
    until_lost(&stuck, BEFORE_EXPIRY).await;
    let next = fixture.provider.lock("stuck").await.unwrap();
    assert!(next.fencing_token() > stuck.fencing_token());
}

async fn a_lock_that_is_free_is_not_released(fixture: Fixture) {
    assert!(!release_if(&fixture, "never used", FencingToken::from(1)).await);
    acquire_and_release(&fixture.provider.lock("free")).await;
    let token = fixture.info("free").await.fencing_token;
    assert!(!release_if(&fixture, "free", token).await);
}

async fn a_minimum_hold_is_ended_by_its_token(fixture: Fixture) {
    let lock = fixture.rival().lock("closed").min_hold(AMPLE * 10);
    acquire_and_release(&lock).await;
    let token = fixture.info("closed").await.fencing_token;
    let other = FencingToken::from(token.get() - 1);
    assert!(!release_if(&fixture, "closed", other).await);
    assert!(fixture.info("closed").await.remaining > AMPLE);
    assert!(release_if(&fixture, "closed", token).await);
    assert_released(&fixture.provider.lock("closed")).await;
}

/// A claim with waiters behind it reserves a token for each of them; the document has the last one.
#[tokio::test]
async fn holds_that_are_handed_over_share_the_token_of_the_document() {
    let fixture = Fixture::mongodb().await;
    let before = fixture.provider.lock("queue").await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..3 {
        let lock = fixture.provider.lock("queue");
        waiters.spawn(async move { lock.acquire().await.unwrap() });
        tokio::task::yield_now().await;
    }
    let all_wait = || async { (fixture.provider.health().await.waiting == 3).then_some(()) };
    must(eventually(AMPLE, "three calls that wait", all_wait).await);
    before.release().await.unwrap();
    let holder = waiters.join_next().await.unwrap().unwrap();
    let seen = fixture.info("queue").await.fencing_token;
    assert!(seen > holder.fencing_token(), "{seen} is the last of a block");

    assert!(!release_if(&fixture, "queue", holder.fencing_token()).await);
    assert!(!holder.is_lost());
    assert!(release_if(&fixture, "queue", seen).await);
    until_lost(&holder, BEFORE_EXPIRY).await;
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
