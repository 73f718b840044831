//! The health of a provider whose servers do not reply. An address at which nothing listens: `unreachable`; missing rights:
//! `access`.

use std::time::Duration;

use futures_util::future::join_all;
use mongolock::LockProvider;
use mongolock_tests::{AMPLE, Fault, Server, ServerOptions, eventually, must, until};
use tokio::time::{Instant, sleep};

use crate::{Standalone, connect};

/// The limit of a health check is 2 s. A check without a limit would take the driver's 30 s.
const BOUND: Duration = Duration::from_secs(15);

async fn until_ready(provider: &LockProvider) {
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

/// The primary is silent and still counts as one to the driver, so another member has to be asked; the set elects another
/// primary only after several checks. Then that one is killed: the third member is alone. It replies to a direct connection,
/// and takes no write.
#[tokio::test]
async fn a_set_without_a_primary_is_reachable() {
    let options = ServerOptions::three_members().election_timeout(Duration::from_secs(10));
    let server = must(Server::start(options).await);
    let provider = LockProvider::connect(server.uri()).await.unwrap();
    until_ready(&provider).await;
    assert!(provider.health().await.has_primary);
    let silent = must(server.primary().await);
    must(silent.stop());
    let has_none = async || {
        let begun = Instant::now();
        let health = provider.health().await;
        assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
        assert!(health.is_reachable, "{health:?}");
        (!health.has_primary).then_some(())
    };
    must(eventually(AMPLE, "a silent primary", has_none).await);
    until("election", async || provider.health().await.has_primary).await;

    let other = || async { server.secondaries().await.first().copied() };
    let secondary = must(eventually(AMPLE, "a secondary", other).await);
    let primary = must(server.primary().await);
    must(primary.kill().await);
    let says_so = async || {
        let health = provider.health().await;
        let lock = provider.lock("free").acquire_timeout(Duration::from_secs(1));
        let text = lock.acquire().await.unwrap_err().to_string();
        let down = format!("{} (Connection refused)", primary.address());
        let up = format!("{} (RsSecondary)", secondary.address());
        let told = text.starts_with("MongoDB has no primary: ") && text.contains(&down) && text.contains(&up);
        (told && health.is_reachable && !health.has_primary).then_some(())
    };
    must(eventually(AMPLE, "a set without a primary", says_so).await);
    assert!(!provider.is_ready().await);
    let direct = format!("mongodb://{}/?directConnection=true", secondary.address());
    let direct = LockProvider::new(&connect(&direct, "app").await);
    until("a refused write", async || {
        let lock = direct.lock("free").acquire_timeout(Duration::from_secs(1));
        let text = lock.acquire().await.unwrap_err().to_string();
        text.contains("NotWritablePrimary")
    })
    .await;
    must(primary.restart().await);
    until_ready(&provider).await;
    assert!(provider.health().await.has_primary);
    must(silent.resume());
}
