//! What a provider says about itself: `health`, `is_ready` and `held`. Servers that do not reply: `faults/health.rs`.

use std::time::Duration;

use mongolock::{Health, LockProvider, WakeUp};
use mongolock_tests::{AMPLE, eventually, must, names, until};

use crate::conformance::conformance;
use crate::fixture::{Fixture, acquire_and_release, renewing};

conformance!(
    the_locks_of_this_process_are_listed_and_counted,
    the_smallest_remaining_lease_and_the_last_renewal_are_told,
    a_provider_that_shuts_down_is_not_ready,
);

/// Waits until the health of the provider is as expected.
async fn until_told(provider: &LockProvider, what: &str, expected: impl Fn(&Health) -> bool) {
    until(what, async || expected(&provider.health().await)).await;
}

async fn the_locks_of_this_process_are_listed_and_counted(fixture: Fixture) {
    let (ours, theirs) = (&fixture.provider, fixture.rival());
    let second = ours.lock("b").await.unwrap();
    let first = ours.lock("a").await.unwrap();
    let _theirs = theirs.lock("c").await.unwrap();
    let health = ours.health().await;
    assert!(health.is_reachable && health.has_primary && health.error.is_none());
    assert_eq!((health.held, health.waiting), (2, 0));
    assert!(!health.is_shut_down);

    let held = ours.held();
    let listed = held.iter().map(|lock| (lock.name.as_str(), lock.fencing_token));
    let tokens = [("a", first.fencing_token()), ("b", second.fencing_token())];
    assert!(listed.eq(tokens), "{held:?}");
    assert!(held[0].held_for <= held[1].held_for);
    assert!(held[0].remaining > Duration::from_secs(15) && held[0].remaining <= Duration::from_secs(30));

    let waiters = ["c", "c", "a"].map(|name| tokio::spawn(ours.lock(name).acquire()));
    until_told(ours, "three waiting calls", |health| health.waiting == 3).await;
    for waiter in waiters {
        waiter.abort();
        waiter.await.unwrap_err();
    }
    first.release().await.unwrap();
    let health = ours.health().await;
    assert_eq!((health.held, health.waiting), (1, 0));
    drop(second);
    assert!(ours.held().is_empty());
}

async fn the_smallest_remaining_lease_and_the_last_renewal_are_told(fixture: Fixture) {
    let expiry = Duration::from_secs(6);
    let provider = &renewing(&fixture.provider, expiry / 20);
    let health = provider.health().await;
    assert_eq!((health.smallest_remaining, health.last_renewal), (None, None));
    let _long = provider.lock("long").await.unwrap();
    let short = provider.lock("short").expiry(expiry).acquire().await.unwrap();
    let remaining = provider.health().await.smallest_remaining.unwrap();
    assert!(remaining <= expiry, "{remaining:?}");
    until_told(provider, "a renewal", |health| health.last_renewal.is_some()).await;
    let renewed = provider.health().await.last_renewal.unwrap();
    assert!(renewed < AMPLE, "{renewed:?}");
    short.release().await.unwrap();
    let remaining = provider.health().await.smallest_remaining.unwrap();
    assert!(remaining > expiry, "{remaining:?}");
}

async fn a_provider_that_shuts_down_is_not_ready(fixture: Fixture) {
    let provider = &fixture.provider;
    assert!(provider.is_ready().await);
    let guard = provider.lock("held").await.unwrap();
    let checks = async {
        until_told(provider, "begin of the shutdown", |health| health.is_shut_down).await;
        assert!(!provider.is_ready().await, "during the grace period");
        guard.release().await.unwrap();
    };
    tokio::join!(provider.shutdown_after(AMPLE), checks);
    assert!(!provider.is_ready().await);
    let health = provider.health().await;
    assert!(health.is_shut_down && health.held == 0);
    assert_eq!(health.wake_up, WakeUp::Idle);
}

/// A check sends no command while writes are confirmed, and one `hello` otherwise.
#[tokio::test]
async fn a_provider_in_use_is_ready_without_a_command() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(|builder| builder).await;
    assert!(provider.is_ready().await);
    assert_eq!(names(&commands.all()), ["hello"]);
    acquire_and_release(&provider.lock("used")).await;
    commands.clear();
    assert!(provider.is_ready().await);
    assert_eq!(commands.count("hello"), 0);

    let brief = provider.to_builder().renew_interval(Duration::from_millis(1));
    let provider = brief.build().unwrap();
    acquire_and_release(&provider.lock("used")).await;
    let asks = async || {
        assert!(provider.is_ready().await);
        (commands.count("hello") > 0).then_some(())
    };
    must(eventually(AMPLE, "`hello` after the renewal interval", asks).await);
}
