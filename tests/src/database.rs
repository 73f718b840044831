//! A fresh database for each test.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mongodb::bson::{Document, doc};
use mongodb::{Client, Database};
use tokio::sync::OnceCell;

use crate::apart::run_apart;
use crate::deployment::{Deployment, in_turn};
use crate::error::{SupportError, must};
use crate::node::{close, connect};
use crate::place::random;
use crate::proxy::Proxy;
use crate::stable_api::stable_options;
use crate::wait::{AMPLE, eventually};

/// The beginning of the name of every test database.
const PREFIX: &str = "mongolock_test";
/// The age of a database after which it is removed: one hour, longer than any test runs, so it was left behind by a
/// test that was killed.
const LEFT_BEHIND: Duration = Duration::from_secs(60 * 60);

/// A database for one test, with a client for the calling runtime that has the
/// [`stable_options`](crate::stable_options). Keep it until the end of the test.
///
/// On a server that this crate has started nothing is removed, because the server is removed as a whole. On the server
/// of `MONGODB_URI` the database is dropped with this value. Databases that killed tests have left behind there are
/// removed by the first test of a later process, when they are older than an hour: their names begin with
/// `mongolock_test` and contain the time of their creation.
#[derive(Debug)]
#[must_use = "on a foreign server the database is dropped with this value"]
pub struct TestDb {
    database: Database,
    deployment: &'static Deployment,
}

/// [`TestDb::new`] for tests: without a server the test fails with the message that says what to do.
///
/// # Panics
/// Through [`must`].
pub async fn test_db() -> TestDb {
    must(TestDb::new().await)
}

impl TestDb {
    /// A database with a new name on a server that the tests of this process share.
    ///
    /// # Errors
    /// Those of [`shared`](crate::shared).
    pub async fn new() -> Result<Self, SupportError> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let deployment = in_turn(number).await?;
        if deployment.server().is_none() {
            sweep(deployment.uri()).await;
        }
        let name = fresh_name(number);
        let client = client(deployment.uri(), &name).await?;
        Ok(Self {
            database: client.database(&name),
            deployment,
        })
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Its name; also the application name of the clients, so that a [`FailPoint`](crate::FailPoint) can be
    /// restricted to this test with [`app_name`](crate::FailPoint::app_name).
    #[must_use]
    pub fn name(&self) -> &str {
        self.database.name()
    }

    /// The server, for child processes.
    #[must_use]
    pub fn uri(&self) -> &'static str {
        self.deployment.uri()
    }

    /// A proxy in front of the server.
    ///
    /// # Errors
    /// Those of [`Proxy::start`].
    ///
    /// # Panics
    /// When `MONGODB_URI` names the server, which may have more than one address.
    pub async fn proxy(&self) -> Result<Proxy, SupportError> {
        let server = self.deployment.server();
        let server = server.expect("a proxy needs a server of this process: unset MONGODB_URI");
        Proxy::start(server.node().address()).await
    }

    /// The same database through a new client without the Stable API, for commands that it does not have.
    ///
    /// # Errors
    /// When the driver refuses the connection string.
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
    ///
    /// # Errors
    /// When the driver refuses the connection string.
    pub async fn connect_again(&self) -> Result<Database, SupportError> {
        Ok(client(self.uri(), self.name()).await?.database(self.name()))
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        if self.deployment.server().is_none() {
            let (uri, name) = (self.uri(), self.name().to_owned());
            run_apart(async move {
                let client = Client::with_uri_str(uri).await.ok()?;
                // Best effort: a later process removes the database otherwise.
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
    Client::with_options(options).map_err(SupportError::mongo("connection string"))
}

fn fresh_name(number: u64) -> String {
    // The server allows 63 bytes.
    format!(
        "{PREFIX}_{}_{}_{number}_{:08x}",
        now().as_secs(),
        process::id(),
        random() & 0xffff_ffff
    )
}

/// Removes old databases of tests, once per process. If the user may not list the databases, they stay.
async fn sweep(uri: &str) {
    static SWEPT: OnceCell<()> = OnceCell::const_new();
    let sweeping = async || {
        let Ok(client) = Client::with_uri_str(uri).await else {
            return;
        };
        let names = client.list_database_names().await.unwrap_or_default();
        for name in names.iter().filter(|name| is_left_behind(name, now())) {
            let _ = client.database(name).drop().await;
        }
        close(client).await;
    };
    SWEPT.get_or_init(sweeping).await;
}

fn is_left_behind(name: &str, now: Duration) -> bool {
    let made = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split('_').nth(1)?.parse().ok());
    made.is_some_and(|made| Duration::from_secs(made) + LEFT_BEHIND < now)
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{LEFT_BEHIND, fresh_name, is_left_behind, now};

    #[test]
    fn only_old_databases_of_tests_are_swept() {
        let name = fresh_name(0);
        assert!(name.len() < 64, "{name}");
        assert!(!is_left_behind(&name, now()));
        assert!(is_left_behind(&name, now() + LEFT_BEHIND * 2));
        assert!(!is_left_behind("app_1_2_3", now()));
        assert!(!is_left_behind("mongolock_testing_plan", now()));
    }
}
