//! The proxy applies its faults to the chosen messages and to no others.

use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use mongodb::error::Result;
use mongodb::{Client, Collection};
use mongolock_tests::{AMPLE, Direction, Fault, Proxy, Server, ServerOptions, eventually, must};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(300);

struct Setting {
    direct: Collection<Document>,
    proxied: Collection<Document>,
    proxy: Proxy,
    // The server ends when this value is dropped, so it is the last field.
    _server: Server,
}

/// A standalone server, for which the driver does not retry writes, so that each fault is visible.
async fn setting() -> Setting {
    let server = must(Server::start(ServerOptions::standalone()).await);
    let proxy = must(Proxy::start(server.node().address()).await);
    let direct = must(server.client().await).database("app").collection("numbers");
    let client = must(Client::with_uri_str(proxy.uri()).await);
    let proxied = client.database("app").collection("numbers");
    must(direct.insert_one(doc! { "_id": 1, "n": 0 }).await);
    must(proxied.find_one(doc! {}).await);
    Setting {
        direct,
        proxied,
        proxy,
        _server: server,
    }
}

impl Setting {
    async fn increment(&self) -> Result<Option<Document>> {
        self.proxied
            .find_one_and_update(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } })
            .await
    }

    async fn number(&self) -> i32 {
        let found = must(self.direct.find_one(doc! { "_id": 1 }).await);
        must(found.unwrap_or_default().get_i32("n"))
    }

    async fn becomes(&self, number: i32) {
        let reached = || async { (self.number().await == number).then_some(()) };
        must(eventually(AMPLE, "the expected number", reached).await);
    }
}

#[tokio::test]
async fn exactly_one_reply_of_a_command_is_dropped() {
    let it = setting().await;
    let dropped = it.proxy.inject(Fault::drop_reply().command("findAndModify"));
    must(it.proxied.find_one(doc! {}).await);
    assert_eq!(dropped.hits(), 0);
    assert!(it.increment().await.is_err());
    must(dropped.happened(AMPLE).await);
    assert_eq!(it.number().await, 1);
    must(it.increment().await);
    assert_eq!(
        (it.number().await, dropped.hits(), it.proxy.seen("findAndModify")),
        (2, 1, 2)
    );
}

#[tokio::test]
async fn a_retryable_write_survives_a_dropped_reply() {
    let server = must(Server::start(ServerOptions::single()).await);
    let proxy = must(Proxy::start(server.node().address()).await);
    let client = must(Client::with_uri_str(proxy.uri()).await);
    let numbers = client.database("app").collection::<Document>("numbers");
    let dropped = proxy.inject(Fault::drop_reply().command("findAndModify"));
    must(
        numbers
            .find_one_and_update(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } })
            .upsert(true)
            .await,
    );
    assert_eq!((dropped.hits(), proxy.seen("findAndModify")), (1, 2));
    let found = must(numbers.find_one(doc! { "_id": 1 }).await);
    assert_eq!(found.and_then(|found| found.get_i32("n").ok()), Some(1));
}

#[tokio::test]
async fn a_dropped_request_never_arrives() {
    let it = setting().await;
    let dropped = it.proxy.inject(Fault::drop_request());
    assert!(it.increment().await.is_err());
    must(dropped.happened(AMPLE).await);
    must(it.increment().await);
    assert_eq!(it.number().await, 1);
}

#[tokio::test]
async fn a_late_request_arrives_after_its_client_has_given_up() {
    let it = setting().await;
    let late = it
        .proxy
        .inject(Fault::late_request(SHORT).command("findAndModify"));
    let began = Instant::now();
    assert!(it.increment().await.is_err());
    must(late.happened(AMPLE).await);
    it.becomes(1).await;
    assert!(began.elapsed() >= SHORT);
}

