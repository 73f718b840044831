//! Faults: a bad network, failing commands, lost members of a replica set, killed and stopped processes.

mod actor;
mod blocked_documents;
mod cancellation;
mod clocks;
mod commands;
mod detached;
mod error_reports;
mod exempt_client;
mod full_disk;
mod gathered;
mod handed_over;
mod health;
mod index_build;
mod late_commands;
mod late_replies;
mod line;
mod lock_sets;
mod log_in;
mod many_leases;
mod marks;
mod network;
mod new_connections;
mod noted;
mod observed;
mod orderly_end;
mod outage;
mod overload;
mod overload_load;
mod paused;
mod permits;
mod processes;
mod replica_set;
mod runtimes;
mod silent_commits;
mod silent_connections;
mod ticks;
mod unreachable;
mod worker;
mod write_concern;
mod wrong_password;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use mongodb::bson::Document;
use mongodb::{Client, Database};
use mongolock::{IndexState, LockGuard, LockProvider};
use mongolock_tests::{
    AMPLE, BEFORE_EXPIRY, FailPoint, FailPointGuard, Proxy, Server, ServerOptions, TestDb, lock_document,
    must, stable_options,
};
use tokio::time::timeout;

/// The default `expiry` of a lock.
const DEFAULT_EXPIRY: Duration = Duration::from_secs(30);

/// The `expiry` of locks whose release a test must observe: 60 s, longer than the test waits for them.
const LONG_EXPIRY: Duration = Duration::from_secs(60);

/// The error code of a primary that steps down (`PrimarySteppedDown`): the library repeats such a command.
const STEPPED_DOWN: i32 = 189;

/// The error code of a command that the server has ended at its time limit (`MaxTimeMSExpired`).
const MAX_TIME_EXPIRED: i32 = 50;

/// A proxy in front of the server, and the test's database through it.
async fn through_proxy(db: &TestDb) -> (Proxy, Database) {
    let proxy = must(db.proxy().await);
    let database = connect(&proxy.uri(), db.name()).await;
    (proxy, database)
}

/// A standalone server for one test, with a proxy in front of it: the driver repeats no command on such a server.
struct Standalone {
    /// The database `app` through the proxy.
    proxied: Database,
    /// The same database without the proxy.
    direct: Database,
    proxy: Proxy,
    /// The server ends when this value is dropped, so it is the last field.
    server: Server,
}

impl Standalone {
    async fn start() -> Self {
        let server = Server::start(ServerOptions::standalone()).await.unwrap();
        let proxy = Proxy::start(server.node().address()).await.unwrap();
        Self {
            proxied: connect(&proxy.uri(), "app").await,
            direct: connect(&server.uri(), "app").await,
            proxy,
            server,
        }
    }

    /// The connection string without the proxy.
    fn uri(&self) -> String {
        self.server.uri()
    }
}

/// An address of this machine at which nothing listens.
fn closed_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

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

/// A provider for the same locks that renews its leases so often.
fn renewing(provider: &LockProvider, interval: Duration) -> LockProvider {
    provider.to_builder().renew_interval(interval).build().unwrap()
}

/// A provider whose locks have this expiry.
fn with_expiry(database: &Database, expiry: Duration) -> LockProvider {
    LockProvider::builder(database).expiry(expiry).build().unwrap()
}

/// Sets a fail point for the clients of this test.
async fn fail(db: &TestDb, point: FailPoint) -> FailPointGuard {
    must(point.enable_for(db).await)
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

/// Asserts that the document of a held lock stores the token of its holder.
async fn assert_stores_its_token(database: &Database, guard: &LockGuard) {
    let stored = document(database, guard.name()).await.get_i64("fencingToken");
    assert_eq!(stored, Ok(guard.fencing_token().get()));
}

/// Acquires a lock that is free, or becomes free for another reason than the end of a lease of 30 s.
async fn acquire_soon(provider: &LockProvider, name: &str) -> LockGuard {
    let lock = provider.lock(name).acquire_timeout(None);
    timeout(BEFORE_EXPIRY, lock.acquire())
        .await
        .expect("the lock is free long before a lease would end")
        .unwrap()
}

/// Asserts that a lock is free, or becomes free for another reason than the end of a lease of 30 s.
async fn assert_free(provider: &LockProvider, name: &str) {
    acquire_soon(provider, name).await.release().await.unwrap();
}

/// Opens connections and waits for the index. The index task claims an internal lock with the same command as any lock,
/// and that command must not meet a fault that is meant for the test's own claim.
async fn warm_up(provider: &LockProvider) {
    assert_free(provider, "warm").await;
    until_indexed(provider).await;
}

/// Waits until the index exists: its creation would wait for an open transaction, and all later commands on the
/// collection would wait for the creation.
async fn until_indexed(provider: &LockProvider) {
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
}
