//! Calls that return before the server has confirmed their release: `await_release(false)`, `release = "background"`.

use std::time::Duration;

use mongolock::{DistributedLock, FencingToken, LockContext, LockError, LockProvider, distributed_lock};
use mongolock_tests::{FailPoint, FailPointGuard, TestDb, must};
use tokio::time::{Instant, sleep};

use crate::conformance::conformance;
use crate::fixture::{Fixture, assert_released};

conformance!(
    a_try_after_the_call_is_never_busy,
    the_lock_overrides_its_provider,
);

/// The time for which the server delays a release in these tests: longer than any call that does not wait for it, and shorter
/// than the limit of a release.
const DELAY: Duration = Duration::from_millis(1500);

fn unawaited(provider: &LockProvider, name: &str) -> DistributedLock {
    provider.lock(name).await_release(false)
}

/// A fault of the next commands for single claims, so many of them.
fn next(commands: u32) -> FailPoint {
    FailPoint::on(&["findAndModify"]).times(commands)
}

/// Runs a body under the lock that sets a fail point: it hits the release, and not the acquisition. Returns when the body ended.
async fn run_before(lock: &DistributedLock, db: &TestDb, point: FailPoint) -> (FailPointGuard, Instant) {
    let body = async |_| Ok::<_, LockError>((must(point.enable_for(db).await), Instant::now()));
    lock.run(body).await.unwrap()
}

/// A call that skips must not skip because of the release of the call before.
async fn a_try_after_the_call_is_never_busy(fixture: Fixture) {
    #[distributed_lock(name = "job", on_busy = "skip", release = "background", provider = provider)]
    async fn job(provider: &LockProvider, pause: Duration) -> Result<Option<FencingToken>, LockError> {
        sleep(pause).await;
        Ok(LockContext::current().map(|lock| lock.fencing_token()))
    }
    let lock = unawaited(&fixture.provider, "job");
    let mut last = None;
    for round in 0..100 {
        // It is 0 to 2 ms: with a pause the release of the call before is under way, and without one it may be unsent.
        let pause = Duration::from_micros((round * 7919) % 2000);
        let ran = job(&fixture.provider, pause).await.unwrap();
        assert!(ran.is_some(), "round {round} was skipped");
        assert!(ran > last, "round {round}: {ran:?} after {last:?}");
        last = ran;
        sleep(pause).await;
        let guard = lock.try_acquire().await.unwrap();
        let guard = guard.unwrap_or_else(|| panic!("round {round} was busy"));
        assert!(Some(guard.fencing_token()) > last);
        last = Some(guard.fencing_token());
        guard.release().await.unwrap();
    }
}

async fn the_lock_overrides_its_provider(fixture: Fixture) {
    let provider = fixture.with(|options| options.await_release(false));
    let run = async |lock: DistributedLock| lock.run(async |_| Ok::<_, LockError>(())).await.unwrap();
    run(provider.lock("n")).await;
    assert_released(&fixture.rival().lock("n")).await;
    for _ in 0..20 {
        run(provider.lock("n").await_release(true)).await;
        assert!(fixture.is_free("n").await, "the call has waited for the release");
    }
}

/// The call returns while the server has not replied to the release, and callers in this process wait for that reply.
#[tokio::test]
async fn the_call_does_not_wait_for_the_reply() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    let lock = unawaited(&fixture.provider, "slow").min_hold(Duration::from_millis(1));
    let (point, begun) = run_before(&lock, fixture.db(), next(1).block(DELAY)).await;
    assert!(begun.elapsed() < DELAY, "{:?}", begun.elapsed());
    let tried = lock.try_acquire().await.unwrap();
    let guard = tried.expect("a try waits for the release");
    assert!(begun.elapsed() >= DELAY);
    // A guard waits for its release, whatever the option says.
    must(point.clear().await);
    let _point = must(next(1).block(DELAY).enable_for(fixture.db()).await);
    let begun = Instant::now();
    guard.release().await.unwrap();
    assert!(begun.elapsed() >= DELAY);
}

/// A release without a reply is not "busy": MongoDB does not work.
#[tokio::test]
async fn a_release_without_a_reply_is_an_error_of_the_next_try() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    let lock = unawaited(&fixture.provider, "silent").min_hold(Duration::from_millis(1));
    // What was seen of a holder before says nothing.
    let before = fixture.rival().lock("silent").await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    before.release().await.unwrap();
    let (_point, _) = run_before(&lock, fixture.db(), next(2).block(DELAY * 2)).await;
    let limit = DELAY / 2;
    let tried = lock.clone().acquire_timeout(limit).try_acquire().await;
    assert!(matches!(tried, Err(LockError::Mongo(_))), "{tried:?}");
    let waited = lock.acquire_timeout(limit).acquire().await;
    assert!(matches!(waited, Err(LockError::Mongo(_))), "{waited:?}");
}
