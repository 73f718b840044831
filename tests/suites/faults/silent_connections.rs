//! Connections that stop carrying messages without being closed, after the server has executed a command or before it
//! has received it, as after a router has dropped its state or a machine has lost power. All other connections work.

use std::time::Duration;

use futures_util::future::join_all;
use mongolock::{LockError, LockGuard, LockProvider};
use mongolock_tests::{AMPLE, Fault, Injected, Purpose, eventually, must};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::act::Act;
use crate::{DEFAULT_EXPIRY, LONG_EXPIRY, Proxied, acquire_soon, assert_free, until_none_is_held};

/// The time within which an acquire request on another connection must have replaced a silent one: 6 s, which is one
/// repetition after 2 s and 4 s for a slow machine.
const ONE_REPEAT: Duration = Duration::from_secs(6);

/// The time within which a claim that a silent connection has left behind must be released: far less than the lease of
/// 60 s.
const FREED: Duration = Duration::from_secs(15);

impl Proxied {
    fn swallow_reply(&self, purpose: Purpose, times: u32) -> Injected {
        let fault = Fault::swallow_reply().command(purpose);
        self.proxy.inject(fault.times(times))
    }

    fn swallow_request(&self, purpose: Purpose, times: u32) -> Injected {
        let fault = Fault::swallow_request().command(purpose);
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

/// B3: what was free all the time is acquired. One message that is swallowed costs one repetition and not the whole wait. Three
/// requests are the most that one name may have without a reply: the first of them is given up after 7 s, and a fourth one is
/// sent. If it were kept for 20 s, this wait would end with an error.
#[tokio::test]
async fn swallowed_messages_do_not_fail_a_wait() {
    let cases = [
        (Act::Lock, Fault::swallow_reply(), 1, 10),
        (Act::Set, Fault::swallow_reply(), 1, 10),
        (Act::Permit(3), Fault::swallow_reply(), 1, 10),
        (Act::Lock, Fault::swallow_request(), 1, 10),
        (Act::Lock, Fault::swallow_reply(), 2, 10),
        (Act::Lock, Fault::swallow_request(), 3, 15),
    ];
    join_all(cases.map(|(act, fault, times, limit)| async move {
        let it = Proxied::start(DEFAULT_EXPIRY).await;
        let swallowed = it.proxy.inject(fault.command(Purpose::Acquire).times(times));
        let builder = it.provider.to_builder();
        let provider = builder.acquire_timeout(Duration::from_secs(limit)).build();
        let begun = Instant::now();
        let held = act.acquire(&provider.unwrap(), "silent").await.unwrap();
        let took = begun.elapsed();
        assert!(times > 1 || took < ONE_REPEAT, "{act:?}: {took:?}");
        assert_eq!(swallowed.hits(), times, "{act:?}");
        held.release().await.unwrap();
        until_none_is_held(it.db.database(), FREED).await;
    }))
    .await;
}

/// B3: five requests at the same time are without a reply, until they are given up after 7 s. Copies of them are answered
/// before that. The server works, so a request for another name is sent at once and does not wait 2.7 s for their end.
#[tokio::test]
async fn requests_without_a_reply_do_not_stop_other_names() {
    let it = Proxied::start(DEFAULT_EXPIRY).await;
    let swallowed = it.swallow_request(Purpose::Acquire, 5);
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
    let it = Proxied::start(DEFAULT_EXPIRY).await;
    let swallowed = it.swallow_reply(Purpose::Acquire, 1);
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

/// B2, B13: the wait is too short for a repetition. It ends with an error in time, and its claim is released long before the
/// lease of 60 s ends. B3: the next acquire of the same provider does not even wait for that.
#[tokio::test]
async fn a_claim_that_was_given_up_is_released() {
    for (is_rival, limit) in [(true, FREED), (false, Duration::from_secs(5))] {
        let it = Proxied::start(LONG_EXPIRY).await;
        let swallowed = it.swallow_reply(Purpose::Acquire, 1);
        let begun = Instant::now();
        let error = it.acquire("silent", Duration::from_secs(2)).await.unwrap_err();
        assert!(matches!(error, LockError::Mongo(_)), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        assert_eq!(swallowed.hits(), 1);
        let next = if is_rival { it.rival() } else { it.provider };
        free_within(limit, &next, "silent").await;
    }
}

/// B3: the same when the release of that claim is swallowed as well, in the background and by the next acquire. The lease
/// of 120 s does not end within the wait.
#[tokio::test]
async fn a_claim_that_was_given_up_is_released_although_releases_are_swallowed() {
    let it = Proxied::start(LONG_EXPIRY * 2).await;
    let claim = it.swallow_reply(Purpose::Acquire, 1);
    let releases = it.swallow_request(Purpose::Release, 2);
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
        let it = Proxied::start(DEFAULT_EXPIRY).await;
        let swallowed = it.proxy.inject(fault.command(Purpose::Acquire));
        assert_free(&it.provider, "silent").await;
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

/// B9: one renewal or its reply never arrives. The expiry leaves time for another renewal.
#[tokio::test]
async fn a_swallowed_renewal_loses_no_lock() {
    join_all(
        [Fault::swallow_reply(), Fault::swallow_request()].map(|fault| async move {
            let it = Proxied::start(Duration::from_secs(6)).await;
            let guard = acquire_soon(&it.provider, "kept").await;
            let swallowed = it.proxy.inject(fault.command(Purpose::Renew));
            must(swallowed.happened(AMPLE).await);
            // Longer than the lease that the server granted with the swallowed reply.
            sleep(Duration::from_secs(7)).await;
            assert!(!guard.is_lost());
            guard.release().await.unwrap();
        }),
    )
    .await;
}

/// A release whose request or reply is swallowed is repeated: the lock is free for this process and for others, long
/// before the lease of 60 s ends.
#[tokio::test]
async fn a_swallowed_release_is_repeated() {
    for (name, fault) in [
        ("reply", Fault::swallow_reply()),
        ("request", Fault::swallow_request()),
    ] {
        let it = Proxied::start(LONG_EXPIRY).await;
        let guard = acquire_soon(&it.provider, name).await;
        let swallowed = it.proxy.inject(fault.command(Purpose::Release));
        drop(guard);
        must(swallowed.happened(AMPLE).await);
        let begun = Instant::now();
        free_within(FREED, &it.provider, name).await;
        let left = FREED.saturating_sub(begun.elapsed());
        free_within(left, &it.rival(), name).await;
    }
}

/// Three connections have swallowed a release each, and then its repetition. The repetitions of other releases must
/// still be sent: of one that failed with an error, and of one whose connection fell silent.
#[tokio::test]
async fn dead_connections_do_not_delay_the_repetitions_of_releases() {
    let it = Proxied::start(LONG_EXPIRY).await;
    let mut guards = Vec::new();
    for name in ["dead:0", "dead:1", "dead:2", "failed", "silent"] {
        guards.push(acquire_soon(&it.provider, name).await);
    }
    let (silent, failed) = (guards.pop(), guards.pop());
    // Released one after the other, so that each has a connection of its own.
    for guard in guards {
        let swallowed = it
            .proxy
            .inject(Fault::swallow_request().command(Purpose::Release));
        drop(guard);
        must(swallowed.happened(AMPLE).await);
    }
    let repeats = Fault::swallow_request().command(Purpose::Release).times(3);
    must(it.proxy.inject(repeats).happened(AMPLE).await);

    // The silent release comes first: it is repeated after some seconds, and the failed one at once.
    for (guard, fault) in [
        (silent, Fault::swallow_request()),
        (failed, Fault::drop_request()),
    ] {
        let hit = it.proxy.inject(fault.command(Purpose::Release));
        drop(guard);
        must(hit.happened(AMPLE).await);
    }
    let begun = Instant::now();
    for name in ["failed", "silent"] {
        let left = FREED.saturating_sub(begun.elapsed());
        let free = async || it.rival().lock(name).try_acquire().await.unwrap();
        let what = format!("the release of `{name}` is repeated");
        let next = must(eventually(left, &what, free).await);
        next.release().await.unwrap();
    }
}
