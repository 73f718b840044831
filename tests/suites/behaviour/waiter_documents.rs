//! The collection in which waiters have their documents.

use mongodb::bson::{Bson, Document, doc};
use mongodb::{Collection, Database};
use mongolock_tests::{AMPLE, Commands, eventually, must};

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

/// Waits until a process stands in the line of a lock.
pub(crate) async fn until_in_line(database: &Database, name: &str) {
    let in_line = || async { (!line(database, name).await.is_empty()).then_some(()) };
    must(eventually(AMPLE, "a process in the line", in_line).await);
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
pub(crate) fn on_waiters(commands: &Commands) -> Vec<Document> {
    let mut sent = commands.all();
    sent.retain(|command| command.values().next().and_then(Bson::as_str) == Some(NAME));
    sent
}
