//! Connections that stop carrying messages without being closed, after the server has executed a command or before it has
//! received it, as after a router has dropped its state. All other connections work. One silent message at each step: `steps`.

use std::time::Duration;

use futures_util::future::join_all;
use mongolock::LockError;
use mongolock_tests::{AMPLE, Fault, Purpose, eventually, must};
use tokio::time::{Instant, timeout};

use crate::{DEFAULT_EXPIRY, LONG_EXPIRY, Proxied, acquire_soon, assert_free};

/// The time within which a claim that a silent connection has left behind must be released: far less than the lease.
const FREED: Duration = Duration::from_secs(15);

/// B2, B3, B13: the wait is too short for a repetition. It ends with an error in time, and its claim is released long before
/// the lease of 120 s ends, although its first releases are swallowed as well. The next acquire of the same provider waits no
/// longer.
#[tokio::test]
async fn a_claim_that_was_given_up_is_released() {
    join_all(
        [(true, 0), (false, 0), (false, 2)].map(async |(is_rival, silent_releases)| {
            let it = Proxied::start(LONG_EXPIRY * 2).await;
            let claim = it.proxy.inject(Fault::swallow_reply().command(Purpose::Acquire));
            let silence = Fault::swallow_request().command(Purpose::Release);
            let silence = silence.times(silent_releases);
            let releases = (silent_releases > 0).then(|| it.proxy.inject(silence));
            let begun = Instant::now();
            let lock = it.provider.lock("silent").acquire_timeout(Duration::from_secs(2));
            let error = lock.acquire().await.unwrap_err();
            assert!(matches!(error, LockError::Mongo(_)), "{error}");
            assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
            let next = if is_rival { it.rival() } else { it.provider.clone() };
            let freed = timeout(FREED, assert_free(&next, "silent")).await;
            freed.expect("it is released");
            let silent = releases.map_or(0, |releases| releases.hits());
            assert_eq!((claim.hits(), silent), (1, silent_releases));
        }),
    )
    .await;
}

/// A shutdown waits for a request without a reply until it is given up, 7 s after it was sent, and not for its own limit
/// of 15 s: a copy of the request was answered, and the hold was released.
#[tokio::test]
async fn a_request_without_a_reply_delays_a_shutdown_for_seconds_only() {
    let it = Proxied::start(DEFAULT_EXPIRY).await;
    let fault = Fault::swallow_request().command(Purpose::Acquire);
    let swallowed = it.proxy.inject(fault);
    assert_free(&it.provider, "silent").await;
    assert_eq!(swallowed.hits(), 1);
    let begun = Instant::now();
    it.provider.shutdown().await;
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
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
    let release_under = async |guard, fault: Fault| {
        let hit = it.proxy.inject(fault.command(Purpose::Release));
        drop(guard);
        must(hit.happened(AMPLE).await);
    };
    // Released one after the other, so that each has a connection of its own.
    for guard in guards {
        release_under(Some(guard), Fault::swallow_request()).await;
    }
    let repeats = Fault::swallow_request().command(Purpose::Release).times(3);
    must(it.proxy.inject(repeats).happened(AMPLE).await);
    // The silent release comes first: it is repeated after some seconds, and the failed one at once.
    release_under(silent, Fault::swallow_request()).await;
    release_under(failed, Fault::drop_request()).await;
    let begun = Instant::now();
    for name in ["failed", "silent"] {
        let left = FREED.saturating_sub(begun.elapsed());
        let free = async || it.rival().lock(name).try_acquire().await.unwrap();
        let what = format!("the release of `{name}` is repeated");
        let next = must(eventually(left, &what, free).await);
        next.release().await.unwrap();
    }
}
