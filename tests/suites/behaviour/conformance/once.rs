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
    a_waiting_call_runs_after_a_failure,
    a_period_that_has_ended_is_not_marked,
    the_next_period_is_free,
    a_grant_in_a_later_period_is_released,
    a_mark_is_shown_in_words_and_kept_from_release_owner,
    a_forced_release_clears_a_mark,
    a_plain_call_finds_a_marked_lock_busy,
    done_needs_a_lock_with_once,
    done_on_a_lost_lock_is_lost,
    a_joined_call_writes_no_mark,
    a_shutdown_keeps_marks,
    a_dropped_done_writes_the_mark,
    a_providers_minimum_hold_does_not_apply,
    the_options_are_checked,
    a_tick_is_a_part_of_the_name,
    a_time_with_a_part_of_a_second_is_no_tick,
    the_hold_of_a_failed_run_is_not_handed_over,
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

/// The time of the server in milliseconds, as the lease of a lock of its own tells it.
async fn server_time(provider: &LockProvider) -> i64 {
    let guard = provider.lock("clock").await.unwrap();
    let now = info(provider, "clock").await.acquired_at;
    guard.release().await.unwrap();
    now.timestamp_millis()
}

/// Waits for the beginning of a short period.
async fn until_period_begins(provider: &LockProvider) {
    let period = i64::try_from(SHORT.as_millis()).unwrap();
    let begun = server_time(provider).await.rem_euclid(period);
    let left = Duration::from_millis(u64::try_from(period - begun).unwrap());
    sleep(left + Duration::from_millis(100)).await;
}

