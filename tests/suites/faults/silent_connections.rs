//! Connections that stop carrying messages without being closed, after the server has executed a command or before it
//! has received it, as after a router has dropped its state or a machine has lost power. All other connections work.

use std::time::Duration;

use mongolock::{LockError, LockGuard, LockProvider};
use mongolock_tests::{AMPLE, Fault, Injected, Proxy, TestDb, eventually, must, test_db};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::{DEFAULT_EXPIRY, LONG_EXPIRY, acquire_soon, through_proxy, warm_up, with_expiry};

/// The time within which an acquire request on another connection must have replaced a silent one: 6 s, which is one
/// repetition after 2 s and 4 s for a slow machine.
const ONE_REPEAT: Duration = Duration::from_secs(6);

/// The time within which a claim that a silent connection has left behind must be released: far less than the lease of
/// 60 s.
const FREED: Duration = Duration::from_secs(15);

struct Setting {
    provider: LockProvider,
    /// Another process, with connections that work.
    rival: LockProvider,
    proxy: Proxy,
    /// The database ends when this value is dropped, so it is the last field.
    _db: TestDb,
}

impl Setting {
    /// A provider whose connections go through a proxy and are in use already.
    async fn new(expiry: Duration) -> Self {
        let db = test_db().await;
        let (proxy, database) = through_proxy(&db).await;
        let provider = with_expiry(&database, expiry);
        warm_up(&provider).await;
        Self {
            provider,
            rival: LockProvider::new(db.database()),
            proxy,
            _db: db,
        }
    }

    fn swallow_reply(&self, command: &str, times: u32) -> Injected {
        let fault = Fault::swallow_reply().command(command);
        self.proxy.inject(fault.times(times))
    }

    fn swallow_request(&self, command: &str, times: u32) -> Injected {
        let fault = Fault::swallow_request().command(command);
        self.proxy.inject(fault.times(times))
    }

    async fn acquire(&self, name: &str, limit: Duration) -> Result<LockGuard, LockError> {
        self.provider.lock(name).acquire_timeout(limit).acquire().await
    }
}

/// Asserts that the lock becomes free for this provider within `limit`.
async fn free_within(limit: Duration, provider: &LockProvider, name: &str) {
    let lock = provider.lock(name).acquire_timeout(AMPLE);
    let acquired = timeout(limit, lock.acquire()).await;
    let guard = acquired
        .expect("the claim of the silent request is released")
        .unwrap();
    guard.release().await.unwrap();
}

/// B3: the lock was free all the time, so a reply that never comes costs one repetition and not the whole wait.
#[tokio::test]
async fn a_swallowed_reply_costs_one_repetition() {
    let it = Setting::new(DEFAULT_EXPIRY).await;
    let swallowed = it.swallow_reply("findAndModify", 1);
    let begun = Instant::now();
    let guard = it.acquire("silent", Duration::from_secs(10)).await.unwrap();
    assert!(begun.elapsed() < ONE_REPEAT, "{:?}", begun.elapsed());
    assert_eq!(swallowed.hits(), 1);
    guard.release().await.unwrap();
    free_within(FREED, &it.rival, "silent").await;
}

/// B3: the same with two replies in a row.
#[tokio::test]
async fn two_swallowed_replies_do_not_fail_the_wait() {
    let it = Setting::new(DEFAULT_EXPIRY).await;
    let swallowed = it.swallow_reply("findAndModify", 2);
    let guard = it.acquire("silent", Duration::from_secs(10)).await.unwrap();
    assert_eq!(swallowed.hits(), 2);
    guard.release().await.unwrap();
    free_within(FREED, &it.rival, "silent").await;
}

/// B3: the same with a request that never arrives.
#[tokio::test]
async fn a_swallowed_request_costs_one_repetition() {
    let it = Setting::new(DEFAULT_EXPIRY).await;
    let swallowed = it.proxy.inject(Fault::swallow_request().command("findAndModify"));
    let begun = Instant::now();
    let guard = it.acquire("silent", Duration::from_secs(10)).await.unwrap();
    assert!(begun.elapsed() < ONE_REPEAT, "{:?}", begun.elapsed());
    assert_eq!(swallowed.hits(), 1);
    guard.release().await.unwrap();
}

