//! The collection in which waiters have their documents.

use mongodb::bson::{Document, doc};
use mongodb::{Collection, Database};
use mongolock::LockProvider;
use mongolock_tests::{AMPLE, eventually, must};

const NAME: &str = "distributed_locks.waiters";

pub(crate) fn waiters(database: &Database) -> Collection<Document> {
    database.collection(NAME)
}

/// The owners of the waiters for a lock, in the order of their places.
pub(crate) async fn line(database: &Database, name: &str) -> Vec<String> {
    let waiting = doc! { "name": name, "since": { "$ne": null } };
    let mut found = waiters(database)
        .find(waiting)
        .sort(doc! { "at": 1 })
        .await
        .unwrap();
    let mut owners = Vec::new();
    while found.advance().await.unwrap() {
        owners.push(found.current().get_str("owner").unwrap().to_owned());
    }
    owners
}

/// Waits until so many calls of a process wait, and the process stands in the line of this lock if there are lines.
pub(crate) async fn until_in_line(process: &LockProvider, calls: usize, database: &Database, name: &str) {
    let in_line = || async {
        let is_in_line = cfg!(feature = "next") || !line(database, name).await.is_empty();
        (is_in_line && process.health().await.waiting >= calls).then_some(())
    };
    must(eventually(AMPLE, "a process that waits in line", in_line).await);
}

/// The number of documents.
pub(crate) async fn count(waiters: &Collection<Document>) -> u64 {
    waiters.count_documents(doc! {}).await.unwrap()
}

/// Waits until all waiters have removed their documents.
pub(crate) async fn until_empty(waiters: &Collection<Document>) {
    let is_empty = || async { (count(waiters).await == 0).then_some(()) };
    must(eventually(AMPLE, "no document of a waiter", is_empty).await);
}

/// The commands on the collection.
#[cfg(not(feature = "next"))]
pub(crate) fn on_waiters(commands: &mongolock_tests::Commands) -> Vec<Document> {
    let mut sent = commands.all();
    sent.retain(|command| command.values().next().and_then(mongodb::bson::Bson::as_str) == Some(NAME));
    sent
}
