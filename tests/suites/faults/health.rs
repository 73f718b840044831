//! The health of a provider whose servers do not reply. An address at which nothing listens: `unreachable`; missing rights:
//! `access`; a set without a primary: `elections`.

use std::time::Duration;

use futures_util::future::join_all;
use mongolock::LockProvider;
use mongolock_tests::{Fault, must, until};
use tokio::time::{Instant, sleep};

use crate::Standalone;

/// The limit of a health check is 2 s. A check without a limit would take the driver's 30 s.
pub(crate) const BOUND: Duration = Duration::from_secs(15);

pub(crate) async fn until_ready(provider: &LockProvider) {
    until("readiness", async || provider.is_ready().await).await;
}

/// One command has no reply, on connections that work for all others; checks at the same time, and later ones, share that
/// request. Then the server is stopped: its connections stay open and silent. The leases are told from this process's own
/// clock.
#[tokio::test]
async fn a_server_that_does_not_reply_is_not_reachable() {
    let standalone = Standalone::start().await;
    let builder = LockProvider::builder(&standalone.proxied).renew_interval(Duration::from_millis(200));
    let provider = builder.build().unwrap();
    // Each connection begins with a `hello`, so this one has to exist.
    until_ready(&provider).await;
    let fault = Fault::swallow_reply().command("hello");
    let swallowed = standalone.proxy.inject(fault.times(u32::MAX));
    let begun = Instant::now();
    for health in join_all([(); 3].map(|()| provider.health())).await {
        assert!(!health.is_reachable && !health.has_primary);
        let error = health.error.unwrap().to_string();
        assert!(error.contains("`hello`"), "{error}");
    }
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    assert!(swallowed.hits() >= 1);
    standalone.proxy.clear_faults();
    until_ready(&provider).await;

    let _guard = provider.lock("held").await.unwrap();
    until_ready(&provider).await;
    must(standalone.server.node().stop());
    // The last write may have been confirmed just before.
    sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    let health = provider.health().await;
    assert!(!provider.is_ready().await);
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    assert!(!health.is_reachable && !health.has_primary);
    assert_eq!(health.held, 1);
    must(standalone.server.node().resume());
    until_ready(&provider).await;
    assert!(provider.health().await.error.is_none());
}
