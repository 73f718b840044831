//! A server that cannot be reached, for a provider that was made from a connection string: its errors name the address
//! and the reason.

use std::time::Duration;

use mongodb::Client;
use mongodb::bson::doc;
use mongodb::error::ErrorKind;
use mongolock::{LockError, LockProvider, distributed_lock};
use mongolock_tests::{
    AMPLE, LentServer, Proxy, Server, ServerOptions, Set, eventually, must, shared, test_db,
};
use tokio::time::{Instant, sleep};

use crate::{acquire_soon, assert_free, closed_address};

/// The time in which a call that tries once must have failed. The library promises 2 s; without that promise it takes the
/// 10 s of a single try.
const PROMPT: Duration = Duration::from_secs(6);

async fn connect(address: &str, options: &str) -> LockProvider {
    let uri = format!("mongodb://{address}/app?{options}");
    LockProvider::connect(uri).await.unwrap()
}

/// Asserts that the error names the address and the reason.
fn names(address: &str, error: &LockError) {
    let text = format!("MongoDB at {address} cannot be reached: Connection refused");
    assert_eq!(error.to_string(), text);
    assert!(
        matches!(error, LockError::Mongo(error) if matches!(&*error.kind, ErrorKind::Io(_))),
        "{error:?}"
    );
}

#[distributed_lock(name = "job", on_busy = "skip")]
async fn skipping() -> Result<Option<()>, LockError> {
    unreachable!("the server is down")
}

#[distributed_lock(name = "job", on_busy = "fail")]
async fn failing() -> Result<(), LockError> {
    unreachable!("the server is down")
}

#[tokio::test]
async fn calls_that_try_once_learn_the_address_and_the_reason_within_seconds() {
    let address = closed_address().to_string();
    let provider = connect(&address, "").await;
    for _ in 0..2 {
        let begun = Instant::now();
        let (tried, skipped, failed) = tokio::join!(
            async { provider.lock("free").try_acquire().await.unwrap_err() },
            async { provider.scope(skipping()).await.unwrap_err() },
            async { provider.scope(failing()).await.unwrap_err() },
        );
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        for error in [tried, skipped, failed] {
            names(&address, &error);
        }
    }
}

/// Also with a limit that is shorter than the time after which a request fails.
#[tokio::test]
async fn a_wait_goes_on_until_its_deadline_and_ends_with_the_address_and_the_reason() {
    let address = closed_address().to_string();
    let provider = connect(&address, "").await;
    for limit in [Duration::from_millis(300), Duration::from_secs(4)] {
        let begun = Instant::now();
        let lock = provider.lock("down").acquire_timeout(limit);
        let error = lock.acquire().await.unwrap_err();
        assert!(begun.elapsed() >= limit);
        names(&address, &error);
    }
}

