//! When a lock can be taken over whose lease has ended: with a takeover margin later, unless the lock was released.

use std::time::Duration;

use mongolock::{LockError, LockFilter, LockProvider, LockState};
use mongolock_tests::{AMPLE, eventually, must};
use tokio::time::Instant;

use super::conformance;
use crate::fixture::{Fixture, acquire_and_release, assert_released, info, until_expired};

conformance!(
    a_crashed_holders_lock_can_be_taken_over_after_the_margin,
    a_released_or_marked_lock_is_free_at_once,
    waiters_and_operators_see_when_the_lock_is_free,
);

/// The lease of a crashed holder.
const EXPIRY: Duration = Duration::from_millis(200);

/// A provider for the same locks with this margin.
fn with_margin(fixture: &Fixture, margin: Duration) -> LockProvider {
    fixture.with(|options| options.takeover_margin(margin))
}

async fn a_crashed_holders_lock_can_be_taken_over_after_the_margin(fixture: Fixture) {
    let margin = Duration::from_millis(1500);
    let rival = with_margin(&fixture, margin).lock("crashed");
    let begun = Instant::now();
    fixture.crash_holding("crashed", EXPIRY).await;
    assert!(rival.try_acquire().await.unwrap().is_none());
    acquire_and_release(&rival).await;
    assert!(begun.elapsed() >= EXPIRY + margin, "{:?}", begun.elapsed());
}

/// A minimum hold ends without a margin as well.
async fn a_released_or_marked_lock_is_free_at_once(fixture: Fixture) {
    let (ours, theirs) = (with_margin(&fixture, AMPLE), with_margin(&fixture, AMPLE));
    acquire_and_release(&ours.lock("released")).await;
    let begun = Instant::now();
    acquire_and_release(&ours.lock("kept").min_hold(EXPIRY)).await;
    let until_next_second = ours.lock("marked").once_per(Duration::from_secs(1));
    // A call that begins at the end of a period gets no lock.
    let marked = || async { until_next_second.run(async |_| Ok::<_, LockError>(())).await.ok() };
    must(eventually(AMPLE, "a call within its period", marked).await);
    for name in ["released", "kept", "marked"] {
        assert_released(&theirs.lock(name)).await;
    }
    assert!(begun.elapsed() >= EXPIRY);
}

/// Only those with a margin wait for it, and an operator ends it.
async fn waiters_and_operators_see_when_the_lock_is_free(fixture: Fixture) {
    let (provider, impatient) = (with_margin(&fixture, AMPLE), &fixture.provider);
    let is_that_of_the_margin = |remaining: Duration| (AMPLE / 2..=AMPLE).contains(&remaining);
    for name in ["one", "two", "three"] {
        fixture.crash_holding(name, EXPIRY).await;
    }
    let without = until_expired(impatient, "three").await.remaining;
    assert!(without.is_zero(), "to a provider without a margin it is free");
    let seen = info(&provider, "one").await;
    assert_eq!(seen.state, LockState::Expired);
    assert!(is_that_of_the_margin(seen.remaining), "{seen:?}");
    assert_eq!(seen.owner.as_deref(), Some("crashed"));
    let expired = LockFilter::new().state(LockState::Expired);
    assert_eq!(provider.admin().list(expired).await.unwrap().len(), 3);
    let waiting = provider.lock("one").acquire_timeout(Duration::from_secs(1));
    let waited = waiting.acquire().await;
    let Err(LockError::Timeout {
        holder, remaining, ..
    }) = waited
    else {
        panic!("{waited:?}");
    };
    assert_eq!(holder.as_deref(), Some("crashed"));
    assert!(remaining.is_some_and(is_that_of_the_margin), "{remaining:?}");

    let taken = impatient.lock("three").try_acquire().await.unwrap();
    let taken = taken.expect("the lease is over, and this provider has no margin");
    assert!(provider.lock("three").try_acquire().await.unwrap().is_none());
    taken.release().await.unwrap();
    assert_released(&provider.lock("three")).await;

    let admin = provider.admin();
    let released = impatient.admin().force_release("one").await.unwrap();
    // To a provider without a margin there is nothing to release.
    assert!(!released);
    let release = admin.force_release("one").only_if(seen.fencing_token);
    assert!(release.await.unwrap());
    assert!(!admin.force_release("one").await.unwrap(), "it is free");
    assert_released(&provider.lock("one")).await;
    assert_eq!(admin.release_owner("crashed").await.unwrap(), 1);
    assert_released(&provider.lock("two")).await;
}
