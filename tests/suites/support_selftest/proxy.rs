//! The proxy applies its faults to the chosen messages and to no others.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection};
use mongolock_tests::{AMPLE, Fault, LentServer, Proxy, Server, eventually, must, until, with_parameter};
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(300);

struct Setting {
    direct: Collection<Document>,
    proxied: Collection<Document>,
    proxy: Proxy,
}

/// A proxy in front of a server, and a collection of its own. A standalone: the driver repeats no write there, so that each fault
/// is visible.
async fn setting(server: &Server) -> Setting {
    let proxy = must(Proxy::start(server.node().address()).await);
    let name = format!("numbers {}", proxy.address());
    let direct = must(server.client().await).database("app").collection(&name);
    // A connection that the proxy has swallowed is given up after 2 s, and the driver soon looks whether the server is there again.
    let options = "connectTimeoutMS=2000&heartbeatFrequencyMS=500";
    let uri = with_parameter(&proxy.uri(), options);
    let client = must(Client::with_uri_str(uri).await);
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
    async fn increment(&self) -> mongodb::error::Result<Option<Document>> {
        let increment = doc! { "$inc": { "n": 1 } };
        self.proxied
            .find_one_and_update(doc! { "_id": 1 }, increment)
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
    let server = must(LentServer::standalone().await);
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
        until(&what, async || it.number().await == expected).await;
        assert!(began.elapsed() >= takes, "{what}");
    }
    must(hit.happened(AMPLE).await);
    must(it.increment().await);
    let counted = (it.number().await, hit.hits(), it.proxy.seen("findAndModify"));
    assert_eq!(counted, (executed * 2 + 1, 2, seen + 3), "{what}");
}

#[tokio::test]
async fn the_whole_network_is_frozen_silent_and_refused() {
    let server = must(LentServer::standalone().await);
    let it = setting(&server).await;
    it.proxy.freeze();
    let mut frozen = Box::pin(it.increment());
    assert!(timeout(SHORT, &mut frozen).await.is_err() && it.number().await == 0);
    it.proxy.thaw();
    must(frozen.await);

    it.proxy.swallow_connections();
    must(it.increment().await);
    assert_eq!(it.proxy.kept_out(), 0, "the connections that exist work");
    for fails in [Proxy::swallow_connections, Proxy::refuse_connections] {
        let before = it.proxy.kept_out();
        fails(&it.proxy);
        it.proxy.reset_connections();
        let kept_out = || async { (it.proxy.kept_out() > before).then_some(()) };
        let mut increment = Box::pin(it.increment());
        tokio::select! {
            kept_out = eventually(AMPLE, "a connection is kept out", kept_out) => must(kept_out),
            Ok(_) = &mut increment => panic!("there was a reply"),
        }
    }
    it.proxy.accept_connections();
    it.proxy.reset_connections();
    let again = || async { it.increment().await.ok() };
    must(eventually(AMPLE, "an answer through new connections", again).await);
}
