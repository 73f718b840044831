//! The fixture of this suite: a provider with a database for one test, a rival in another process, and helpers for
//! locks.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection, Database};
use mongolock::{
    DistributedLock, IndexState, LockError, LockInfo, LockProvider, LockState, LossReason, blocking,
};
use mongolock_tests::{
    AMPLE, BEFORE_EXPIRY, Commands, Server, TestDb, eventually, lock_document, locks, must, recorded,
    stable_client, stable_options, test_db,
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
    db: Option<Arc<TestDb>>,
}

impl Fixture {
    pub(crate) async fn mongodb() -> Self {
        let db = test_db().await;
        Self {
            provider: patient(db.database()),
            db: Some(Arc::new(db)),
        }
    }

    pub(crate) fn memory() -> Self {
        let builder = LockProvider::in_memory().to_builder().acquire_timeout(AMPLE);
        let provider = builder.build().unwrap();
        Self { provider, db: None }
    }

    /// A fixture of the same place, whose provider is another one.
    pub(crate) fn another(&self) -> Self {
        Self {
            provider: self.with(|options| options),
            db: self.db.clone(),
        }
    }

    /// A provider of a program without async code, and a fixture of the same place.
    pub(crate) fn threads(&self) -> (blocking::LockProvider, Self) {
        if self.db.is_some() {
            let locks =
                blocking::LockProvider::connect_with(self.uri(), |options| options.acquire_timeout(AMPLE));
            return (locks.unwrap(), self.another());
        }
        let locks = blocking::LockProvider::in_memory().unwrap();
        let builder = locks.provider().to_builder().acquire_timeout(AMPLE);
        let provider = builder.build().unwrap();
        (locks, Self { provider, db: None })
    }

    /// The connection string that names the database.
    pub(crate) fn uri(&self) -> String {
        let (hosts, options) = self.db().uri().split_once("/?").expect("it has options");
        format!("{hosts}/{}?{options}", self.db().name())
    }

    /// Runs this in another process, which then crashes: its runtime ends, and it sends nothing any more.
    pub(crate) async fn in_crashing_process<F: Future<Output: Send + 'static>>(
        &self,
        body: impl FnOnce(LockProvider) -> F + Send + 'static,
    ) -> F::Output {
        let memory = self.provider.clone();
        let server = self.db.as_ref().map(|db| (db.uri(), db.name().to_owned()));
        let crashing = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let provider = match server {
                    None => memory,
                    Some((uri, database)) => patient(&must(stable_client(uri).await).database(&database)),
                };
                let builder = provider.to_builder().owner("crashed");
                body(builder.build().unwrap()).await
            })
        });
        crashing.await.unwrap()
    }

    /// A provider for the same locks, as another process would have it.
    pub(crate) fn rival(&self) -> LockProvider {
        self.process("rival")
    }

    /// A provider for the same locks in another process that runs as this owner.
    pub(crate) fn process(&self, owner: &str) -> LockProvider {
        self.with(|options| options.owner(owner))
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
        // The check that the first call has begun has ended.
        assert_eq!(provider.admin().index_state().await, IndexState::Ready);
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

/// What the future returns, which a correct program does long before the limit.
pub(crate) async fn in_time<T>(future: impl IntoFuture<Output = T>) -> T {
    timeout(AMPLE, future).await.expect("it ends")
}

/// Asserts that the lock was released: it can be acquired long before a lease of 30 s would end.
pub(crate) async fn assert_released(lock: &DistributedLock) {
    let released = timeout(BEFORE_EXPIRY, acquire_and_release(lock)).await;
    released.expect("the lock was released");
}

/// What this provider sees of a lock that has a document.
pub(crate) async fn info(provider: &LockProvider, name: &str) -> LockInfo {
    let info = provider.admin().get(name).await.unwrap();
    info.expect("the lock has a document")
}

pub(crate) async fn until_expired(provider: &LockProvider, name: &str) -> LockInfo {
    let expired = async || Some(info(provider, name).await).filter(|info| info.state == LockState::Expired);
    must(eventually(AMPLE, "the end of the lease", expired).await)
}

/// Asserts that the call reports a loss for this reason.
pub(crate) fn assert_lost<T>(result: Result<T, LockError>, expected: LossReason) {
    match result {
        Err(error @ LockError::Lost { reason, .. }) => assert_eq!(reason, expected, "{error}"),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("the hold is not lost"),
    }
}

/// The option that the call refuses.
pub(crate) fn refused_option<T>(result: Result<T, LockError>) -> &'static str {
    match result {
        Err(LockError::InvalidOption { option, .. }) => option,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("no option is refused"),
    }
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
