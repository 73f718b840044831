//! Options and errors of servers, the databases of the tests, and `eventually`. That servers of each kind start and answer is
//! shown by the suites that use them.

use std::time::Duration;

use mongodb::Database;
use mongodb::bson::{Document, doc};
use mongolock_tests::{AMPLE, Server, ServerOptions, SupportError, eventually, must, test_db};

async fn counts(database: &Database) -> u64 {
    let numbers = database.collection::<Document>("numbers");
    must(numbers.insert_one(doc! { "one": 1 }).await);
    must(numbers.count_documents(doc! {}).await)
}

#[tokio::test]
async fn the_defaults_can_be_overridden() {
    let options = ServerOptions::standalone()
        .parameter("ttlMonitorSleepSecs", "7")
        .argument("--notablescan");
    let server = must(Server::start(options).await);
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

#[tokio::test]
async fn a_set_of_one_comes_back_with_its_data() {
    let server = must(Server::start(ServerOptions::single()).await);
    let numbers = must(server.client().await).database("app").collection("numbers");
    must(numbers.insert_one(doc! { "_id": 1 }).await);
    let node = server.node();
    must(node.kill().await);
    assert!(node.pid().is_none() && matches!(node.stop(), Err(SupportError::NotRunning { .. })));
    must(node.restart().await);
    must(server.primary().await);
    must(server.step_down().await);
    assert!(must(numbers.find_one(doc! { "_id": 1 }).await).is_some());
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
