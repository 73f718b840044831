//! Servers of one test: one with access control, and one that is no replica set.

use mongodb::bson::doc;
use mongodb::{Client, Database};
use mongolock_tests::{Commands, LentServer, Server, must, stable_options};

/// A server with access control, and its database `app` for a user who has only these rights on the locks.
pub(crate) async fn guarded(actions: &[&str]) -> (LentServer, Database, Commands) {
    let server = must(LentServer::with_users().await);
    let (database, commands) = recorded_app(&restricted(&server, actions).await).await;
    (server, database, commands)
}

/// A standalone server, and its database `app`.
pub(crate) async fn standalone() -> (LentServer, Database) {
    let server = must(LentServer::standalone().await);
    let database = must(server.client().await).database("app");
    (server, database)
}

/// The connection string of a user who has only these rights on the collection of the locks in the database `app`.
pub(crate) async fn restricted(server: &Server, actions: &[&str]) -> String {
    let app = server.client().await.unwrap().database("app");
    let privileges = doc! {
        "resource": { "db": "app", "collection": "distributed_locks" },
        "actions": actions,
    };
    let role = doc! { "createRole": "locks", "privileges": [privileges], "roles": [] };
    app.run_command(role).await.unwrap();
    app.run_command(doc! { "createUser": "app", "pwd": "app", "roles": ["locks"] })
        .await
        .unwrap();
    let uri = server.uri().replace("root:secret@", "app:app@");
    uri.replace("authSource=admin", "authSource=app")
}

/// The database `app` for the user of this connection string, and the commands that are sent to it.
pub(crate) async fn recorded_app(uri: &str) -> (Database, Commands) {
    let commands = Commands::default();
    let mut options = must(stable_options(uri).await);
    commands.record(&mut options);
    let client = Client::with_options(options).unwrap();
    (client.database("app"), commands)
}
