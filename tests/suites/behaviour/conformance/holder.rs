//! Who holds the lock, and for how long: what an error says to a caller that did not get it.

use std::time::Duration;

use mongolock::{DistributedLock, LockError, distributed_lock};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::conformance;
use crate::fixture::{Fixture, acquire_and_release, renewing};

conformance!(
    a_timeout_names_the_holder,
    a_busy_call_names_the_holder,
    waiters_behind_the_front_learn_of_the_holder,
    the_remaining_time_is_counted_down,
    a_hold_is_as_long_as_the_servers_clock_says,
    a_holder_in_this_process_is_the_own_owner,
    a_minimum_hold_has_no_holder,
);

/// The default `expiry`, which is that of all holders here.
const EXPIRY: Duration = Duration::from_secs(30);

/// A wait that is long enough for a reply.
const SHORT: Duration = Duration::from_secs(3);

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

/// The hold that a caller has met, as the error of its call tells it.
struct Met {
    holder: Option<String>,
    remaining: Option<Duration>,
    held_for: Option<Duration>,
    in_this_process: bool,
    has_waited: bool,
    text: String,
}

impl Met {
    async fn by(call: impl Future<Output = Result<(), LockError>>) -> Self {
        let error = call.await.unwrap_err();
        let has_waited = matches!(error, LockError::Timeout { .. });
        let text = error.to_string();
        match error {
            LockError::Timeout {
                holder,
                remaining,
                held_for,
                in_this_process,
                ..
            }
            | LockError::Busy {
                holder,
                remaining,
                held_for,
                in_this_process,
                ..
            } => Self {
                holder,
                remaining,
                held_for,
                in_this_process,
                has_waited,
                text,
            },
            other => panic!("{other:?}"),
        }
    }

    /// The hold that an acquire has met.
    async fn by_waiting(lock: DistributedLock, limit: Duration) -> Self {
        Self::by(async { lock.acquire_timeout(limit).acquire().await.map(drop) }).await
    }

    /// Asserts that it is a hold of this owner in another process, whose lease has just begun.
    fn assert_held_by(&self, owner: &str) {
        let text = &self.text;
        assert_eq!(self.holder.as_deref(), Some(owner), "{text}");
        let remaining = self.remaining.expect("a reply had it");
        assert!(BEFORE_EXPIRY < remaining && remaining <= EXPIRY, "{remaining:?}");
        assert!(self.held_for.is_some() && !self.in_this_process, "{text}");
        assert!(text.contains(&format!("held by {owner} (for ")), "{text}");
        assert!(text.ends_with(" left of its lease)"), "{text}");
    }
}

async fn a_timeout_names_the_holder(fixture: Fixture) {
    for owner in ["billing-1", "a#b"] {
        let held = fixture.process(owner).lock("busy").await.unwrap();
        let lock = fixture.provider.lock("busy").acquire_timeout(SHORT);
        let ran = lock.run(async |_| Ok(()));
        for met in [
            Met::by(ran).await,
            Met::by_waiting(lock.clone(), SHORT).await,
            Met::by_waiting(lock, Duration::ZERO).await,
        ] {
            met.assert_held_by(owner);
        }
        held.release().await.unwrap();
    }
}

async fn a_busy_call_names_the_holder(fixture: Fixture) {
    let rival = fixture.process("billing-1");
    let _held = rival.lock("busy").await.unwrap();
    let _permit = rival.semaphore("full", 1).acquire().await.unwrap();
    let provider = &fixture.provider;
    for met in [
        Met::by(provider.scope(failing())).await,
        Met::by(provider.scope(failing_set())).await,
        Met::by(provider.scope(failing_permit())).await,
    ] {
        met.assert_held_by("billing-1");
        assert!(!met.has_waited, "{}", met.text);
    }
}

async fn waiters_behind_the_front_learn_of_the_holder(fixture: Fixture) {
    let _held = fixture.process("billing-1").lock("busy").await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..5 {
        waiters.spawn(Met::by_waiting(fixture.provider.lock("busy"), SHORT));
    }
    for met in waiters.join_all().await {
        met.assert_held_by("billing-1");
    }
}

/// The only attempt is made at the beginning of the wait.
async fn the_remaining_time_is_counted_down(fixture: Fixture) {
    let _held = fixture.process("billing-1").lock("busy").await.unwrap();
    let once = fixture.with(|options| options.retry_interval(AMPLE..=AMPLE).wake_up(false));
    let met = Met::by_waiting(once.lock("busy"), Duration::from_secs(2)).await;
    assert_eq!(met.holder.as_deref(), Some("billing-1"));
    assert!(
        met.remaining.unwrap() + Duration::from_secs(1) < EXPIRY,
        "{}",
        met.text
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
    let met = Met::by(fixture.provider.scope(failing())).await;
    let held_for = met.held_for.expect("a reply had it");
    // The server's times are whole milliseconds.
    let blur = Duration::from_millis(2);
    assert!(passed <= held_for + blur, "{held_for:?}");
    assert!(held_for <= begun.elapsed() + blur, "{held_for:?}");
    held.release().await.unwrap();
}

/// The provider recognises its own holds, also where a reply names them, and whatever the owners of other processes are
/// called.
async fn a_holder_in_this_process_is_the_own_owner(fixture: Fixture) {
    let provider = fixture.process("us");
    let begun = Instant::now();
    let _held = provider.lock("busy").await.unwrap();
    let waited = Met::by_waiting(provider.lock("busy"), SHORT).await;
    let failed = Met::by(provider.scope(failing())).await;
    for (met, text) in [(waited, ": held by"), (failed, "lock `busy` is held by")] {
        assert_eq!((met.holder.as_deref(), met.remaining), (Some("us"), None));
        let held_for = met.held_for.expect("it is known");
        assert!(met.in_this_process && held_for <= begun.elapsed(), "{held_for:?}");
        let text = format!("{text} this process (for ");
        assert!(met.text.contains(&text), "{}", met.text);
    }

    let _permit = provider.semaphore("full", 1).acquire().await.unwrap();
    let full = Met::by(provider.scope(failing_permit())).await;
    assert!(full.in_this_process, "{}", full.text);

    let namesake = Met::by(fixture.process("us").scope(failing())).await;
    assert_eq!(namesake.holder.as_deref(), Some("us"));
    assert!(!namesake.in_this_process, "{}", namesake.text);
}

async fn a_minimum_hold_has_no_holder(fixture: Fixture) {
    let lock = fixture.process("billing-1").lock("busy").min_hold(EXPIRY);
    acquire_and_release(&lock).await;
    let met = Met::by_waiting(fixture.provider.lock("busy"), SHORT).await;
    assert!(met.remaining.is_some_and(|remaining| BEFORE_EXPIRY < remaining));
    assert!(met.holder.is_none() && met.held_for.is_none() && !met.in_this_process);
    assert!(met.text.contains("held by an unknown holder ("), "{}", met.text);
}
