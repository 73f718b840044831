//! The health of a provider whose servers do not reply.

use std::time::Duration;

use mongodb::Database;
use mongodb::bson::doc;
use mongolock::{Health, LockProvider};
use mongolock_tests::{AMPLE, Fault, LentServer, Server, ServerOptions, eventually, must};
use tokio::time::Instant;

use crate::{Standalone, closed_address, connect};

/// The limit of a health check is 2 s. A check without a limit would take the driver's 30 s.
const BOUND: Duration = Duration::from_secs(15);

async fn unreachable(provider: &LockProvider) -> Health {
    let begun = Instant::now();
    let health = provider.health().await;
    assert!(!provider.is_ready().await);
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    assert!(!health.is_reachable && !health.has_primary);
    health
}

/// A provider that renews its leases often.
fn often(database: &Database) -> LockProvider {
    let builder = LockProvider::builder(database).renew_interval(Duration::from_millis(200));
    builder.build().unwrap()
}

async fn until_ready(provider: &LockProvider) {
    let ready = async || provider.is_ready().await.then_some(());
    eventually(AMPLE, "readiness", ready).await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named() {
    let address = closed_address();
    let provider = LockProvider::connect(format!("mongodb://{address}/app"))
        .await
        .unwrap();
    let error = unreachable(&provider).await.error.unwrap().to_string();
    assert!(error.contains(&address.to_string()), "{error}");
    let own_client = connect(&format!("mongodb://{address}/"), "app").await;
    let error = unreachable(&LockProvider::new(&own_client)).await.error.unwrap();
    assert!(error.to_string().contains("`hello`"), "{error}");
}

/// The connections stay open and silent. The leases are told from this process's own clock.
#[tokio::test]
async fn a_server_that_has_stopped_is_not_reachable() {
    let standalone = Standalone::start().await;
    let provider = often(&standalone.proxied);
    let _guard = provider.lock("held").await.unwrap();
    until_ready(&provider).await;
    standalone.server.node().stop().unwrap();
    // The last write may have been confirmed just before.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let health = unreachable(&provider).await;
    assert_eq!(health.held, 1);
    standalone.server.node().resume().unwrap();
    until_ready(&provider).await;
    assert!(provider.health().await.error.is_none());
}

/// The connections work for all other commands. Checks at the same time, and later ones, share the request without a reply.
#[tokio::test]
async fn a_swallowed_reply_ends_a_check_in_time() {
    let standalone = Standalone::start().await;
    let provider = LockProvider::new(&standalone.proxied);
    // Each connection begins with a `hello`, so this one has to exist.
    until_ready(&provider).await;
    let fault = Fault::swallow_reply().command("hello");
    let swallowed = standalone.proxy.inject(fault.times(u32::MAX));
    let checks = [(); 3].map(|()| provider.health());
    let begun = Instant::now();
    for health in futures_util::future::join_all(checks).await {
        assert!(!health.is_reachable && !health.has_primary);
        let error = health.error.unwrap().to_string();
        assert!(error.contains("`hello`"), "{error}");
    }
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    assert!(swallowed.hits() >= 1);
    standalone.proxy.clear_faults();
    until_ready(&provider).await;
}

/// The primary is silent and still counts as one to the driver, so another member has to be asked. The set elects another
/// primary only after several checks.
#[tokio::test]
async fn a_set_whose_primary_is_silent_is_reachable() {
    let options = ServerOptions::three_members().election_timeout(Duration::from_secs(10));
    let server = Server::start(options).await.unwrap();
    let client = server.client().await.unwrap();
    let provider = LockProvider::new(&client.database("app"));
    until_ready(&provider).await;
    let primary = server.primary().await.unwrap();
    primary.stop().unwrap();
    let has_none = async || {
        let begun = Instant::now();
        let health = provider.health().await;
        assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
        assert!(health.is_reachable, "{health:?}");
        (!health.has_primary).then_some(())
    };
    eventually(AMPLE, "a silent primary", has_none).await.unwrap();
    let elected = async || provider.health().await.has_primary.then_some(());
    eventually(AMPLE, "election", elected).await.unwrap();
    primary.resume().unwrap();
}

/// A secondary replies while the set has no primary.
#[tokio::test]
async fn a_set_without_a_primary_is_reachable() {
    let server = Server::start(ServerOptions::three_members()).await.unwrap();
    let client = server.client().await.unwrap();
    let provider = often(&client.database("app"));
    assert!(provider.health().await.has_primary);
    let primary = server.primary().await.unwrap();
    let others = server.secondaries().await;
    // With one member left no primary can be elected.
    must(others[0].kill().await);
    must(primary.kill().await);
    let has_none = async || {
        let health = provider.health().await;
        (health.is_reachable && !health.has_primary).then_some(())
    };
    eventually(AMPLE, "a set without a primary", has_none)
        .await
        .unwrap();
    assert!(!provider.is_ready().await);
    must(primary.restart().await);
    until_ready(&provider).await;
    assert!(provider.health().await.has_primary);
}

/// The server replies to `hello`, and refuses every acquire and renewal.
#[tokio::test]
async fn a_user_without_rights_is_not_ready_until_it_has_them() {
    let server = must(LentServer::with_users().await);
    let app = server.client().await.unwrap().database("app");
    let run = async |command| must(app.run_command(command).await);
    run(doc! { "createUser": "anna", "pwd": "anna", "roles": [] }).await;
    let uri = server.uri().replace("root:secret@", "anna:anna@");
    let uri = uri.replace("authSource=admin", "authSource=app");
    let client = mongodb::Client::with_uri_str(&uri).await.unwrap();
    let provider = often(&client.database("app"));
    let is_refused = async || {
        assert!(!provider.is_ready().await);
        let health = provider.health().await;
        assert!(health.is_reachable && health.has_primary, "{health:?}");
        let error = health.error.expect("the refusal").to_string();
        assert_eq!(error, "MongoDB refused an operation (error 13, Unauthorized)");
    };
    let lock = provider.lock("refused").acquire_timeout(AMPLE);
    let refused = lock.acquire().await.unwrap_err();
    assert!(refused.to_string().contains("Unauthorized"), "{refused}");
    is_refused().await;
    // A service whose balancer sends it nothing while it is not ready finds its rights all the same.
    run(doc! { "grantRolesToUser": "anna", "roles": ["readWrite"] }).await;
    until_ready(&provider).await;
    assert!(provider.health().await.error.is_none());
    let guard = provider.lock("held").await.unwrap();
    run(doc! { "revokeRolesFromUser": "anna", "roles": ["readWrite"] }).await;
    let unready = async || (!provider.is_ready().await).then_some(());
    must(eventually(AMPLE, "a refused renewal", unready).await);
    is_refused().await;
    run(doc! { "grantRolesToUser": "anna", "roles": ["readWrite"] }).await;
    until_ready(&provider).await;
    guard.release().await.unwrap();
}