/// B3: the same with three requests in a row, which is the most that one name may have without a reply. The first of them
/// is given up after 7 s, and a fourth one is sent. If it were kept for 20 s, this wait would end with an error.
#[tokio::test]
async fn three_swallowed_requests_do_not_fail_the_wait() {
    let it = Setting::new(DEFAULT_EXPIRY).await;
    let swallowed = it.swallow_request("findAndModify", 3);
    let guard = it.acquire("silent", Duration::from_secs(15)).await.unwrap();
    assert_eq!(swallowed.hits(), 3);
    guard.release().await.unwrap();
}

/// B3: five requests at the same time are without a reply, until they are given up after 7 s. Copies of them are answered
/// before that. The server works, so a request for another name is sent at once and does not wait 2.7 s for their end.
#[tokio::test]
async fn requests_without_a_reply_do_not_stop_other_names() {
    let it = Setting::new(DEFAULT_EXPIRY).await;
    let swallowed = it.swallow_request("findAndModify", 5);
    let mut callers = JoinSet::new();
    for number in 0..5 {
        let lock = it.provider.lock(format!("silent:{number}"));
        callers.spawn(async move { lock.acquire().await });
    }
    let begun = Instant::now();
    let guards = callers.join_all().await;
    assert!(begun.elapsed() < ONE_REPEAT, "{:?}", begun.elapsed());
    assert_eq!(swallowed.hits(), 5);
    for guard in guards {
        guard.unwrap().release().await.unwrap();
    }
    // For 2 s after a reply the server counts as working.
    sleep(Duration::from_millis(2200)).await;
    free_within(Duration::from_secs(2), &it.provider, "sixth").await;
}

/// B3: a single try repeats a request without a reply as well, within its limit.
#[tokio::test]
async fn a_try_repeats_a_request_without_a_reply() {
    let it = Setting::new(DEFAULT_EXPIRY).await;
    let swallowed = it.swallow_reply("findAndModify", 1);
    let lock = it
        .provider
        .lock("silent")
        .acquire_timeout(Duration::from_secs(10));
    let begun = Instant::now();
    let guard = lock.try_acquire().await.unwrap().expect("the lock is free");
    assert!(begun.elapsed() < ONE_REPEAT, "{:?}", begun.elapsed());
    assert_eq!(swallowed.hits(), 1);
    guard.release().await.unwrap();
}

