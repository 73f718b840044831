//! Fenced collections: writes that carry a fencing token, and are rejected when it is stale (S1.20).

mod collisions;
mod driver;
mod model;
mod writes;

use std::fmt::Debug;

use mongodb::bson::{Document, doc};
use mongodb::options::IndexOptions;
use mongodb::{Collection, IndexModel};
use mongolock::{FencedCollection, FencedExt, FencingToken, LockError};
use mongolock_tests::{TestDb, test_db};

/// A collection with one document, which the holder of token 10 has written.
struct Scene {
    db: TestDb,
    reports: Collection<Document>,
}

impl Scene {
    async fn new() -> Self {
        let db = test_db().await;
        let reports = db.database().collection("reports");
        let written = doc! { "_id": 1, "title": "old", "fencingToken": 10_i64 };
        reports.insert_one(written).await.unwrap();
        Self { db, reports }
    }

    fn holder(&self, token: i64) -> FencedCollection<Document> {
        self.reports.fenced(FencingToken::from(token))
    }

    async fn all(&self) -> Vec<Document> {
        let mut all = Vec::new();
        let mut found = self.reports.find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap();
        while found.advance().await.unwrap() {
            all.push(found.deserialize_current().unwrap());
        }
        all
    }

    /// Asserts that a write with token 9 is rejected as stale and changes nothing.
    async fn refuses<T: Debug>(&self, write: impl IntoFuture<Output = Result<T, LockError>>) {
        let before = self.all().await;
        let refused = write.await;
        let is_stale = matches!(&refused, Err(LockError::Stale { token, seen, .. }) if token.get() == 9 && seen.get() == 10);
        assert!(is_stale, "{refused:?}");
        assert_eq!(self.all().await, before);
    }
}

fn first() -> Document {
    doc! { "_id": 1 }
}

fn retitle() -> Document {
    doc! { "$set": { "title": "new" } }
}

/// Creates a unique index on a field. Documents without the field are not in it.
async fn unique_index(reports: &Collection<Document>, field: &str) {
    let unique = IndexOptions::builder().unique(true).sparse(true).build();
    let index = IndexModel::builder().keys(doc! { field: 1 });
    let creating = reports.create_index(index.options(unique).build());
    creating.await.unwrap();
}

fn is_duplicate_key<T: Debug>(result: &Result<T, LockError>) -> bool {
    matches!(result, Err(LockError::Mongo(error)) if error.to_string().contains("E11000"))
}
