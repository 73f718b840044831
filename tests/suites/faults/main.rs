//! What happens when things go wrong: a bad network, failing commands, lost members, killed and stopped processes.

mod actor;
mod blocked_documents;
mod cancellation;
mod commands;
mod handed_over;
mod index_build;
mod late_commands;
mod log_in;
mod network;
mod outage;
mod paused;
mod processes;
mod replica_set;
mod runtimes;
mod silent_commits;
mod silent_connections;
mod write_concern;

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, ClientSession, Database};
use mongolock::{IndexState, LockGuard, LockProvider};
use mongolock_tests::{Proxy, TestDb, shared};
use tokio::time::timeout;

/// Longer than anything takes, so that a deadline missed is a defect and not a slow machine.
const AMPLE: Duration = Duration::from_secs(60);

/// A proxy in front of the shared server, and the test's database through it.
async fn through_proxy(db: &TestDb) -> (Proxy, Database) {
    let server = shared()
        .await
        .unwrap()
        .server()
        .expect("fault tests need a server of their own: unset MONGODB_URI");
    let proxy = Proxy::start(server.node().address()).await.unwrap();
    let database = connect(&proxy.uri(), db.name()).await;
    (proxy, database)
}

async fn connect(uri: &str, name: &str) -> Database {
    let mut options = ClientOptions::parse(uri).await.unwrap();
    options.app_name = Some(name.to_owned());
    Client::with_options(options).unwrap().database(name)
}

fn with_parameter(uri: &str, parameter: &str) -> String {
    let separator = if uri.contains('?') { '&' } else { '?' };
    format!("{uri}{separator}{parameter}")
}

async fn document(database: &Database, name: &str) -> Document {
    let locks = database.collection::<Document>("distributed_locks");
    locks
        .find_one(doc! { "_id": name })
        .await
        .unwrap()
        .expect("the document is there")
}

/// Acquires a lock that must be free, or become so by other means than an expiry of half a minute.
async fn acquire_soon(provider: &LockProvider, name: &str) -> LockGuard {
    let lock = provider.lock(name).acquire_timeout(None);
    timeout(Duration::from_secs(15), lock.acquire())
        .await
        .expect("nothing stands in the way")
        .unwrap()
}

/// Opens connections and waits for the index, whose internal lock is claimed with the same command as any lock: it must
/// not meet a fault that is meant for the test's own claim.
async fn warm_up(provider: &LockProvider) {
    acquire_soon(provider, "warm").await.release().await.unwrap();
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
}

/// An open transaction of another client that has changed the documents of these locks.
async fn transaction_on(foreign: &Database, names: &[impl AsRef<str>]) -> ClientSession {
    let mut session = foreign.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let locks = foreign.collection::<Document>("distributed_locks");
    let touch = doc! { "$set": { "touched": true } };
    let touched = locks
        .update_many(doc! { "_id": { "$in": &names } }, touch)
        .session(&mut session)
        .await
        .unwrap();
    assert_eq!(touched.modified_count, names.len() as u64);
    session
}
