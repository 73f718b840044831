//! The proxy applies its faults to the chosen messages and to no others.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
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
}

/// A standalone server: the driver repeats no write there, so that each fault is visible.
async fn standalone() -> Server {
    must(Server::start(ServerOptions::standalone()).await)
}

/// A proxy in front of the server, and a collection of its own.
async fn setting(server: &Server) -> Setting {
    let proxy = must(Proxy::start(server.node().address()).await);
    let name = format!("numbers {}", proxy.address());
    let direct = must(server.client().await).database("app").collection(&name);
    let client = must(Client::with_uri_str(proxy.uri()).await);
    let proxied = client.database("app").collection(&name);
    must(direct.insert_one(doc! { "_id": 1, "n": 0 }).await);
    must(proxied.find_one(doc! {}).await);
    Setting {
        direct,
        proxied,
        proxy,
    }
}

impl Setting {
    async fn increment(&self) -> Result<Option<Document>> {
        self.proxied
            .find_one_and_update(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } })
            .await
    }

    async fn number(&self) -> u32 {
        let found = must(self.direct.find_one(doc! { "_id": 1 }).await);
        must(u32::try_from(must(found.unwrap_or_default().get_i32("n"))))
    }
}

/// What the client of a message gets.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reply {
    Success,
    Error,
    /// Neither, until the connection is reset.
    Silence,
}

#[tokio::test]
async fn each_fault_hits_its_messages_and_no_others() {
    let at_once = Duration::ZERO;
    let cases = [
        (Fault::drop_reply(), Reply::Error, 1, at_once),
        (Fault::drop_request(), Reply::Error, 0, at_once),
        (Fault::late_request(SHORT), Reply::Error, 1, SHORT),
        (Fault::swallow_reply(), Reply::Silence, 1, at_once),
        (Fault::swallow_request(), Reply::Silence, 0, at_once),
        (Fault::delay_reply(SHORT), Reply::Success, 1, SHORT),
        (Fault::delay_request(SHORT), Reply::Success, 1, SHORT),
    ];
    let server = standalone().await;
    join_all(cases.map(|case| hits_its_messages(&server, case))).await;
}

/// The fault hits two increments, of which the server executes so many each, and which take so long at least.
async fn hits_its_messages(server: &Server, case: (Fault, Reply, u32, Duration)) {
    let (fault, reply, executed, takes) = case;
    let it = setting(server).await;
    let what = format!("{fault:?}");
    let hit = it.proxy.inject(fault.command("findAndModify").times(2));
    let seen = it.proxy.seen("findAndModify");
    must(it.proxied.find_one(doc! {}).await);
    assert_eq!(hit.hits(), 0, "{what}: another command is not hit");
    for hits in 1..=2 {
        let began = Instant::now();
        let mut increment = Box::pin(it.increment());
        if reply == Reply::Silence {
            let is_hit = || async { (hit.hits() == hits).then_some(()) };
            tokio::select! {
                hit = eventually(AMPLE, &what, is_hit) => must(hit),
                _ = &mut increment => panic!("{what}: there was a reply"),
            }
            assert!(timeout(SHORT, &mut increment).await.is_err(), "{what}");
            it.proxy.reset_connections();
        }
        let outcome = must(timeout(AMPLE, increment).await);
        assert_eq!(outcome.is_ok(), reply == Reply::Success, "{what}");
        let expected = executed * hits;
        let reached = || async { (it.number().await == expected).then_some(()) };
        must(eventually(AMPLE, &what, reached).await);
        assert!(began.elapsed() >= takes, "{what}");
    }
    must(hit.happened(AMPLE).await);
    must(it.increment().await);
    let counted = (it.number().await, hit.hits(), it.proxy.seen("findAndModify"));
    assert_eq!(counted, (executed * 2 + 1, 2, seen + 3), "{what}");
}

#[tokio::test]
async fn faults_that_are_cleared_hit_nothing() {
    let server = standalone().await;
    let it = setting(&server).await;
    let cleared = it.proxy.inject(Fault::drop_request());
    it.proxy.clear_faults();
    must(it.increment().await);
    assert_eq!(cleared.hits(), 0);
    assert!(cleared.happened(SHORT).await.is_err());
}

#[tokio::test]
async fn the_whole_network_is_slow_frozen_refused_and_silent() {
    let server = standalone().await;
    let it = setting(&server).await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        it.proxy.set_delay(direction, SHORT);
        let began = Instant::now();
        must(it.increment().await);
        assert!(began.elapsed() >= SHORT);
        it.proxy.set_delay(direction, Duration::ZERO);
    }

    it.proxy.freeze();
    let mut increment = Box::pin(it.increment());
    assert!(timeout(SHORT, &mut increment).await.is_err());
    assert_eq!(it.number().await, 2);
    it.proxy.thaw();
    must(increment.await);
    assert_eq!(it.number().await, 3);

    it.proxy.swallow_connections();
    must(it.increment().await);
    assert_eq!(it.proxy.kept_out(), 0, "the connections that exist work");
    let mut silent = must(TcpStream::connect(it.proxy.address()).await);
    let kept_out = || async { (it.proxy.kept_out() == 1).then_some(()) };
    must(eventually(AMPLE, "a swallowed connection", kept_out).await);
    it.proxy.accept_connections();
    must(silent.write_all(&[0; 16]).await);
    assert!(timeout(SHORT, silent.read_u8()).await.is_err());

    it.proxy.refuse_connections();
    it.proxy.reset_connections();
    let mut refused = must(TcpStream::connect(it.proxy.address()).await);
    for connection in [&mut silent, &mut refused] {
        assert!(must(timeout(AMPLE, connection.read_u8()).await).is_err());
    }
    let fails = |answer: std::result::Result<Result<_>, _>| answer.map_or(true, |answer| answer.is_err());
    assert!(fails(timeout(SHORT, it.increment()).await));
    it.proxy.accept_connections();
    let again = || async { it.increment().await.ok() };
    must(eventually(AMPLE, "an answer through new connections", again).await);

    let Setting { proxied, proxy, .. } = it;
    let address = proxy.address().to_owned();
    drop(proxy);
    let refused = || async { TcpStream::connect(&address).await.err() };
    must(eventually(AMPLE, "the proxy's port closed", refused).await);
    let update = proxied.find_one_and_update(doc! {}, doc! { "$inc": { "n": 1 } });
    assert!(fails(timeout(SHORT, async { update.await }).await));
}
