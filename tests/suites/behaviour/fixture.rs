//! The fixture of this suite: a provider with a database for one test, a rival in another process, and helpers for
//! locks.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document};
use mongodb::{Collection, Database};
use mongolock::{
    DistributedLock, IndexState, LockError, LockGuard, LockInfo, LockProvider, LockProviderBuilder,
    LockState, LossReason, blocking,
};
use mongolock_tests::{
    AMPLE, BEFORE_EXPIRY, Commands, TestDb, claim, eventually, lock_document, locks, must, recorded,
    stable_client, test_db,
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

    /// Has another process acquire this lock, which then crashes: its runtime ends, and it sends nothing any more.
    pub(crate) async fn crash_holding(&self, name: &'static str, expiry: Duration) {
        self.crash_holding_as("crashed", name, expiry).await;
    }

    /// The same for a process that runs as this owner.
    pub(crate) async fn crash_holding_as(&self, owner: &'static str, name: &'static str, expiry: Duration) {
        let memory = self.provider.clone();
        let server = self.db.as_ref().map(|db| (db.uri(), db.name().to_owned()));
        let crashing = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let provider = match server {
                    None => memory,
                    Some((uri, database)) => patient(&must(stable_client(uri).await).database(&database)),
                };
                let provider = provider.to_builder().owner(owner).build().unwrap();
                let lock = provider.lock(name).expiry(expiry).max_hold(Duration::ZERO);
                std::mem::forget(lock.acquire().await.unwrap());
            });
        });
        crashing.await.unwrap();
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

    /// Waits for the TTL index. Tests that count commands call it first, because creating the index sends some.
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

    /// The lock as an operator sees it, who must find a document.
    pub(crate) async fn info(&self, name: &str) -> LockInfo {
        info(&self.provider, name).await
    }

    /// Whether another process can acquire the lock, which releases it at once.
    pub(crate) async fn is_free(&self, name: &str) -> bool {
        let acquired = self.rival().lock(name).try_acquire().await.unwrap();
        let is_free = acquired.is_some();
        if let Some(guard) = acquired {
            guard.release().await.unwrap();
        }
        is_free
    }

    /// The `lockId` in the document of the lock.
    pub(crate) async fn lock_id(&self, name: &str) -> String {
        let document = self.document(name).await.expect("the lock has a document");
        document.get_str("lockId").unwrap().to_owned()
    }

    /// A date in the document of the lock, in milliseconds since the epoch.
    pub(crate) async fn millis(&self, name: &str, field: &str) -> i64 {
        millis(&self.document(name).await.unwrap(), field)
    }

    /// A provider for the same locks, in another process.
    pub(crate) fn with(
        &self,
        options: impl FnOnce(LockProviderBuilder) -> LockProviderBuilder,
    ) -> LockProvider {
        options(self.provider.to_builder()).build().unwrap()
    }

    /// A patient provider whose commands are recorded, and for whose client the fail points of the test are.
    pub(crate) async fn recorded(
        &self,
        options: impl FnOnce(LockProviderBuilder) -> LockProviderBuilder,
    ) -> (LockProvider, Commands) {
        let (database, commands) = self.recorded_database().await;
        let builder = LockProvider::builder(&database).acquire_timeout(AMPLE);
        (options(builder).build().unwrap(), commands)
    }

    /// The database with its TTL index, for which nothing is sent any more, through such a client.
    pub(crate) async fn recorded_database(&self) -> (Database, Commands) {
        self.until_indexed().await;
        recorded(self.db(), &[]).await
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

/// Waits for the end of a lease that its holder does not release.
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

/// A date of a document, in milliseconds since the epoch.
pub(crate) fn millis(document: &Document, field: &str) -> i64 {
    document.get_datetime(field).unwrap().timestamp_millis()
}

/// The fields of the document of each lock.
pub(crate) const FIELDS: [&str; 5] = ["_id", "acquiredAt", "expiresAt", "fencingToken", "lockId"];

/// The fields of a document, sorted.
pub(crate) fn fields(document: &Document) -> Vec<&str> {
    let mut fields: Vec<&str> = document.keys().map(String::as_str).collect();
    fields.sort_unstable();
    fields
}

/// The `lockId` of a claim of DistributedLock.MongoDB, which names no owner.
pub(crate) const GUID: &str = "0b8e3f3a-6d0c-4a53-a3a4-5f0f6a5c3c11";

/// A lock that DistributedLock.MongoDB holds for ten minutes.
pub(crate) fn foreign(name: impl Into<Bson>) -> Document {
    claim(name, GUID, 600_000)
}

/// Acquires these locks, one after the other.
pub(crate) async fn hold_all(
    provider: &LockProvider,
    names: impl IntoIterator<Item: Display>,
) -> Vec<LockGuard> {
    let mut held = Vec::new();
    for name in names {
        held.push(provider.lock(name).await.unwrap());
    }
    held
}

/// Expects that the holder of a lock that is gone notices it within this time.
pub(crate) async fn until_lost(guard: &LockGuard, limit: Duration) {
    let lost = timeout(limit, guard.lost()).await;
    lost.expect("the holder notices the loss");
}
