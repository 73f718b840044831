//! Killing, stopping and stepping down the members of a replica set.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongolock_tests::{AMPLE, Node, Server, ServerOptions, SupportError, eventually, must};
use tokio::time::timeout;

async fn answers(node: &Node) -> bool {
    let Ok(client) = node.client().await else {
        return false;
    };
    let ping = timeout(
        Duration::from_millis(300),
        client.database("admin").run_command(doc! { "ping": 1 }),
    )
    .await;
    client.shutdown().immediate(true).await;
    ping.is_ok_and(|ping| ping.is_ok())
}

#[tokio::test]
async fn a_killed_node_comes_back_with_its_data() {
    let server = must(Server::start(ServerOptions::single()).await);
    let client = must(server.client().await);
    let numbers = client.database("app").collection::<Document>("numbers");
    must(numbers.insert_one(doc! { "_id": 1 }).await);
    let node = server.node();
    let first = node.pid();

    must(node.kill().await);
    assert_eq!(node.pid(), None);
    assert!(!answers(node).await);
    assert!(matches!(node.stop(), Err(SupportError::NotRunning { .. })));
    must(node.kill().await);

    must(node.restart().await);
    assert!(node.pid().is_some() && node.pid() != first);
    must(server.primary().await);
    assert!(must(numbers.find_one(doc! { "_id": 1 }).await).is_some());

    must(node.restart().await);
    must(server.primary().await);
    assert!(must(numbers.find_one(doc! { "_id": 1 }).await).is_some());
}

#[tokio::test]
async fn a_stopped_node_hangs_until_it_is_resumed() {
    let server = must(Server::start(ServerOptions::standalone()).await);
    let node = server.node();
    assert!(answers(node).await);
    must(node.stop());
    assert!(!answers(node).await);
    assert!(node.pid().is_some());
    must(node.resume());
    let back = eventually(AMPLE, "an answer", || async { answers(node).await.then_some(()) });
    must(back.await);
}

#[tokio::test]
async fn another_member_follows_a_lost_primary() {
    let server = must(Server::start(ServerOptions::three_members()).await);
    let first = must(server.primary().await);
    let second = must(server.step_down().await);
    assert_ne!(first.address(), second.address());

    must(second.kill().await);
    let third = must(server.primary().await);
    assert_ne!(second.address(), third.address());
    must(second.restart().await);
    let both = || async { (server.secondaries().await.len() == 2).then_some(()) };
    must(eventually(AMPLE, "the killed member back as a secondary", both).await);

    let third = must(server.primary().await);
    must(third.stop());
    let fourth = || async {
        let primary = server.primary().await.ok()?;
        (primary.address() != third.address()).then_some(())
    };
    must(eventually(AMPLE, "a successor of the stopped primary", fourth).await);
    must(third.resume());
}

#[tokio::test]
async fn a_set_of_one_elects_itself_again() {
    let server = must(Server::start(ServerOptions::single()).await);
    let again = must(server.step_down().await);
    assert_eq!(again.address(), server.node().address());
}