/// B2, B13: the wait is too short for a repetition. It ends with an error in time, and its claim is released long
/// before the lease of 60 s ends.
#[tokio::test]
async fn a_claim_that_was_given_up_is_released() {
    let it = Setting::new(LONG_EXPIRY).await;
    let swallowed = it.swallow_reply("findAndModify", 1);
    let begun = Instant::now();
    let error = it.acquire("silent", Duration::from_secs(2)).await.unwrap_err();
    assert!(matches!(error, LockError::Mongo(_)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(swallowed.hits(), 1);
    free_within(FREED, &it.rival, "silent").await;
}

/// B3: the next acquire of the same provider does not wait for the claim that was given up.
#[tokio::test]
async fn a_claim_that_was_given_up_delays_no_acquire_of_its_provider() {
    let it = Setting::new(LONG_EXPIRY).await;
    let swallowed = it.swallow_reply("findAndModify", 1);
    let error = it.acquire("silent", Duration::from_secs(2)).await.unwrap_err();
    assert!(matches!(error, LockError::Mongo(_)), "{error}");
    assert_eq!(swallowed.hits(), 1);
    free_within(Duration::from_secs(5), &it.provider, "silent").await;
}

/// B3: the same when the release of that claim is swallowed as well, in the background and by the next acquire. The lease
/// of 120 s does not end within the wait.
#[tokio::test]
async fn a_claim_that_was_given_up_is_released_although_releases_are_swallowed() {
    let it = Setting::new(LONG_EXPIRY * 2).await;
    let claim = it.swallow_reply("findAndModify", 1);
    let releases = it.swallow_request("update", 2);
    let error = it.acquire("silent", Duration::from_secs(2)).await.unwrap_err();
    assert!(matches!(error, LockError::Mongo(_)), "{error}");
    let begun = Instant::now();
    let guard = it.acquire("silent", Duration::from_secs(40)).await.unwrap();
    assert!(begun.elapsed() < FREED, "{:?}", begun.elapsed());
    assert_eq!((claim.hits(), releases.hits()), (1, 2));
    guard.release().await.unwrap();
}

/// A shutdown waits for a request without a reply until it is given up, 7 s after it was sent, and not for its own limit
/// of 15 s: a copy of the request was answered, and the hold was released.
#[tokio::test]
async fn a_request_without_a_reply_delays_a_shutdown_for_seconds_only() {
    async fn shut_down_after(fault: Fault) {
        let it = Setting::new(DEFAULT_EXPIRY).await;
        let swallowed = it.proxy.inject(fault.command("findAndModify"));
        acquire_soon(&it.provider, "silent")
            .await
            .release()
            .await
            .unwrap();
        assert_eq!(swallowed.hits(), 1);
        let begun = Instant::now();
        it.provider.shutdown().await;
        assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    }
    tokio::join!(
        shut_down_after(Fault::swallow_reply()),
        shut_down_after(Fault::swallow_request())
    );
}

/// B9: the reply of one renewal never comes. The expiry leaves time for another renewal.
#[tokio::test]
async fn a_swallowed_reply_of_a_renewal_loses_no_lock() {
    let it = Setting::new(Duration::from_secs(6)).await;
    let guard = acquire_soon(&it.provider, "kept").await;
    must(it.swallow_reply("update", 1).happened(AMPLE).await);
    // Longer than the lease that the server granted with the swallowed reply.
    sleep(Duration::from_secs(7)).await;
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
}

/// B9: the same when the silent connection has not delivered the renewal.
#[tokio::test]
async fn a_swallowed_renewal_loses_no_lock() {
    let it = Setting::new(Duration::from_secs(6)).await;
    let guard = acquire_soon(&it.provider, "kept").await;
    let swallowed = it.proxy.inject(Fault::swallow_request().command("update"));
    must(swallowed.happened(AMPLE).await);
    sleep(Duration::from_secs(7)).await;
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
}

/// A release whose request or reply is swallowed is repeated: the lock is free for this process and for others, long
/// before the lease of 60 s ends.
#[tokio::test]
async fn a_swallowed_release_is_repeated() {
    for (name, fault) in [
        ("reply", Fault::swallow_reply()),
        ("request", Fault::swallow_request()),
    ] {
        let it = Setting::new(LONG_EXPIRY).await;
        let guard = acquire_soon(&it.provider, name).await;
        let swallowed = it.proxy.inject(fault.command("update"));
        drop(guard);
        must(swallowed.happened(AMPLE).await);
        let begun = Instant::now();
        free_within(FREED, &it.provider, name).await;
        let left = FREED.saturating_sub(begun.elapsed());
        free_within(left, &it.rival, name).await;
    }
}

/// Three connections have swallowed a release each, and then its repetition. The repetitions of other releases must
/// still be sent: of one that failed with an error, and of one whose connection fell silent.
#[tokio::test]
async fn dead_connections_do_not_delay_the_repetitions_of_releases() {
    let it = Setting::new(LONG_EXPIRY).await;
    let mut guards = Vec::new();
    for name in ["dead:0", "dead:1", "dead:2", "failed", "silent"] {
        guards.push(acquire_soon(&it.provider, name).await);
    }
    let (silent, failed) = (guards.pop(), guards.pop());
    // Released one after the other, so that each has a connection of its own.
    for guard in guards {
        let swallowed = it.proxy.inject(Fault::swallow_request().command("update"));
        drop(guard);
        must(swallowed.happened(AMPLE).await);
    }
    let repeats = Fault::swallow_request().command("findAndModify");
    let repeats = it.proxy.inject(repeats.times(3));
    // Where repetitions are plain updates, they are swallowed as well.
    let updates = Fault::swallow_request().command("update");
    let updates = it.proxy.inject(updates.times(3));
    let three = async || (repeats.hits() + updates.hits() >= 3).then_some(());
    // A library that limits its requests without a reply sends fewer of them.
    let _ = eventually(ONE_REPEAT * 2, "three repetitions without a reply", three).await;
    it.proxy.clear_faults();

    // The silent release comes first: it is repeated after some seconds, and the failed one at once.
    for (guard, fault) in [
        (silent, Fault::swallow_request()),
        (failed, Fault::drop_request()),
    ] {
        let hit = it.proxy.inject(fault.command("update"));
        drop(guard);
        must(hit.happened(AMPLE).await);
    }
    let begun = Instant::now();
    for name in ["failed", "silent"] {
        let left = FREED.saturating_sub(begun.elapsed());
        let free = async || it.rival.lock(name).try_acquire().await.unwrap();
        let what = format!("the release of `{name}` is repeated");
        let next = must(eventually(left, &what, free).await);
        next.release().await.unwrap();
    }
}
