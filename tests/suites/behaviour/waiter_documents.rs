//! The collection in which waiters and notes have their documents.

use mongodb::bson::{Bson, Document, doc};
use mongodb::{Collection, Database};
use mongolock_tests::{AMPLE, Commands, eventually, must};

const NAME: &str = "distributed_locks.waiters";

pub(crate) fn waiters(database: &Database) -> Collection<Document> {
    database.collection(NAME)
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
