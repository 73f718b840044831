//! On the server that `MONGODB_URI` names, the tests remove their databases.

use std::env;
use std::process::Command;

use mongodb::bson::{Document, doc};
use mongolock_tests::{Server, ServerOptions, must};

/// The test that a second process of this binary runs on that server.
const OTHER: &str = "servers::every_test_has_a_fresh_database";

#[tokio::test]
async fn own_and_old_test_databases_are_dropped_and_others_stay() {
    let server = must(Server::start(ServerOptions::single()).await);
    let client = must(server.client().await);
    let old = "mongolock_test_1700000000_1_0_00000000";
    let recent = "mongolock_test_99999999999_1_0_00000000";
    for name in [old, recent, "application"] {
        must(
            client
                .database(name)
                .collection::<Document>("numbers")
                .insert_one(doc! {})
                .await,
        );
    }

    let mut test = Command::new(must(env::current_exe()));
    test.args(["--exact", OTHER]).env("MONGODB_URI", server.uri());
    let run = tokio::task::spawn_blocking(move || test.output());
    let output = must(must(run.await));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");

    let mut names = must(client.list_database_names().await);
    names.retain(|name| !["admin", "config", "local"].contains(&name.as_str()));
    assert_eq!(names, ["application", recent]);
}