async fn a_done_lock_answers_at_once(fixture: Fixture) {
    let (ours, theirs) = (fixture.process("ours"), fixture.process("theirs"));
    for lock in [ours.lock("periods").once_per(LONG), ours.lock("tick").once()] {
        succeed(&lock).await.unwrap();
        let other = match lock.name() {
            "tick" => theirs.lock("tick").once(),
            name => theirs.lock(name).once_per(LONG),
        };
        for lock in [&lock, &other] {
            let calls = async {
                let until = assert_done_by(lock.acquire().await, "ours");
                assert_done_by(lock.try_acquire().await, "ours");
                assert_done_by(succeed(lock).await, "ours");
                until
            };
            let until = timeout(BEFORE_EXPIRY, calls).await.expect("a done lock answers");
            assert_eq!(until, info(&ours, lock.name()).await.expires_at);
        }
    }
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

async fn a_waiting_call_runs_after_a_failure(fixture: Fixture) {
    let running = fixture.process("ours").lock("failing").once().await.unwrap();
    let lock = fixture.process("theirs").lock("failing").once();
    let waiting = tokio::spawn(async move { succeed(&lock).await });
    sleep(Duration::from_millis(100)).await;
    running.release().await.unwrap();
    timeout(BEFORE_EXPIRY, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(fixture.info("failing").await.state, LockState::Done);
}

async fn a_period_that_has_ended_is_not_marked(fixture: Fixture) {
    until_period_begins(&fixture.provider).await;
    let lock = fixture.provider.lock("late").once_per(SHORT);
    let guard = lock.acquire().await.unwrap();
    sleep(SHORT + Duration::from_millis(100)).await;
    guard.done().await.unwrap();
    let late = fixture.info("late").await;
    // A mark would name its owner, also after its end.
    assert!(
        late.state == LockState::Released && late.owner.is_none(),
        "{late:?}"
    );
}

async fn the_next_period_is_free(fixture: Fixture) {
    until_period_begins(&fixture.provider).await;
    let theirs = fixture.rival().lock("next").once_per(SHORT);
    succeed(&fixture.provider.lock("next").once_per(SHORT))
        .await
        .unwrap();
    let marked = fixture.info("next").await;
    assert!(
        marked.state == LockState::Done && marked.remaining <= SHORT,
        "{marked:?}"
    );
    let again = async || match theirs.acquire().await {
        Ok(guard) => Some(guard),
        Err(LockError::Done { .. }) => None,
        Err(other) => panic!("{other:?}"),
    };
    let guard = must(eventually(AMPLE, "the next period", again).await);
    let next = fixture.info("next").await;
    assert!(next.acquired_at >= marked.expires_at, "{next:?}");
    guard.done().await.unwrap();
}

/// The last claim of a period, in its own process or in another one, is granted in the next one, and would use it up.
async fn a_grant_in_a_later_period_is_released(fixture: Fixture) {
    until_period_begins(&fixture.provider).await;
    let rival = fixture.rival();
    let mut held = Vec::new();
    for (holder, name) in [(fixture.process("holder"), "elsewhere"), (rival.clone(), "here")] {
        let guard = holder.lock(name).once_per(SHORT).await.unwrap();
        let lock = rival.lock(name).once_per(SHORT);
        held.push((guard, tokio::spawn(async move { succeed(&lock).await })));
    }
    sleep(SHORT + Duration::from_millis(200)).await;
    for (guard, waiting) in held {
        let name = guard.name().to_owned();
        guard.release().await.unwrap();
        let outcome = timeout(BEFORE_EXPIRY, waiting).await.unwrap().unwrap();
        assert!(matches!(outcome, Err(LockError::Timeout { .. })), "{outcome:?}");
        let free = async || (fixture.info(&name).await.state == LockState::Released).then_some(());
        must(eventually(BEFORE_EXPIRY, "the release of a late grant", free).await);
    }
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
    assert_eq!(
        (shown.state, shown.owner.as_deref()),
        (LockState::Done, Some("worker"))
    );
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
    drop(held);
}

async fn a_forced_release_clears_a_mark(fixture: Fixture) {
    let lock = fixture.provider.lock("cleared").once();
    succeed(&lock).await.unwrap();
    assert!(fixture.provider.admin().force_release("cleared").await.unwrap());
    succeed(&lock).await.unwrap();
}

async fn a_plain_call_finds_a_marked_lock_busy(fixture: Fixture) {
    let ours = fixture.process("ours");
    succeed(&ours.lock("marked").once()).await.unwrap();
    let plain = fixture.rival().lock("marked");
    assert!(plain.try_acquire().await.unwrap().is_none());
    let waited = plain.acquire_timeout(Duration::from_secs(1)).acquire().await;
    let Err(LockError::Timeout { holder, .. }) = waited else {
        panic!("a plain call has acquired a marked lock");
    };
    assert_eq!(holder.as_deref(), Some("ours"));
}

async fn done_needs_a_lock_with_once(fixture: Fixture) {
    let lock = fixture.provider.lock("plain");
    let refused = lock.acquire().await.unwrap().done().await;
    assert_eq!(refused_option(refused), "once");
    assert_released(&lock).await;
}

async fn done_on_a_lost_lock_is_lost(fixture: Fixture) {
    let lock = fixture.provider.lock("lost").once();
    let guard = lock.acquire().await.unwrap();
    assert!(fixture.rival().admin().force_release("lost").await.unwrap());
    let next = fixture.rival().lock("lost").once().acquire().await.unwrap();
    assert_lost(guard.done().await, LossReason::Gone);
    next.done().await.unwrap();
    assert_done_by(lock.acquire().await, "rival");
}

async fn a_joined_call_writes_no_mark(fixture: Fixture) {
    let outer = fixture.provider.lock("joined");
    let inner = outer.clone().once();
    outer.run(async |_| succeed(&inner).await).await.unwrap();
    assert_eq!(fixture.info("joined").await.state, LockState::Released);
}

async fn a_shutdown_keeps_marks(fixture: Fixture) {
    let ours = fixture.process("ours");
    succeed(&ours.lock("done").once()).await.unwrap();
    let guard = ours.lock("running").once().await.unwrap();
    ours.shutdown().await;
    assert_lost(guard.done().await, LossReason::ShutDown);
    assert_eq!(fixture.info("done").await.state, LockState::Done);
    succeed(&fixture.provider.lock("running").once()).await.unwrap();
}

/// Once polled, the work counts as done: also if the caller goes away, and the provider is shut down at once.
async fn a_dropped_done_writes_the_mark(fixture: Fixture) {
    let ours = fixture.process("ours");
    let guard = ours.lock("dropped").once().await.unwrap();
    // The first poll sends the request.
    let _ = timeout(Duration::ZERO, guard.done()).await;
    ours.shutdown().await;
    assert_done_by(fixture.provider.lock("dropped").once().acquire().await, "ours");
}

async fn a_providers_minimum_hold_does_not_apply(fixture: Fixture) {
    let provider = fixture.with(|options| options.min_hold(Duration::from_secs(60)));
    let lock = provider.lock("held").once_per(LONG);
    fail(&lock).await;
    timeout(BEFORE_EXPIRY, succeed(&lock)).await.unwrap().unwrap();
}

async fn the_options_are_checked(fixture: Fixture) {
    let lock = || fixture.provider.lock("checked");
    let second = Duration::from_secs(1);
    let forgetful = fixture.with(|options| options.retention(second * 3599));
    let forgetful = forgetful.lock("checked");
    for (lock, option) in [
        (lock().once_per(second / 2), "once_per"),
        (lock().once_per(DAY * 367), "once_per"),
        (lock().once().min_hold(second), "min_hold"),
        (lock().min_hold(second).once(), "min_hold"),
        (forgetful.clone().once(), "retention"),
    ] {
        assert_eq!(refused_option(lock.acquire().await), option);
    }
    succeed(&forgetful.once_per(LONG)).await.unwrap();
}

/// Its claim belongs to the period in which it was acquired. A request that is sent while others wait reserves tokens for
/// hand-overs, so that only the rule of such locks prevents one.
async fn the_hold_of_a_failed_run_is_not_handed_over(fixture: Fixture) {
    let blocker = fixture.rival().lock("failing").once_per(LONG).await.unwrap();
    let lock = fixture.provider.lock("failing").once_per(LONG);
    let first = tokio::spawn(lock.acquire());
    sleep(Duration::from_millis(50)).await;
    let second = tokio::spawn(lock.acquire());
    sleep(Duration::from_millis(50)).await;
    blocker.release().await.unwrap();
    let first = timeout(BEFORE_EXPIRY, first).await.unwrap().unwrap().unwrap();
    let token = first.fencing_token().get();
    first.release().await.unwrap();
    let second = timeout(BEFORE_EXPIRY, second).await.unwrap().unwrap().unwrap();
    let next = second.fencing_token().get();
    assert!(next > token + 1, "the hold was handed over");
    second.done().await.unwrap();
}

/// 2026-03-01 03:00:00 UTC.
fn tick() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_334_000)
}