/// The driver itself gives up first, and its error stays one of server selection.
#[tokio::test]
async fn a_limit_of_the_drivers_own_is_kept() {
    let address = closed_address().to_string();
    let provider = connect(&address, "serverSelectionTimeoutMS=200").await;
    let lock = provider.lock("down").acquire_timeout(Duration::from_secs(1));
    match lock.acquire().await {
        Err(LockError::Mongo(error)) => {
            assert!(
                matches!(&*error.kind, ErrorKind::ServerSelection { .. }),
                "{error:?}"
            );
            assert!(error.to_string().contains(&address), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

async fn proxy() -> Proxy {
    let shared = shared().await.unwrap();
    let server = shared.server().expect("fault tests need a server of their own");
    Proxy::start(server.node().address()).await.unwrap()
}

/// B5: the outage is over before the deadline.
#[tokio::test]
async fn a_wait_outlasts_an_outage() {
    let proxy = proxy().await;
    proxy.refuse_connections();
    let provider = LockProvider::connect(proxy.uri()).await.unwrap();
    let lock = provider.lock("unreachable:outlasted").acquire_timeout(AMPLE);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    let tried = provider.lock("unreachable:tried").try_acquire().await;
    let text = tried.unwrap_err().to_string();
    assert!(text.contains(proxy.address()), "{text}");
    assert!(!waiter.is_finished());
    proxy.accept_connections();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert_free(&provider, "unreachable:tried").await;
}

/// A server that is away for less than the time after which a request fails.
#[tokio::test]
async fn a_short_outage_fails_no_try() {
    let proxy = proxy().await;
    let provider = LockProvider::connect(proxy.uri()).await.unwrap();
    assert_free(&provider, "unreachable:short").await;
    proxy.refuse_connections();
    proxy.reset_connections();
    let trying = async {
        let guard = provider.lock("unreachable:short").try_acquire().await;
        guard.unwrap().expect("the lock is free")
    };
    let ending = async {
        sleep(Duration::from_millis(300)).await;
        proxy.accept_connections();
    };
    let (guard, ()) = tokio::join!(trying, ending);
    guard.release().await.unwrap();
}

/// The other members answer heartbeats during an election, so that a single try waits for the new primary.
#[tokio::test]
async fn an_election_fails_no_try() {
    let server = Server::start(ServerOptions::three_members()).await.unwrap();
    let provider = LockProvider::connect(server.uri()).await.unwrap();
    assert_free(&provider, "warm").await;
    must(server.primary().await.unwrap().kill().await);
    let lock = provider.lock("free").acquire_timeout(AMPLE);
    let guard = lock.try_acquire().await.unwrap().expect("the lock is free");
    guard.release().await.unwrap();
    assert_free(&provider, "free").await;
}

/// One wrong seed beside a right one is no outage.
#[tokio::test]
async fn a_member_that_is_down_fails_nothing() {
    let server = must(LentServer::single().await);
    let hosts = format!("{},{}", closed_address(), server.node().address());
    let provider = connect(&hosts, "replicaSet=mongolock").await;
    acquire_soon(&provider, "free").await.release().await.unwrap();
}

/// A member that was never initiated serves no request. As soon as it has its set, a call that waits goes on.
#[tokio::test]
async fn a_server_without_its_replica_set_is_named_until_it_is_initiated() {
    let options = ServerOptions::standalone().argument("--replSet").argument("late");
    let server = must(Server::start(options).await);
    let address = server.node().address();
    let waiting = connect(address, "replicaSet=late").await;
    let waiting = waiting.lock("late").acquire_timeout(AMPLE);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    for options in ["", "replicaSet=late"] {
        let provider = connect(address, options).await;
        let error = error_of_a_try(&provider).await;
        assert_eq!(
            error.to_string(),
            format!("MongoDB at {address} has no primary: no replica set yet")
        );
        assert!(error.help().contains("rs.initiate()"), "{}", error.help());
    }
    let direct = format!("mongodb://{address}/?directConnection=true");
    let direct = must(Client::with_uri_str(direct).await).database("admin");
    let set = doc! { "_id": "late", "members": [{ "_id": 0, "host": address }] };
    must(direct.run_command(doc! { "replSetInitiate": set }).await);
    must(must(waiting.await.expect("no panic")).release().await);
}

/// With one of two members left no primary can be elected. The other member replies to a direct connection, and takes no write.
#[tokio::test]
async fn a_set_without_a_primary_and_a_member_that_takes_no_writes_are_said() {
    let set = Set::start("halved", &[doc! {}, doc! {}]).await;
    let (down, up) = (set.address(0), set.address(1));
    must(set.node(0).kill().await);
    let provider = connect(&format!("{down},{up}"), "").await;
    let said = format!("{down} (Connection refused), {up} (RsSecondary)");
    let either = format!("{up} (RsSecondary), {down} (Connection refused)");
    let has_none = || async {
        let lock = provider.lock("free").acquire_timeout(Duration::from_secs(1));
        let text = lock.acquire().await.unwrap_err().to_string();
        [&said, &either]
            .iter()
            .any(|servers| text == format!("MongoDB has no primary: {servers}"))
            .then_some(())
    };
    must(eventually(AMPLE, "the members", has_none).await);
    let direct = connect(up, "directConnection=true").await;
    let lock = direct.lock("free").acquire_timeout(Duration::from_secs(1));
    let text = lock.acquire().await.unwrap_err().to_string();
    assert!(text.contains("NotWritablePrimary"), "{text}");
}

async fn error_of_a_try(provider: &LockProvider) -> LockError {
    let begun = Instant::now();
    let error = provider.lock("free").try_acquire().await.unwrap_err();
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    error
}

#[tokio::test]
async fn a_wrong_set_name_is_reported_with_the_right_one() {
    let shared = shared().await.unwrap();
    let server = shared.server().expect("fault tests need a server of their own");
    let address = server.node().address();
    let text = format!(
        "MongoDB at {address} belongs to the replica set `mongolock`; the connection string names `other`"
    );
    let provider = connect(address, "replicaSet=other").await;
    let begun = Instant::now();
    // It cannot pass, so that a call which waits ends as well.
    let lock = provider.lock("elsewhere").acquire_timeout(AMPLE);
    let error = lock.acquire().await.unwrap_err();
    assert_eq!(error.to_string(), text);
    assert!(error.help().contains("`replicaSet`"), "{}", error.help());
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    assert_eq!(error_of_a_try(&provider).await.to_string(), text);
    assert_eq!(provider.health().await.error.unwrap().to_string(), text);

    // The driver says it of a direct connection.
    let direct = connect(address, "replicaSet=other&directConnection=true").await;
    let said = error_of_a_try(&direct).await.to_string();
    for part in [address, "\"other\"", "\"mongolock\""] {
        assert!(said.contains(part), "{said}");
    }
}

#[tokio::test]
async fn a_server_without_a_set_is_named_as_such() {
    let server = must(LentServer::standalone().await);
    let address = server.node().address();
    let provider = connect(address, "replicaSet=other").await;
    let text = format!("MongoDB at {address} belongs to no replica set; the connection string names `other`");
    assert_eq!(error_of_a_try(&provider).await.to_string(), text);
}

/// One host without a set beside the right ones is no failure.
#[tokio::test]
async fn a_host_without_a_set_fails_nothing() {
    let other = must(LentServer::standalone().await);
    let shared = shared().await.unwrap();
    let server = shared.server().expect("fault tests need a server of their own");
    let hosts = format!("{},{}", other.node().address(), server.node().address());
    let provider = connect(&hosts, "replicaSet=mongolock").await;
    for round in 0..3 {
        assert_free(&provider, &format!("unreachable:seed:{round}")).await;
    }
}

/// A provider that is made from another one has its client, its owner, and its errors. Its shutdown does not end the client
/// that the other one still uses.
#[tokio::test]
async fn a_provider_made_from_another_one_keeps_its_client_and_its_owner() {
    let address = closed_address().to_string();
    let unreachable = connect(&address, "").await;
    let other = unreachable.to_builder().collection("other").build().unwrap();
    names(&address, &error_of_a_try(&other).await);
    names(
        &address,
        &other.health().await.error.expect("no server can be reached"),
    );

    let db = test_db().await;
    let connected = LockProvider::connect(db.uri()).await.unwrap();
    let first = connected.to_builder().database(db.name()).owner("anna").build();
    let second = first.unwrap().to_builder().collection("other").build().unwrap();
    let guard = second.lock("kept").await.unwrap();
    let info = second.admin().get("kept").await.unwrap().expect("it is held");
    assert_eq!(info.owner.as_deref(), Some("anna"));
    guard.release().await.unwrap();
    second.shutdown().await;
    assert_free(&connected, "unreachable:kept").await;
}
