//! Who holds the lock, and for how long: what an error says to a caller that did not get it.

use std::time::Duration;

use mongolock::{DistributedLock, LockError, LockProvider, distributed_lock};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::conformance;
use crate::fixture::{Fixture, renewing};

conformance!(
    a_timeout_names_the_holder,
    a_busy_call_names_the_holder,
    waiters_behind_the_front_learn_of_the_holder,
    the_remaining_time_is_counted_down,
    a_hold_is_as_long_as_the_servers_clock_says,
    a_set_and_a_semaphore_tell_it_as_well,
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

#[distributed_lock(name = ["busy", "free"], on_busy = "fail")]
async fn failing_set() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "full", permits = 1, on_busy = "fail")]
async fn failing_permit() -> Result<(), LockError> {
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

/// How long the holder has had the lock, and whether that is this process.
fn hold(error: &LockError) -> (Option<Duration>, bool) {
    match error {
        LockError::Timeout {
            held_for,
            in_this_process,
            ..
        }
        | LockError::Busy {
            held_for,
            in_this_process,
            ..
        } => (*held_for, *in_this_process),
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
    let (held_for, in_this_process) = hold(error);
    assert!(held_for.is_some() && !in_this_process, "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&format!("held by {owner} (for ")), "{text}");
    assert!(text.ends_with(" left of its lease)"), "{text}");
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

/// The time counts from the beginning of the hold, which is before the first contact of the caller's process, and renewals
/// do not begin it anew.
async fn a_hold_is_as_long_as_the_servers_clock_says(fixture: Fixture) {
    let passed = Duration::from_millis(1500);
    let begun = Instant::now();
    let holder = renewing(&fixture.process("billing-1"), passed / 5);
    let held = holder.lock("busy").await.unwrap();
    sleep(passed).await;
    let error = fixture.provider.scope(failing()).await.unwrap_err();
    let (held_for, in_this_process) = hold(&error);
    let held_for = held_for.expect("a reply had it");
    // The server's times are whole milliseconds.
    let blur = Duration::from_millis(2);
    assert!(
        passed <= held_for + blur && held_for <= begun.elapsed() + blur,
        "{held_for:?}"
    );
    assert!(!in_this_process);
    held.release().await.unwrap();
}

async fn a_set_and_a_semaphore_tell_it_as_well(fixture: Fixture) {
    let rival = fixture.process("billing-1");
    let _held = rival.lock("busy").await.unwrap();
    let _permit = rival.semaphore("full", 1).acquire().await.unwrap();
    let set = fixture.provider.scope(failing_set()).await.unwrap_err();
    names("billing-1", &set);
    let permit = fixture.provider.scope(failing_permit()).await.unwrap_err();
    names("billing-1", &permit);
}

/// The provider recognises its own holds, also where a reply names them, and whatever the owners of other processes are
/// called.
async fn a_holder_in_this_process_is_the_own_owner(fixture: Fixture) {
    let provider: LockProvider = fixture.process("us");
    let begun = Instant::now();
    let _held = provider.lock("busy").await.unwrap();
    let waited = error_of(provider.lock("busy").acquire_timeout(SHORT)).await;
    let failed = provider.scope(failing()).await.unwrap_err();
    for error in [&waited, &failed] {
        assert_eq!(holder(error), (Some("us"), None));
        let (held_for, in_this_process) = hold(error);
        assert!(
            in_this_process && held_for.is_some_and(|held| held <= begun.elapsed()),
            "{error:?}"
        );
    }
    let text = waited.to_string();
    assert!(text.contains(": held by this process (for "), "{text}");
    let text = failed.to_string();
    assert!(
        text.starts_with("lock `busy` is held by this process (for "),
        "{text}"
    );

    let _permit = provider.semaphore("full", 1).acquire().await.unwrap();
    let full = provider.scope(failing_permit()).await.unwrap_err();
    assert!(hold(&full).1, "{full}");

    let namesake = fixture.process("us").scope(failing()).await.unwrap_err();
    assert_eq!(holder(&namesake).0, Some("us"));
    assert!(!hold(&namesake).1, "{namesake}");
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
    assert_eq!(hold(&error), (None, false));
    assert!(
        error.to_string().contains("held by an unknown holder ("),
        "{error}"
    );
}
