//! When a lock can be taken over whose lease has ended: with a takeover margin later, unless the lock was released.

use std::time::Duration;

use mongolock::{LockError, LockFilter, LockProvider, LockState};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY};
use tokio::time::{Instant, timeout};

use super::{conformance, unrenewed};
use crate::fixture::{Fixture, acquire_and_release, assert_released, info, until_expired};

conformance!(
    a_crashed_holders_lock_can_be_taken_over_after_the_margin,
    the_smallest_margin_decides,
    a_released_lock_is_free_without_a_margin,
    a_hold_that_is_lost_in_a_running_process_is_released,
    waiters_and_operators_see_when_the_lock_is_free,
    an_operator_ends_the_margin,
);

/// The lease of a crashed holder.
const EXPIRY: Duration = Duration::from_millis(200);

/// A provider for the same locks with this margin.
fn with_margin(fixture: &Fixture, margin: Duration) -> LockProvider {
    fixture.with(|options| options.takeover_margin(margin))
}

async fn crash_holding(fixture: &Fixture, name: &'static str) {
    let acquire = async move |provider: LockProvider| {
        let guard = provider.lock(name).expiry(EXPIRY).acquire().await.unwrap();
        std::mem::forget(guard);
    };
    fixture.in_crashing_process(acquire).await;
}

async fn a_crashed_holders_lock_can_be_taken_over_after_the_margin(fixture: Fixture) {
    let margin = Duration::from_millis(1500);
    let rival = with_margin(&fixture, margin).lock("crashed");
    let begun = Instant::now();
    crash_holding(&fixture, "crashed").await;
    assert!(rival.try_acquire().await.unwrap().is_none());
    acquire_and_release(&rival).await;
    assert!(begun.elapsed() >= EXPIRY + margin, "{:?}", begun.elapsed());
}

async fn the_smallest_margin_decides(fixture: Fixture) {
    let patient = with_margin(&fixture, AMPLE);
    let impatient = with_margin(&fixture, Duration::ZERO);
    crash_holding(&fixture, "crashed").await;
    until_expired(&fixture.provider, "crashed").await;
    assert!(patient.lock("crashed").try_acquire().await.unwrap().is_none());
    let taken = impatient.lock("crashed").try_acquire().await.unwrap();
    let taken = taken.expect("the lease is over, and this provider has no margin");
    assert!(patient.lock("crashed").try_acquire().await.unwrap().is_none());
    taken.release().await.unwrap();
    assert_released(&patient.lock("crashed")).await;
}

async fn a_released_lock_is_free_without_a_margin(fixture: Fixture) {
    let (ours, theirs) = (with_margin(&fixture, AMPLE), with_margin(&fixture, AMPLE));
    ours.lock("released").await.unwrap().release().await.unwrap();
    let next = theirs.lock("released").try_acquire().await.unwrap();
    drop(next.expect("a released lock is free at once"));

    // A minimum hold ends without a margin as well.
    let min_hold = Duration::from_millis(300);
    let begun = Instant::now();
    let kept = ours.lock("kept").min_hold(min_hold).await.unwrap();
    kept.release().await.unwrap();
    assert_released(&theirs.lock("kept")).await;
    assert!(begun.elapsed() >= min_hold);
}

/// The margin is for holders that cannot say that they have stopped.
async fn a_hold_that_is_lost_in_a_running_process_is_released(fixture: Fixture) {
    let (ours, theirs) = (with_margin(&fixture, AMPLE), with_margin(&fixture, AMPLE));
    let lost = unrenewed(&ours, "lost").acquire().await.unwrap();
    let begun = Instant::now();
    let next = timeout(BEFORE_EXPIRY, theirs.lock("lost").acquire()).await;
    let next = next.expect("the lost hold is released").unwrap();
    assert!(lost.is_lost() && begun.elapsed() < AMPLE);
    next.release().await.unwrap();
    // The process itself does not wait for the margin either.
    let _lost = unrenewed(&ours, "lost").acquire().await.unwrap();
    assert_released(&ours.lock("lost")).await;
}

async fn waiters_and_operators_see_when_the_lock_is_free(fixture: Fixture) {
    let provider = with_margin(&fixture, AMPLE);
    let is_that_of_the_margin = |remaining: Duration| (AMPLE / 2..=AMPLE).contains(&remaining);
    crash_holding(&fixture, "crashed").await;
    let without = until_expired(&fixture.provider, "crashed").await.remaining;
    assert!(without.is_zero(), "to a provider without a margin it is free");

    let seen = info(&provider, "crashed").await;
    assert!(
        seen.state == LockState::Expired && is_that_of_the_margin(seen.remaining),
        "{seen:?}"
    );
    assert_eq!(seen.owner.as_deref(), Some("crashed"));
    let expired = LockFilter::new().state(LockState::Expired);
    assert_eq!(provider.admin().list(expired).await.unwrap()[0].name, "crashed");

    let lock = provider.lock("crashed");
    let waited = lock.acquire_timeout(Duration::from_secs(1)).acquire().await;
    match waited {
        Err(LockError::Timeout {
            holder, remaining, ..
        }) => {
            assert_eq!(holder.as_deref(), Some("crashed"));
            assert!(remaining.is_some_and(is_that_of_the_margin), "{remaining:?}");
        }
        other => panic!("{other:?}"),
    }
}

async fn an_operator_ends_the_margin(fixture: Fixture) {
    let provider = with_margin(&fixture, AMPLE);
    let (admin, without) = (provider.admin(), fixture.provider.admin());
    for name in ["one", "two"] {
        crash_holding(&fixture, name).await;
        until_expired(&provider, name).await;
    }
    let released = without.force_release("one").await.unwrap();
    assert!(
        !released,
        "to a provider without a margin there is nothing to release"
    );
    let token = info(&provider, "one").await.fencing_token;
    assert!(admin.force_release("one").only_if(token).await.unwrap());
    assert!(!admin.force_release("one").await.unwrap(), "it is free");
    assert_released(&provider.lock("one")).await;

    assert_eq!(admin.release_owner("crashed").await.unwrap(), 1);
    assert_released(&provider.lock("two")).await;
}
