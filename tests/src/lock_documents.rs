//! The documents in which mongolock stores locks, as another program reads and changes them.

use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::{ClientSession, Collection, Database};

use crate::error::must;

/// The default collection of locks.
pub fn locks(database: &Database) -> Collection<Document> {
    database.collection("distributed_locks")
}

/// The document of a lock, if there is one.
pub async fn lock_document(database: &Database, name: &str) -> Option<Document> {
    must(locks(database).find_one(doc! { "_id": name }).await)
}

/// A lease of this claim with token 17, which ends so many milliseconds from now.
pub fn claim(name: impl Into<Bson>, lock_id: impl Into<Bson>, lasts: i64) -> Document {
    let now = DateTime::now();
    let end = DateTime::from_millis(now.timestamp_millis() + lasts);
    doc! { "_id": name, "lockId": lock_id, "acquiredAt": now, "expiresAt": end, "fencingToken": 17_i64 }
}

/// Changes the document of a lock, which must exist.
pub async fn change_lock(database: &Database, name: &str, update: Document) {
    let locks = locks(database);
    let changed = must(locks.update_one(doc! { "_id": name }, vec![update]).await);
    assert_eq!(changed.matched_count, 1, "the lock `{name}` has a document");
}

/// An open transaction of another client that has changed the documents of these locks. Until it ends, every other
/// write to them waits in the server.
pub async fn transaction_on(database: &Database, names: &[impl AsRef<str>]) -> ClientSession {
    let mut session = must(database.client().start_session().await);
    must(session.start_transaction().await);
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let touch = doc! { "$set": { "touched": true } };
    let locks = locks(database);
    let touching = locks.update_many(doc! { "_id": { "$in": &names } }, touch);
    let touched = must(touching.session(&mut session).await);
    assert_eq!(touched.modified_count, names.len() as u64);
    session
}
