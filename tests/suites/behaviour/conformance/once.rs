//! Work that may succeed only once: in each period, or until its mark ends.

use std::time::{Duration, SystemTime};

use mongodb::bson::DateTime;
use mongolock::{DistributedLock, LockError, LockFilter, LockProvider, LockState, LossReason};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, eventually, must};
use tokio::time::{sleep, timeout};

use super::conformance;
use crate::fixture::{AppError, Fixture, assert_lost, assert_released, info, refused_option};

conformance!(
    a_done_lock_answers_at_once,
    a_failed_run_is_left_to_another_instance,
    a_waiting_call_ends_with_the_mark_of_another_instance,
    each_period_has_a_run_of_its_own,
    a_mark_is_shown_in_words_and_kept_from_release_owner,
    done_on_a_lost_lock_is_lost,
    the_options_are_checked,
    a_tick_is_a_part_of_the_name,
);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest period: a test does not run across its end.
const LONG: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A short period. A test waits for its beginning before it uses it.
const SHORT: Duration = Duration::from_secs(4);

async fn succeed(lock: &DistributedLock) -> Result<(), LockError> {
    lock.run(async |_| Ok(())).await
}

async fn fail(lock: &DistributedLock) {
    let failed = lock.run(async |_| Err::<(), _>(AppError::Body)).await;
    assert!(matches!(failed, Err(AppError::Body)), "{failed:?}");
}

fn assert_done_by(outcome: Result<impl Sized, LockError>, owner: &str) -> DateTime {
    match outcome {
        Err(LockError::Done { by, until, .. }) => {
            assert_eq!(by, owner);
            until
        }
        Err(other) => panic!("not done: {other:?}"),
        Ok(_) => panic!("the lock is not done"),
    }
}

/// Waits for the beginning of a short period of the server's clock, which the lease of a lock of its own tells.
async fn until_period_begins(provider: &LockProvider) {
    let guard = provider.lock("clock").await.unwrap();
    let now = info(provider, "clock").await.acquired_at.timestamp_millis();
    guard.release().await.unwrap();
    let period = i64::try_from(SHORT.as_millis()).unwrap();
    let left = Duration::from_millis(u64::try_from(period - now.rem_euclid(period)).unwrap());
    sleep(left + Duration::from_millis(100)).await;
}

async fn a_done_lock_answers_at_once(fixture: Fixture) {
    let (ours, theirs) = (fixture.process("ours"), fixture.process("theirs"));
    let locks = |of: &LockProvider| [of.lock("periods").once_per(LONG), of.lock("tick").once()];
    for lock in &locks(&ours) {
        succeed(lock).await.unwrap();
    }
    for lock in locks(&ours).iter().chain(&locks(&theirs)) {
        let calls = async {
            let until = assert_done_by(lock.acquire().await, "ours");
            assert_done_by(lock.try_acquire().await, "ours");
            assert_done_by(succeed(lock).await, "ours");
            until
        };
        let until = timeout(BEFORE_EXPIRY, calls).await.expect("a done lock answers");
        assert_eq!(until, info(&ours, lock.name()).await.expires_at);
    }
    // To a plain call a mark is a holder.
    let plain = theirs.lock("tick");
    assert!(plain.try_acquire().await.unwrap().is_none());
    let waited = plain.acquire_timeout(Duration::from_secs(1)).acquire().await;
    let is_owner = |holder: &str| holder == "ours";
    let is_named =
        matches!(&waited, Err(LockError::Timeout { holder, .. }) if holder.as_deref().is_some_and(is_owner));
    assert!(is_named, "{waited:?}");
    let end = info(&ours, "periods").await.expires_at.timestamp_millis();
    assert_eq!(end.rem_euclid(i64::try_from(LONG.as_millis()).unwrap()), 0);
    let tick = info(&ours, "tick").await;
    let left = tick.expires_at.timestamp_millis() - tick.acquired_at.timestamp_millis();
    assert!(left >= i64::try_from(DAY.as_millis()).unwrap(), "{left}");
}

async fn a_failed_run_is_left_to_another_instance(fixture: Fixture) {
    let (ours, theirs) = (fixture.process("ours"), fixture.process("theirs"));
    let lock = ours.lock("failing").once_per(LONG);
    fail(&lock).await;
    drop(lock.acquire().await.unwrap());
    lock.acquire().await.unwrap().release().await.unwrap();
    let body = async |_| -> Result<(), LockError> { panic!("the body") };
    tokio::spawn(lock.run(body)).await.unwrap_err();
    succeed(&theirs.lock("failing").once_per(LONG)).await.unwrap();
    assert_done_by(lock.acquire().await, "theirs");
}

async fn a_waiting_call_ends_with_the_mark_of_another_instance(fixture: Fixture) {
    let (ours, theirs) = (fixture.process("ours"), fixture.process("theirs"));
    let running = ours.lock("awaited").once_per(LONG).await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for provider in [&ours, &theirs, &theirs] {
        let lock = provider.lock("awaited").once_per(LONG);
        waiting.spawn(async move { lock.acquire().await });
    }
    sleep(Duration::from_millis(200)).await;
    assert!(waiting.try_join_next().is_none());
    running.done().await.unwrap();
    while let Some(ended) = timeout(BEFORE_EXPIRY, waiting.join_next()).await.unwrap() {
        assert_done_by(ended.unwrap(), "ours");
    }
}

