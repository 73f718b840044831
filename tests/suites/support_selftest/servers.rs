//! Servers of each kind start, answer and do not affect each other.

use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use mongodb::{Client, Database};
use mongolock_tests::{AMPLE, Server, ServerOptions, SupportError, eventually, must, test_db};

async fn start(options: ServerOptions) -> Server {
    let began = Instant::now();
    let server = must(Server::start(options).await);
    println!("{} after {:?}", server.uri(), began.elapsed());
    server
}

async fn counts(database: &Database) -> u64 {
    let numbers = database.collection::<Document>("numbers");
    must(numbers.insert_one(doc! { "one": 1 }).await);
    must(numbers.count_documents(doc! {}).await)
}

async fn hello(client: &Client) -> Document {
    must(client.database("admin").run_command(doc! { "hello": 1 }).await)
}

#[tokio::test]
async fn a_standalone_answers() {
    let server = start(ServerOptions::standalone()).await;
    let client = must(server.client().await);
    assert_eq!(counts(&client.database("app")).await, 1);
    assert!(!hello(&client).await.contains_key("setName"));
}

#[tokio::test]
async fn a_set_of_one_answers_and_has_transactions() {
    let server = start(ServerOptions::single()).await;
    let client = must(server.client().await);
    let numbers = client.database("app").collection::<Document>("numbers");
    must(numbers.insert_one(doc! { "one": 1 }).await);
    let mut session = must(client.start_session().await);
    must(session.start_transaction().await);
    must(numbers.insert_one(doc! { "one": 2 }).session(&mut session).await);
    must(session.commit_transaction().await);
    assert_eq!(must(numbers.count_documents(doc! {}).await), 2);
}

#[tokio::test]
async fn a_set_of_three_answers_and_has_roles() {
    let server = start(ServerOptions::three_members()).await;
    let client = must(server.client().await);
    assert_eq!(counts(&client.database("app")).await, 1);
    let primary = must(server.primary().await).address();
    let secondaries = server.secondaries().await;
    assert_eq!(secondaries.len(), 2);
    assert!(secondaries.iter().all(|node| node.address() != primary));
}

#[tokio::test]
async fn access_control_lets_only_the_named_user_in() {
    for options in [ServerOptions::standalone().auth(), ServerOptions::single().auth()] {
        let server = start(options).await;
        assert_eq!(counts(&must(server.client().await).database("app")).await, 1);
        let uri = format!("mongodb://{}/?directConnection=true", server.node().address());
        let other = must(Client::with_uri_str(uri).await);
        let refused = other
            .database("app")
            .collection::<Document>("numbers")
            .insert_one(doc! {})
            .await;
        assert!(refused.is_err());
    }
}

#[tokio::test]
async fn two_servers_at_once_do_not_share_anything() {
    let (one, two) = tokio::join!(start(ServerOptions::single()), start(ServerOptions::single()));
    let (one_client, two_client) = (must(one.client().await), must(two.client().await));
    assert_eq!(counts(&one_client.database("app")).await, 1);
    assert_eq!(counts(&two_client.database("app")).await, 1);
    assert_ne!(one.node().directory(), two.node().directory());
}

#[tokio::test]
async fn the_defaults_can_be_overridden() {
    let options = ServerOptions::standalone()
        .parameter("ttlMonitorSleepSecs", "7")
        .argument("--notablescan");
    let server = start(options).await;
    let client = must(server.client().await);
    let wanted = doc! { "getParameter": 1, "ttlMonitorSleepSecs": 1, "notablescan": 1 };
    let answer = must(client.database("admin").run_command(wanted).await);
    assert_eq!(
        (
            answer.get_i32("ttlMonitorSleepSecs"),
            answer.get_bool("notablescan")
        ),
        (Ok(7), Ok(true))
    );
}

#[tokio::test]
async fn a_server_that_ends_at_once_shows_its_log() {
    let failed = Server::start(ServerOptions::standalone().argument("--no-such-option")).await;
    let Err(error @ SupportError::Start { .. }) = failed else {
        panic!("the server cannot start")
    };
    assert!(error.to_string().contains("no-such-option"), "{error}");
}

#[test]
fn the_shared_server_outlives_each_runtime() {
    let runtime = || must(tokio::runtime::Builder::new_current_thread().enable_all().build());
    let names = [(); 2].map(|()| {
        runtime().block_on(async {
            let db = test_db().await;
            assert_eq!(counts(db.database()).await, 1);
            db.name().to_owned()
        })
    });
    assert_ne!(names[0], names[1]);
}

#[tokio::test]
async fn every_test_has_a_fresh_database() {
    let (one, two) = tokio::join!(test_db(), test_db());
    assert_eq!(
        (counts(one.database()).await, counts(two.database()).await),
        (1, 1)
    );
    let again = must(one.connect_again().await);
    assert_eq!(counts(&again).await, 2);
}

#[tokio::test]
async fn polling_ends_at_its_limit_and_can_be_spawned() {
    let polling = tokio::spawn(async {
        let mut left = 3;
        let count_down = || {
            left -= 1;
            std::future::ready((left == 0).then_some("done"))
        };
        let done = eventually(AMPLE, "a count-down", count_down).await;
        let never = eventually(Duration::from_millis(30), "nothing", || async { None::<()> }).await;
        (
            done.ok(),
            never.is_err_and(|error| error.to_string().contains("nothing")),
        )
    });
    assert_eq!(must(polling.await), (Some("done"), true));
}
