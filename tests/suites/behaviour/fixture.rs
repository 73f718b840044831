//! The fixture of this suite: a provider with a database for one test, a rival in another process, and helpers for
//! locks.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection, Database};
use mongolock::{DistributedLock, IndexState, LockError, LockProvider};
use mongolock_tests::{
    AMPLE, BEFORE_EXPIRY, Commands, Server, TestDb, lock_document, locks, must, recorded, stable_client,
    stable_options, test_db,
};
use tokio::time::timeout;

/// The error of a program that uses locks.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppError {
    #[error("the body failed")]
    Body,
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// A provider whose locks no other test uses: in a database for this test, or in memory.
pub(crate) struct Fixture {
    pub(crate) provider: LockProvider,
    db: Option<TestDb>,
}

/// Where the locks of a fixture are, for a provider in another runtime.
pub(crate) enum Place {
    Memory(LockProvider),
    MongoDb { uri: &'static str, database: String },
}

impl Place {
    /// A provider for the same locks, on a client of the calling runtime.
    pub(crate) async fn provider(self) -> LockProvider {
        match self {
            Self::Memory(provider) => provider.to_builder().build().unwrap(),
            Self::MongoDb { uri, database } => {
                let client = must(stable_client(uri).await);
                patient(&client.database(&database))
            }
        }
    }
}

impl Fixture {
    pub(crate) async fn mongodb() -> Self {
        let db = test_db().await;
        Self {
            provider: patient(db.database()),
            db: Some(db),
        }
    }

    pub(crate) fn memory() -> Self {
        let builder = LockProvider::in_memory().to_builder().acquire_timeout(AMPLE);
        let provider = builder.build().unwrap();
        Self { provider, db: None }
    }

    pub(crate) fn place(&self) -> Place {
        match &self.db {
            None => Place::Memory(self.provider.clone()),
            Some(db) => Place::MongoDb {
                uri: db.uri(),
                database: db.name().to_owned(),
            },
        }
    }

    /// A provider for the same locks, as another process would have it.
    pub(crate) fn rival(&self) -> LockProvider {
        self.process("rival")
    }

    /// A provider for the same locks in another process that runs as this owner.
    pub(crate) fn process(&self, owner: &str) -> LockProvider {
        self.provider.to_builder().owner(owner).build().unwrap()
    }

    pub(crate) fn db(&self) -> &TestDb {
        self.db.as_ref().expect("the fixture has a database")
    }

    pub(crate) fn database(&self) -> &Database {
        self.db().database()
    }

    pub(crate) fn locks(&self) -> Collection<Document> {
        locks(self.database())
    }

    /// Waits for the TTL index. Tests that count commands or documents call it first, because creating the index on a
    /// filled collection sends commands and writes a document of its own.
    pub(crate) async fn until_indexed(&self) {
        assert_eq!(self.provider.admin().index_state().await, IndexState::Ready);
    }

    /// A patient provider of another process that has had its first lock, and the commands that it sends from then on.
    pub(crate) async fn recorded_patient(&self) -> (LockProvider, Commands) {
        self.until_indexed().await;
        let (database, commands) = recorded(self.db(), &[]).await;
        let provider = patient(&database);
        acquire_and_release(&provider.lock("warm")).await;
        commands.clear();
        (provider, commands)
    }

    pub(crate) async fn document(&self, name: &str) -> Option<Document> {
        lock_document(self.database(), name).await
    }
}

/// A provider that waits for locks without a limit that matters to the test.
pub(crate) fn patient(database: &Database) -> LockProvider {
    let builder = LockProvider::builder(database).acquire_timeout(AMPLE);
    builder.build().unwrap()
}

/// A provider for the same locks that renews its leases so often.
pub(crate) fn renewing(provider: &LockProvider, interval: Duration) -> LockProvider {
    provider.to_builder().renew_interval(interval).build().unwrap()
}

pub(crate) async fn acquire_and_release(lock: &DistributedLock) {
    let guard = lock.acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// Asserts that the lock was released: it can be acquired long before a lease of 30 s would end.
pub(crate) async fn assert_released(lock: &DistributedLock) {
    timeout(BEFORE_EXPIRY, acquire_and_release(lock))
        .await
        .expect("the lock was released");
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
