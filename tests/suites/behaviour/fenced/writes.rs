//! Fenced writes store their token, and a document rejects a smaller one (S1.20).

use mongodb::Collection;
use mongodb::bson::{bson, doc};
use mongolock::{FencedExt, FencingToken, LockError};
use serde::{Deserialize, Serialize};

use super::{Scene, first, retitle};

#[tokio::test]
async fn every_write_carries_the_token() {
    let scene = Scene::new().await;
    let inserted = scene.holder(11).insert_one(doc! { "_id": 2 }).await.unwrap();
    assert_eq!(inserted.inserted_id, bson!(2));
    let updated = scene.holder(12).update_one(first(), retitle()).await.unwrap();
    assert_eq!((updated.matched_count, updated.modified_count), (1, 1));
    assert_eq!(updated.upserted_id, None);
    assert_eq!(
        scene.all().await,
        [
            doc! { "_id": 1, "title": "new", "fencingToken": 12_i64 },
            doc! { "_id": 2, "fencingToken": 11_i64 },
        ]
    );
    let stages = vec![doc! { "$replaceWith": { "_id": "$_id", "shout": { "$toUpper": "$title" } } }];
    scene.holder(13).update_one(first(), stages).await.unwrap();
    scene
        .expect_first(doc! { "_id": 1, "shout": "NEW", "fencingToken": 13_i64 })
        .await;
    let holder = scene.holder(14);
    let replaced = holder.replace_one(first(), doc! { "a": 1 }).await.unwrap();
    assert_eq!((replaced.matched_count, replaced.modified_count), (1, 1));
    scene
        .expect_first(doc! { "_id": 1, "a": 1, "fencingToken": 14_i64 })
        .await;
    let deleted = holder.delete_one(first()).await.unwrap();
    assert_eq!(deleted.deleted_count, 1);

    let holder = scene.holder(15);
    let upserted = holder.update_one(first(), retitle()).upsert(true).await.unwrap();
    assert_eq!(
        (upserted.matched_count, upserted.upserted_id),
        (0, Some(bson!(1)))
    );
    scene
        .expect_first(doc! { "_id": 1, "title": "new", "fencingToken": 15_i64 })
        .await;
    let third = holder.replace_one(doc! { "_id": 3 }, doc! { "title": "third" });
    let upserted = third.upsert(true).await.unwrap();
    assert_eq!(upserted.upserted_id, Some(bson!(3)));
    let stored = doc! { "_id": 3, "title": "third", "fencingToken": 15_i64 };
    assert_eq!(scene.all().await[2], stored);
}

/// S1.20: a smaller token is rejected, by every form of write.
#[tokio::test]
async fn a_stale_holder_is_refused() {
    let scene = Scene::new().await;
    let (late, title) = (scene.holder(9), || doc! { "title": "late" });
    scene.refuses(late.insert_one(first())).await;
    scene.refuses(late.update_one(first(), retitle())).await;
    scene.refuses(late.update_one(first(), vec![retitle()])).await;
    scene.refuses(late.replace_one(first(), title())).await;
    scene.refuses(late.delete_one(first())).await;
    // The same `_id`, also as a number of another type, and a query by another field, which has no index.
    let ids = [bson!(1), bson!(1_i64), bson!(1.0)].map(|id| doc! { "_id": id });
    for query in ids.into_iter().chain([doc! { "title": "old" }]) {
        let update = late.update_one(query.clone(), retitle());
        scene.refuses(update.upsert(true)).await;
        let replacement = late.replace_one(query, title());
        scene.refuses(replacement.upsert(true)).await;
    }
}

#[tokio::test]
async fn a_write_that_matches_nothing_is_not_stale() {
    let scene = Scene::new().await;
    let (holder, no_match) = (scene.holder(9), || doc! { "_id": 1, "title": "no such" });
    let updated = holder.update_one(no_match(), retitle()).await.unwrap();
    let replaced = holder.replace_one(no_match(), doc! {}).await.unwrap();
    assert_eq!((updated.matched_count, replaced.matched_count), (0, 0));
    let deleted = holder.delete_one(no_match()).await.unwrap();
    assert_eq!(deleted.deleted_count, 0);
    assert_eq!(scene.all().await.len(), 1);
}

/// An empty update stores the token: a holder that sends it before reading rejects every write of earlier holders.
#[tokio::test]
async fn an_empty_update_stores_the_token() {
    let scene = Scene::new().await;
    let claiming = scene.holder(12).update_one(first(), doc! { "$set": {} });
    assert_eq!(claiming.await.unwrap().matched_count, 1);
    scene
        .expect_first(doc! { "_id": 1, "title": "old", "fencingToken": 12_i64 })
        .await;
    let late = scene.holder(11).update_one(first(), retitle()).await;
    assert!(matches!(late, Err(LockError::Stale { seen, .. }) if seen.get() == 12));
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Report {
    #[serde(rename = "_id")]
    id: i32,
    title: String,
}

/// A document is read, changed and written back, as a user-defined type and as a `Document`, which contains the old
/// token.
#[tokio::test]
async fn a_document_can_be_read_and_written_back() {
    let scene = Scene::new().await;
    let reports: Collection<Report> = scene.reports.clone_with_type();
    let mut report = reports.find_one(first()).await.unwrap().unwrap();
    report.title.push_str("er");
    let fenced = reports.fenced(FencingToken::from(11));
    fenced.replace_one(first(), &report).await.unwrap();
    scene
        .expect_first(doc! { "_id": 1, "title": "older", "fencingToken": 11_i64 })
        .await;

    let mut document = scene.reports.find_one(first()).await.unwrap().unwrap();
    document.insert("title", "oldest");
    scene.holder(12).replace_one(first(), &document).await.unwrap();
    scene
        .expect_first(doc! { "_id": 1, "title": "oldest", "fencingToken": 12_i64 })
        .await;
    let late = scene.holder(11).replace_one(first(), &document).await;
    assert!(matches!(
        late,
        Err(LockError::Stale { token, seen, .. }) if token.get() == 11 && seen.get() == 12
    ));

    report.id = 2;
    fenced.insert_one(&report).await.unwrap();
    let inserted = reports.find_one(doc! { "_id": 2 }).await.unwrap();
    assert_eq!(inserted, Some(report));
}