/// Work that succeeds in its period is done until the next one. Work that ends after its period leaves no mark.
async fn each_period_has_a_run_of_its_own(fixture: Fixture) {
    until_period_begins(&fixture.provider).await;
    let (ours, rival) = (fixture.process("ours"), fixture.rival());
    let (next, late) = (
        ours.lock("next").once_per(SHORT),
        ours.lock("late").once_per(SHORT),
    );
    succeed(&next).await.unwrap();
    let marked = fixture.info("next").await;
    let is_done = marked.state == LockState::Done && marked.remaining <= SHORT;
    assert!(is_done, "{marked:?}");
    let late = late.acquire().await.unwrap();
    let theirs = rival.lock("next").once_per(SHORT);
    let again = async || match theirs.acquire().await {
        Ok(guard) => Some(guard),
        Err(LockError::Done { .. }) => None,
        Err(other) => panic!("{other:?}"),
    };
    let next = must(eventually(AMPLE, "the next period", again).await);
    let begun = fixture.info("next").await;
    assert!(begun.acquired_at >= marked.expires_at, "{begun:?}");
    next.done().await.unwrap();
    late.done().await.unwrap();
    let late = fixture.info("late").await;
    // A mark would name its owner, also after its end.
    let is_free = late.state == LockState::Released && late.owner.is_none();
    assert!(is_free, "{late:?}");
}

async fn a_mark_is_shown_in_words_and_kept_from_release_owner(fixture: Fixture) {
    let provider = fixture.process("worker");
    let (admin, list) = (provider.admin(), async |filter: LockFilter| {
        let found = fixture.provider.admin().list(filter).await.unwrap();
        found.into_iter().map(|lock| lock.name).collect::<Vec<_>>()
    });
    succeed(&provider.lock("done").once()).await.unwrap();
    let held = provider.lock("held").await.unwrap();
    let shown = fixture.info("done").await;
    let found = (shown.state, shown.owner.as_deref());
    assert_eq!(found, (LockState::Done, Some("worker")));
    assert_eq!(list(LockFilter::new().owner("worker")).await, ["done", "held"]);
    for (state, names) in [
        (LockState::Done, &["done"][..]),
        (LockState::Held, &["held"]),
        (LockState::Expired, &[]),
        (LockState::Released, &[]),
    ] {
        assert_eq!(list(LockFilter::new().state(state)).await, names);
    }
    assert_eq!(admin.release_owner("worker").await.unwrap(), 1);
    assert_eq!(admin.release_owner("done:worker").await.unwrap(), 0);
    assert_eq!(fixture.info("done").await.state, LockState::Done);
    assert!(admin.force_release("done").await.unwrap(), "it clears the mark");
    succeed(&provider.lock("done").once()).await.unwrap();
    drop(held);
}

/// Without `once` it is an error, and the lock is released.
async fn done_on_a_lost_lock_is_lost(fixture: Fixture) {
    let plain = fixture.provider.lock("plain");
    let done = plain.acquire().await.unwrap().done().await;
    assert_eq!(refused_option(done), "once");
    assert_released(&plain).await;

    let lock = fixture.provider.lock("lost").once();
    let guard = lock.acquire().await.unwrap();
    assert!(fixture.rival().admin().force_release("lost").await.unwrap());
    let next = fixture.rival().lock("lost").once().acquire().await.unwrap();
    assert_lost(guard.done().await, LossReason::Gone);
    next.done().await.unwrap();
    assert_done_by(lock.acquire().await, "rival");
}

/// A joined call writes no mark, and the minimum hold of a provider does not apply.
async fn the_options_are_checked(fixture: Fixture) {
    let outer = fixture.provider.lock("joined");
    let inner = outer.clone().once();
    outer.run(async |_| succeed(&inner).await).await.unwrap();
    assert_eq!(fixture.info("joined").await.state, LockState::Released);
    let kept = fixture.with(|options| options.min_hold(Duration::from_secs(60)));
    let kept = kept.lock("kept").once_per(LONG);
    fail(&kept).await;
    timeout(BEFORE_EXPIRY, succeed(&kept)).await.unwrap().unwrap();

    let lock = || fixture.provider.lock("checked");
    let second = Duration::from_secs(1);
    let forgetful = fixture.with(|options| options.retention(second * 3599));
    let forgetful = forgetful.lock("checked");
    for (lock, option) in [
        (lock().once_per(second / 2), "once_per"),
        (lock().once_per(second + Duration::from_micros(500)), "once_per"),
        (lock().once_per(DAY * 367), "once_per"),
        (lock().once().min_hold(second), "min_hold"),
        (lock().min_hold(second).once(), "min_hold"),
        (forgetful.clone().once(), "retention"),
    ] {
        assert_eq!(refused_option(lock.acquire().await), option);
    }
    succeed(&forgetful.once_per(LONG)).await.unwrap();
    for no_tick in [
        tick() + Duration::from_nanos(1),
        SystemTime::UNIX_EPOCH - second,
        SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_800),
    ] {
        assert_eq!(refused_option(lock().once_at(no_tick).acquire().await), "once_at");
    }
}

/// 2026-03-01 03:00:00 UTC.
fn tick() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_334_000)
}

async fn a_tick_is_a_part_of_the_name(fixture: Fixture) {
    let ours = fixture.process("ours");
    let lock = |tick: SystemTime| ours.lock("nightly").once_at(tick);
    assert_eq!(lock(tick()).name(), "nightly@2026-03-01T03:00:00Z");
    succeed(&lock(tick())).await.unwrap();
    assert_done_by(lock(tick()).acquire().await, "ours");
    fail(&lock(tick() + DAY)).await;
    succeed(&lock(tick() + DAY)).await.unwrap();
    let longest = "n".repeat(1024 - "@2026-03-01T03:00:00Z".len());
    succeed(&ours.lock(&longest).once_at(tick())).await.unwrap();
    let longer = succeed(&ours.lock(longest + "n").once_at(tick())).await;
    assert!(matches!(longer, Err(LockError::InvalidName { .. })), "{longer:?}");
}
