//! Errors of servers, and the databases of the tests.

use std::env;

use mongodb::bson::{Document, doc};
use mongolock_tests::{Server, ServerOptions, must, test_db};
use tokio::process::Command;

/// This program with one of its tests.
fn another_run(test: &str) -> Command {
    let mut command = Command::new(must(env::current_exe()));
    command.args(["--exact", test]);
    command
}

#[tokio::test]
async fn a_server_that_ends_at_once_shows_its_log() {
    let failed = Server::start(ServerOptions::standalone().argument("--no-such-option")).await;
    let error = failed.expect_err("the server cannot start").to_string();
    assert!(error.contains("no-such-option"), "{error}");
}

#[tokio::test]
async fn an_explicit_binary_is_never_replaced_by_another() {
    let mut run = another_run("servers::every_test_has_a_fresh_database");
    let output = must(run.env("MONGOD", "/nowhere/mongod").output().await);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("MONGOD: /nowhere/mongod does not run"), "{said}");
}

#[tokio::test]
async fn every_test_has_a_fresh_database() {
    let (one, two) = tokio::join!(test_db(), test_db());
    for database in [one.database(), two.database()] {
        let numbers = database.collection::<Document>("numbers");
        must(numbers.insert_one(doc! { "one": 1 }).await);
        assert_eq!(must(numbers.count_documents(doc! {}).await), 1);
    }
}

/// On the server that `MONGODB_URI` names, the tests remove their databases.
#[tokio::test]
async fn the_databases_of_tests_are_dropped_and_others_stay() {
    let server = must(Server::start(ServerOptions::single()).await);
    let client = must(server.client().await);
    let numbers = client.database("application").collection("numbers");
    must(numbers.insert_one(doc! {}).await);
    let mut run = another_run("servers::every_test_has_a_fresh_database");
    let output = must(run.env("MONGODB_URI", server.uri()).output().await);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    let mut names = must(client.list_database_names().await);
    names.retain(|name| !["admin", "config", "local"].contains(&name.as_str()));
    assert_eq!(names, ["application"]);
}