/// The connection stays open: the driver waits for the reply, and a later command takes another connection.
#[tokio::test]
async fn a_swallowed_message_leaves_its_connection_open_and_silent() {
    let it = setting().await;
    let swallowed = [Fault::swallow_reply(), Fault::swallow_request()];
    let mut silent = Vec::new();
    for (fault, executed) in swallowed.into_iter().zip([1, 2]) {
        let swallowed = it.proxy.inject(fault.command("findAndModify"));
        let mut increment = Box::pin(it.increment());
        assert!(timeout(SHORT, &mut increment).await.is_err());
        must(swallowed.happened(AMPLE).await);
        // Only the reply was swallowed the first time, so only that request was executed.
        assert_eq!(it.number().await, executed);
        must(it.increment().await);
        silent.push(increment);
    }
    assert_eq!(it.number().await, 3);
    for increment in &mut silent {
        assert!(
            timeout(SHORT, increment).await.is_err(),
            "the connection is still silent"
        );
    }
    it.proxy.reset_connections();
    for increment in silent {
        let ended = timeout(AMPLE, increment).await;
        assert!(
            ended.is_ok_and(|answer| answer.is_err()),
            "a reset ends the connection"
        );
    }
}

#[tokio::test]
async fn single_messages_are_delayed() {
    let it = setting().await;
    for fault in [Fault::delay_request(SHORT), Fault::delay_reply(SHORT)] {
        let delayed = it.proxy.inject(fault.command("findAndModify").times(2));
        for _ in 0..2 {
            let began = Instant::now();
            must(it.increment().await);
            assert!(began.elapsed() >= SHORT);
        }
        must(delayed.happened(AMPLE).await);
    }
    assert_eq!(it.number().await, 4);
}

#[tokio::test]
async fn each_direction_has_a_delay_of_its_own() {
    let it = setting().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        it.proxy.set_delay(direction, SHORT);
        let began = Instant::now();
        must(it.increment().await);
        assert!(began.elapsed() >= SHORT);
        it.proxy.set_delay(direction, Duration::ZERO);
    }
}

#[tokio::test]
async fn a_frozen_network_holds_everything_back_until_it_thaws() {
    let it = setting().await;
    it.proxy.freeze();
    let mut increment = Box::pin(it.increment());
    assert!(timeout(SHORT, &mut increment).await.is_err());
    assert_eq!(it.number().await, 0);
    it.proxy.thaw();
    must(increment.await);
    assert_eq!(it.number().await, 1);
}

#[tokio::test]
async fn connections_are_reset_and_refused() {
    let it = setting().await;
    let held = it
        .proxy
        .inject(Fault::delay_reply(AMPLE).command("findAndModify"));
    let (broken, ()) = tokio::join!(it.increment(), async {
        must(held.happened(AMPLE).await);
        it.proxy.refuse_connections();
        it.proxy.reset_connections();
    });
    assert!(broken.is_err());
    assert!(
        timeout(SHORT, it.increment())
            .await
            .map_or(true, |answer| answer.is_err())
    );
    it.proxy.accept_connections();
    let again = || async { it.increment().await.ok() };
    must(eventually(AMPLE, "an answer through new connections", again).await);
}

/// Only a reset ends a connection that was swallowed.
#[tokio::test]
async fn swallowed_connections_stay_silent() {
    let it = setting().await;
    it.proxy.swallow_connections();
    must(it.increment().await);
    assert_eq!(it.proxy.kept_out(), 0, "the connections that exist work");
    let mut silent = must(TcpStream::connect(it.proxy.address()).await);
    let kept_out = || async { (it.proxy.kept_out() == 1).then_some(()) };
    must(eventually(AMPLE, "a swallowed connection", kept_out).await);
    it.proxy.accept_connections();
    must(silent.write_all(&[0; 16]).await);
    assert!(timeout(SHORT, silent.read_u8()).await.is_err());
    it.proxy.reset_connections();
    assert!(must(timeout(AMPLE, silent.read_u8()).await).is_err());
}

#[tokio::test]
async fn cleared_faults_do_not_happen_and_connections_end_with_the_proxy() {
    let it = setting().await;
    let cleared = it
        .proxy
        .inject(Fault::drop_request().command("findAndModify").times(3));
    it.proxy.clear_faults();
    must(it.increment().await);
    assert_eq!(cleared.hits(), 0);
    assert!(cleared.happened(SHORT).await.is_err());

    let Setting { proxied, proxy, .. } = it;
    let address = proxy.address().to_owned();
    drop(proxy);
    let refused = || async { tokio::net::TcpStream::connect(&address).await.err() };
    must(eventually(AMPLE, "the proxy's port closed", refused).await);
    assert!(
        timeout(SHORT, proxied.find_one(doc! {}))
            .await
            .map_or(true, |answer| answer.is_err())
    );
}