async fn a_tick_is_a_part_of_the_name(fixture: Fixture) {
    let lock = |tick: SystemTime| fixture.provider.lock("nightly").once_at(tick);
    assert_eq!(lock(tick()).name(), "nightly@2026-03-01T03:00:00Z");
    succeed(&lock(tick())).await.unwrap();
    assert!(matches!(
        succeed(&lock(tick())).await,
        Err(LockError::Done { .. })
    ));
    fail(&lock(tick() + DAY)).await;
    succeed(&lock(tick() + DAY)).await.unwrap();
    let longest = "n".repeat(1024 - "@2026-03-01T03:00:00Z".len());
    succeed(&fixture.provider.lock(&longest).once_at(tick()))
        .await
        .unwrap();
    let longer = fixture.provider.lock(longest + "n").once_at(tick());
    assert!(matches!(
        succeed(&longer).await,
        Err(LockError::InvalidName { .. })
    ));
}

async fn a_time_with_a_part_of_a_second_is_no_tick(fixture: Fixture) {
    let wrong = [
        tick() + Duration::from_nanos(1),
        tick() + Duration::from_millis(500),
        SystemTime::UNIX_EPOCH - Duration::from_secs(1),
        SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_800),
    ];
    for time in wrong {
        let refused = fixture.provider.lock("nightly").once_at(time).acquire().await;
        assert_eq!(refused_option(refused.map(drop)), "once_at", "{time:?}");
    }
}
