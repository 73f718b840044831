//! A fresh database for each test.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use mongodb::bson::{Document, doc};
use mongodb::{Client, Database};

use crate::apart::run_apart;
use crate::deployment::{Deployment, in_turn};
use crate::error::{SupportError, must};
use crate::node::{close, connect};
use crate::proxy::Proxy;
use crate::stable_api::stable_options;
use crate::wait::{AMPLE, eventually};

/// A database for one test, with a client for the calling runtime that has the
/// [`stable_options`](crate::stable_options). Keep it until the end of the test.
///
/// On a server that this crate has started nothing is removed, because the server is removed as a whole. On the server
/// of `MONGODB_URI` the database, whose name begins with `mongolock_test`, is dropped with this value; that of a killed test
/// stays.
#[derive(Debug)]
#[must_use = "on a foreign server the database is dropped with this value"]
pub struct TestDb {
    database: Database,
    deployment: &'static Deployment,
}

/// A database with a new name on a server that the tests of this process share. Without a server the test fails with the
/// message that says what to do.
pub async fn test_db() -> TestDb {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let deployment = must(in_turn(number).await);
    // The server allows 63 bytes.
    let random = fastrand::u32(..);
    let name = format!("mongolock_test_{}_{number}_{random:08x}", process::id());
    let client = must(client(deployment.uri(), &name).await);
    TestDb {
        database: client.database(&name),
        deployment,
    }
}

impl TestDb {
    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Its name; also the application name of the clients, so that a [`FailPoint`](crate::FailPoint) can be
    /// restricted to this test with [`app_name`](crate::FailPoint::app_name).
    pub fn name(&self) -> &str {
        self.database.name()
    }

    /// The server, for child processes.
    pub fn uri(&self) -> &'static str {
        self.deployment.uri()
    }

    /// A proxy in front of the server, which must not be that of `MONGODB_URI`: it may have more than one address.
    pub async fn proxy(&self) -> Result<Proxy, SupportError> {
        let server = self.deployment.server();
        let server = server.expect("a proxy needs a server of this process: unset MONGODB_URI");
        Proxy::start(server.node().address()).await
    }

    /// The same database through a new client without the Stable API, for commands that it does not have.
    pub async fn without_stable_api(&self) -> Result<Database, SupportError> {
        Ok(connect(self.uri()).await?.database(self.name()))
    }

    /// Sets the validator of the collection of the locks. The server refuses that while it builds an index.
    pub async fn set_validator(&self, validator: Document) {
        let admin = must(self.without_stable_api().await);
        let change = doc! { "collMod": "distributed_locks", "validator": validator };
        let set = || async { admin.run_command(change.clone()).await.ok() };
        must(eventually(AMPLE, "the validator", set).await);
    }

    /// The same database through another new client, as another process would see it.
    pub async fn connect_again(&self) -> Result<Database, SupportError> {
        Ok(client(self.uri(), self.name()).await?.database(self.name()))
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        if self.deployment.server().is_none() {
            let (uri, name) = (self.uri(), self.name().to_owned());
            run_apart(async move {
                let client = connect(uri).await.ok()?;
                // Best effort: it is the database of a test.
                let _ = client.database(&name).drop().await;
                close(client).await;
                Some(())
            });
        }
    }
}

async fn client(uri: &str, app_name: &str) -> Result<Client, SupportError> {
    let mut options = stable_options(uri).await?;
    options.app_name = Some(app_name.to_owned());
    Client::with_options(options).map_err(SupportError::at("connection string"))
}
