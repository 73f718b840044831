//! Who holds the lock, and for how long: what an error says to a caller that did not get it.

use std::time::Duration;

use mongolock::{DistributedLock, LockError, LockProvider, distributed_lock};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY};
use tokio::task::JoinSet;

use super::conformance;
use crate::fixture::Fixture;

conformance!(
    a_timeout_names_the_holder,
    a_busy_call_names_the_holder,
    waiters_behind_the_front_learn_of_the_holder,
    the_remaining_time_is_counted_down,
    a_holder_in_this_process_is_the_own_owner,
    a_minimum_hold_has_no_holder,
);

/// The default `expiry`, which is that of all holders here.
const EXPIRY: Duration = Duration::from_secs(30);

/// A wait that is long enough for a reply.
const SHORT: Duration = Duration::from_millis(500);

#[distributed_lock(name = "busy", on_busy = "fail")]
async fn failing() -> Result<(), LockError> {
    Ok(())
}

/// The holder and the remaining time that the error of a call names.
fn holder(error: &LockError) -> (Option<&str>, Option<Duration>) {
    match error {
        LockError::Timeout {
            holder, remaining, ..
        }
        | LockError::Busy {
            holder, remaining, ..
        } => (holder.as_deref(), *remaining),
        other => panic!("{other:?}"),
    }
}

async fn error_of(lock: DistributedLock) -> LockError {
    lock.acquire().await.unwrap_err()
}

/// Asserts that the error names this owner, and the rest of a lease that has just begun.
fn names(owner: &str, error: &LockError) {
    let (named, remaining) = holder(error);
    assert_eq!(named, Some(owner), "{error}");
    let remaining = remaining.expect("a reply had it");
    assert!(BEFORE_EXPIRY < remaining && remaining <= EXPIRY, "{remaining:?}");
    let text = error.to_string();
    assert!(
        text.contains(&format!("the lease of {owner} runs for ")),
        "{text}"
    );
}

async fn a_timeout_names_the_holder(fixture: Fixture) {
    for owner in ["billing-1", "a#b"] {
        let held = fixture.process(owner).lock("busy").await.unwrap();
        let lock = fixture.provider.lock("busy");
        names(owner, &error_of(lock.clone().acquire_timeout(SHORT)).await);
        names(
            owner,
            &error_of(lock.clone().acquire_timeout(Duration::ZERO)).await,
        );
        let ran: Result<(), LockError> = lock.acquire_timeout(SHORT).run(async |_| Ok(())).await;
        names(owner, &ran.unwrap_err());
        held.release().await.unwrap();
    }
}

async fn a_busy_call_names_the_holder(fixture: Fixture) {
    let _held = fixture.process("billing-1").lock("busy").await.unwrap();
    let error = fixture.provider.scope(failing()).await.unwrap_err();
    assert!(matches!(error, LockError::Busy { .. }), "{error}");
    names("billing-1", &error);
}

async fn waiters_behind_the_front_learn_of_the_holder(fixture: Fixture) {
    let _held = fixture.process("billing-1").lock("busy").await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..5 {
        waiters.spawn(error_of(fixture.provider.lock("busy").acquire_timeout(SHORT)));
    }
    for error in waiters.join_all().await {
        names("billing-1", &error);
    }
}

/// The only attempt is made at the beginning of the wait.
async fn the_remaining_time_is_counted_down(fixture: Fixture) {
    let _held = fixture.process("billing-1").lock("busy").await.unwrap();
    let once = fixture
        .provider
        .to_builder()
        .retry_interval(AMPLE..=AMPLE)
        .wake_up(false);
    let lock = once.build().unwrap().lock("busy");
    let error = error_of(lock.acquire_timeout(Duration::from_secs(2))).await;
    let (named, remaining) = holder(&error);
    assert_eq!(named, Some("billing-1"));
    assert!(
        remaining.unwrap() + Duration::from_secs(1) < EXPIRY,
        "{remaining:?}"
    );
}

async fn a_holder_in_this_process_is_the_own_owner(fixture: Fixture) {
    let provider: LockProvider = fixture.process("us");
    let _held = provider.lock("busy").await.unwrap();
    let waited = error_of(provider.lock("busy").acquire_timeout(SHORT)).await;
    assert_eq!(holder(&waited), (Some("us"), None));
    assert!(waited.to_string().ends_with("us holds it"), "{waited}");
    let failed = provider.scope(failing()).await.unwrap_err();
    assert_eq!(holder(&failed), (Some("us"), None));
}

async fn a_minimum_hold_has_no_holder(fixture: Fixture) {
    let rival = fixture.process("billing-1");
    let held = rival.lock("busy").min_hold(EXPIRY).await.unwrap();
    held.release().await.unwrap();
    let error = error_of(fixture.provider.lock("busy").acquire_timeout(SHORT)).await;
    let (named, remaining) = holder(&error);
    assert_eq!(named, None);
    assert!(
        remaining.is_some_and(|remaining| BEFORE_EXPIRY < remaining),
        "{remaining:?}"
    );
    assert!(error.to_string().contains("it is taken for "), "{error}");
}
