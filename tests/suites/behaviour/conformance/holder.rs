//! Who holds the lock, and for how long: what an error says to a caller that did not get it.

use std::time::Duration;

use futures_util::future::join_all;
use mongolock::{DistributedLock, LockError, distributed_lock};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY};
use tokio::time::Instant;

use super::conformance;
use crate::fixture::{Fixture, acquire_and_release, renewing};

conformance!(
    a_call_names_the_holder,
    the_times_of_a_hold_go_on,
    a_holder_in_this_process_is_the_own_owner,
);

/// The default `expiry`, which is that of all holders here.
const EXPIRY: Duration = Duration::from_secs(30);

/// A wait that is long enough for a reply.
const SHORT: Duration = Duration::from_secs(2);

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
    text: String,
}

impl Met {
    async fn by(call: impl Future<Output = Result<(), LockError>>) -> Self {
        let error = call.await.unwrap_err();
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

/// Also one that waits behind others of its process.
async fn a_call_names_the_holder(fixture: Fixture) {
    let provider = &fixture.provider;
    for owner in ["billing-1", "a#b"] {
        let holder = fixture.process(owner);
        let held = holder.lock("busy").await.unwrap();
        let permit = holder.semaphore("full", 1).acquire().await.unwrap();
        let (lock, short) = (
            provider.lock("busy"),
            provider.lock("busy").acquire_timeout(SHORT),
        );
        let met = tokio::join!(
            Met::by(short.run(async |_| Ok(()))),
            join_all((0..4).map(|_| Met::by_waiting(lock.clone(), SHORT))),
            Met::by_waiting(lock.clone(), Duration::ZERO),
        );
        for met in met.1.iter().chain([&met.0, &met.2]) {
            met.assert_held_by(owner);
        }
        for met in [
            Met::by(provider.scope(failing())).await,
            Met::by(provider.scope(failing_set())).await,
            Met::by(provider.scope(failing_permit())).await,
        ] {
            met.assert_held_by(owner);
            assert!(!met.text.contains("not acquired within"), "{}", met.text);
        }
        held.release().await.unwrap();
        permit.release().await.unwrap();
    }
}

/// The time counts from the beginning of the hold, which is before the first contact of the caller's process, and renewals
/// do not begin it anew. The rest of the lease is counted down while the process asks no more.
async fn the_times_of_a_hold_go_on(fixture: Fixture) {
    let (begun, holder) = (Instant::now(), fixture.process("billing-1"));
    let _quiet = holder.lock("quiet").await.unwrap();
    let renewed = renewing(&fixture.process("billing-1"), SHORT / 5);
    let _held = renewed.lock("busy").await.unwrap();
    let once = fixture.with(|options| options.retry_interval(AMPLE..=AMPLE).wake_up(false));
    // The only attempt is made at the beginning of the wait.
    let quiet = Met::by_waiting(once.lock("quiet"), SHORT).await;
    let remaining = quiet.remaining.unwrap();
    assert!(remaining + Duration::from_secs(1) < EXPIRY, "{}", quiet.text);
    let met = Met::by(fixture.provider.scope(failing())).await;
    let held_for = met.held_for.expect("a reply had it");
    // The server's times are whole milliseconds.
    let blur = Duration::from_millis(2);
    assert!(SHORT <= held_for + blur, "{held_for:?}");
    assert!(held_for <= begun.elapsed() + blur, "{held_for:?}");
}

/// The provider recognises its own holds, also where a reply names them, and whatever the owners of other processes are
/// called. A minimum hold has no holder.
async fn a_holder_in_this_process_is_the_own_owner(fixture: Fixture) {
    let provider = fixture.process("us");
    let kept = fixture.process("billing-1").lock("kept").min_hold(EXPIRY);
    acquire_and_release(&kept).await;
    let begun = Instant::now();
    let _held = provider.lock("busy").await.unwrap();
    let (kept, waited) = tokio::join!(
        Met::by_waiting(provider.lock("kept"), SHORT),
        Met::by_waiting(provider.lock("busy"), SHORT),
    );
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

    assert!(kept.remaining.is_some_and(|remaining| BEFORE_EXPIRY < remaining));
    assert!(kept.holder.is_none() && kept.held_for.is_none() && !kept.in_this_process);
    assert!(kept.text.contains("held by an unknown holder ("), "{}", kept.text);
}
