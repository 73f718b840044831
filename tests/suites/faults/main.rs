//! Faults: a bad network, failing commands, lost members of a replica set, killed and stopped processes.

mod access;
mod act;
mod actor;
mod at_each_step;
mod at_each_tick;
mod blocked_documents;
mod callers;
mod cancellation;
mod clocks;
mod commits;
mod elections;
mod ends;
mod gathered;
mod handed_over;
mod health;
mod hosts;
mod index_build;
mod late;
mod leader;
mod line;
mod many_leases;
mod marks;
mod new_connections;
mod orderly_end;
mod processes;
mod refusals;
mod renewals;
mod runtimes;
mod silent_connections;
mod soak;
mod unreachable;

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::{Client, ClientSession, Database};
use mongolock::{IndexState, LockContext, LockGuard, LockProvider};
use mongolock_tests::{
    AMPLE, BEFORE_EXPIRY, FailPoint, FailPointGuard, LentServer, Proxy, TestDb, eventually, lock_document,
    locks, must, stable_options, test_db, transaction_on, with_parameter,
};
use tokio::time::timeout;

/// The default `expiry` of a lock.
const DEFAULT_EXPIRY: Duration = Duration::from_secs(30);

/// The `expiry` of locks whose release a test must observe: 60 s, longer than the test waits for them.
const LONG_EXPIRY: Duration = Duration::from_secs(60);

/// The time within which a request on another connection must have replaced a silent one: 6 s, which is one repetition after 2 s
/// and 4 s for a slow machine.
const ONE_REPEAT: Duration = Duration::from_secs(6);

/// The error code of a primary that steps down (`PrimarySteppedDown`): the library repeats such a command.
const STEPPED_DOWN: i32 = 189;

/// A proxy in front of the server, and the test's database through it. After an error of a server that steps down the driver
/// waits for the next heartbeat, by default for up to 10 s.
async fn through_proxy(db: &TestDb) -> (Proxy, Database) {
    let proxy = must(db.proxy().await);
    let uri = with_parameter(&proxy.uri(), "heartbeatFrequencyMS=500");
    let database = connect(&uri, db.name()).await;
    (proxy, database)
}

/// A database behind a proxy, and a provider through it whose connections are open.
struct Proxied {
    provider: LockProvider,
    database: Database,
    proxy: Proxy,
    /// The same database without the proxy. It ends when this value is dropped, so it is the last field.
    db: TestDb,
}

impl Proxied {
    /// The locks of the provider have this expiry.
    async fn start(expiry: Duration) -> Self {
        let db = test_db().await;
        let (proxy, database) = through_proxy(&db).await;
        let provider = with_expiry(&database, expiry);
        warm_up(&provider).await;
        Self {
            provider,
            database,
            proxy,
            db,
        }
    }

    /// A provider of another process, whose connections work.
    fn rival(&self) -> LockProvider {
        LockProvider::new(self.db.database())
    }
}

/// A standalone server for this test, with a proxy in front of it: the driver repeats no command on such a server.
struct Standalone {
    /// The database `app` through the proxy.
    proxied: Database,
    /// The same database without the proxy.
    direct: Database,
    proxy: Proxy,
    /// Another test may have the server when this value is dropped, so it is the last field.
    server: LentServer,
}

impl Standalone {
    async fn start() -> Self {
        let server = must(LentServer::standalone().await);
        let proxy = Proxy::start(server.node().address()).await.unwrap();
        Self {
            proxied: connect(&proxy.uri(), "app").await,
            direct: connect(&server.uri(), "app").await,
            proxy,
            server,
        }
    }

    /// The server, and a provider through the proxy, whose locks have this expiry and whose connections are open.
    async fn with_provider(expiry: Duration) -> (Self, LockProvider) {
        let server = Self::start().await;
        let provider = with_expiry(&server.proxied, expiry);
        warm_up(&provider).await;
        (server, provider)
    }
}

/// An address of this machine at which nothing listens.
const CLOSED: &str = "127.0.0.1:1";

/// A database of this name through a new client with the Stable API, whose application name is the same.
async fn connect(uri: &str, name: &str) -> Database {
    let mut options = must(stable_options(uri).await);
    options.app_name = Some(name.to_owned());
    Client::with_options(options).unwrap().database(name)
}

/// A provider that waits for locks up to [`AMPLE`].
fn patient(database: &Database) -> LockProvider {
    let builder = LockProvider::builder(database).acquire_timeout(AMPLE);
    builder.build().unwrap()
}

/// A provider whose locks have this expiry.
fn with_expiry(database: &Database, expiry: Duration) -> LockProvider {
    LockProvider::builder(database).expiry(expiry).build().unwrap()
}

/// Sets a fail point for the clients of this test.
async fn fail(db: &TestDb, point: FailPoint) -> FailPointGuard {
    must(point.enable_for(db).await)
}

/// A transaction of another process that has changed the documents of these locks.
async fn foreign_transaction(db: &TestDb, names: &[impl AsRef<str>]) -> ClientSession {
    transaction_on(&db.connect_again().await.unwrap(), names).await
}

/// The document of a lock, which must exist.
async fn document(database: &Database, name: &str) -> Document {
    let found = lock_document(database, name).await;
    found.expect("the document exists")
}

/// Whether no process holds the lock, by its document.
async fn is_released(database: &Database, name: &str) -> bool {
    document(database, name).await.get_str("lockId") == Ok("")
}

/// Asserts that the documents of a hold store its tokens. A permit has none.
async fn assert_stores_its_tokens(database: &Database, context: &LockContext) {
    for name in context.names() {
        if let Some(token) = context.fencing_token_of(name) {
            let stored = document(database, name).await.get_i64("fencingToken");
            assert_eq!(stored, Ok(token.get()), "{name}");
        }
    }
}

/// The number of locks and permits that have a claim, whoever has made it.
async fn claims(database: &Database) -> u64 {
    let held = doc! { "lockId": { "$ne": "" } };
    locks(database).count_documents(held).await.unwrap()
}

/// Waits until nothing has a claim.
async fn until_none_is_held(database: &Database, limit: Duration) {
    let free = async || (claims(database).await == 0).then_some(());
    must(eventually(limit, "no claim is left", free).await);
}

/// Acquires a lock that is free, or becomes free for another reason than the end of a lease of 30 s.
async fn acquire_soon(provider: &LockProvider, name: &str) -> LockGuard {
    let lock = provider.lock(name).acquire_timeout(None);
    let acquired = timeout(BEFORE_EXPIRY, lock.acquire()).await;
    acquired
        .expect("the lock is free long before a lease would end")
        .unwrap()
}

/// Asserts that a lock is free, or becomes free for another reason than the end of a lease of 30 s.
async fn assert_free(provider: &LockProvider, name: &str) {
    acquire_soon(provider, name).await.release().await.unwrap();
}

/// Opens connections and waits for the index, whose commands must not meet a fault that is meant for the test's own.
async fn warm_up(provider: &LockProvider) {
    assert_free(provider, "warm").await;
    until_indexed(provider).await;
}

/// Waits until the index exists: its creation would wait for an open transaction, and all later commands on the
/// collection would wait for the creation.
async fn until_indexed(provider: &LockProvider) {
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
}
