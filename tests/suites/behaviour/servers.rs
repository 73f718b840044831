//! Servers of one test: one with access control, and one that is no replica set.

use mongodb::Database;
use mongolock_tests::{Commands, LentServer, must};

use crate::fixture::{recorded_app, restricted};

/// All rights that waiters, holders and operators need.
pub(crate) const RIGHTS: [&str; 5] = ["find", "insert", "update", "createIndex", "changeStream"];

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
