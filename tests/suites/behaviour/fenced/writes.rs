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
    assert_eq!(
        (updated.matched_count, updated.modified_count, updated.upserted_id),
        (1, 1, None)
    );
    assert_eq!(
        scene.all().await,
        [
            doc! { "_id": 1, "title": "new", "fencingToken": 12_i64 },
            doc! { "_id": 2, "fencingToken": 11_i64 },
        ]
    );
    let stages = vec![doc! { "$replaceWith": { "_id": "$_id", "shout": { "$toUpper": "$title" } } }];
    scene.holder(13).update_one(first(), stages).await.unwrap();
    assert_eq!(
        scene.all().await[0],
        doc! { "_id": 1, "shout": "NEW", "fencingToken": 13_i64 }
    );
    let replaced = scene
        .holder(14)
        .replace_one(first(), doc! { "a": 1 })
        .await
        .unwrap();
    assert_eq!((replaced.matched_count, replaced.modified_count), (1, 1));
    assert_eq!(
        scene.all().await[0],
        doc! { "_id": 1, "a": 1, "fencingToken": 14_i64 }
    );
    let deleted = scene.holder(14).delete_one(first()).await.unwrap();
    assert_eq!(deleted.deleted_count, 1);
    let upserted = scene
        .holder(15)
        .update_one(first(), retitle())
        .upsert(true)
        .await
        .unwrap();
    assert_eq!(
        (upserted.matched_count, upserted.upserted_id),
        (0, Some(bson!(1)))
    );
    assert_eq!(
        scene.all().await[0],
        doc! { "_id": 1, "title": "new", "fencingToken": 15_i64 }
    );
    let upserted = scene
        .holder(15)
        .replace_one(doc! { "_id": 3 }, doc! { "title": "third" })
        .upsert(true)
        .await
        .unwrap();
    assert_eq!(upserted.upserted_id, Some(bson!(3)));
    assert_eq!(
        scene.all().await[2],
        doc! { "_id": 3, "title": "third", "fencingToken": 15_i64 }
    );
}

/// S1.20: a smaller token is rejected, by every form of write.
#[tokio::test]
async fn a_stale_holder_is_refused() {
    let scene = Scene::new().await;
    let late = scene.holder(9);
    scene
        .refuses(late.insert_one(doc! { "_id": 1, "title": "late" }))
        .await;
    scene.refuses(late.update_one(first(), retitle())).await;
    scene.refuses(late.update_one(first(), vec![retitle()])).await;
    scene
        .refuses(late.update_one(first(), retitle()).upsert(true))
        .await;
    scene
        .refuses(late.replace_one(first(), doc! { "title": "late" }))
        .await;
    scene
        .refuses(late.replace_one(first(), doc! { "title": "late" }).upsert(true))
        .await;
    scene.refuses(late.delete_one(first())).await;
    // The same `_id` as a number of another type.
    for id in [bson!(1_i64), bson!(1.0)] {
        let query = || doc! { "_id": id.clone() };
        scene
            .refuses(late.replace_one(query(), doc! { "title": "late" }).upsert(true))
            .await;
        scene
            .refuses(late.update_one(query(), retitle()).upsert(true))
            .await;
    }
    // A query by another field, which has no index.
    let by_title = || doc! { "title": "old" };
    scene
        .refuses(late.update_one(by_title(), retitle()).upsert(true))
        .await;
    scene
        .refuses(
            late.replace_one(by_title(), doc! { "title": "late" })
                .upsert(true),
        )
        .await;
}

/// S1.20: the same token and a greater one are accepted, and so is any token for a document without one.
#[tokio::test]
async fn equal_and_greater_tokens_are_accepted() {
    let scene = Scene::new().await;
    scene.reports.insert_one(doc! { "_id": 2 }).await.unwrap();
    for token in [10, 11] {
        for id in [1, 2] {
            let written = scene
                .holder(token)
                .update_one(doc! { "_id": id }, retitle())
                .await
                .unwrap();
            assert_eq!(written.matched_count, 1, "document {id}, token {token}");
        }
    }
    assert_eq!(scene.tokens().await, [11, 11]);
}

#[tokio::test]
async fn a_write_that_matches_nothing_is_not_stale() {
    let scene = Scene::new().await;
    let holder = scene.holder(9);
    let no_match = || doc! { "_id": 1, "title": "no such" };
    assert_eq!(
        holder
            .update_one(no_match(), retitle())
            .await
            .unwrap()
            .matched_count,
        0
    );
    assert_eq!(
        holder
            .replace_one(no_match(), doc! {})
            .await
            .unwrap()
            .matched_count,
        0
    );
    assert_eq!(holder.delete_one(no_match()).await.unwrap().deleted_count, 0);
    assert_eq!(scene.all().await.len(), 1);
}

/// An empty update stores the token: a holder that sends it before reading rejects every write of earlier holders.
#[tokio::test]
async fn an_empty_update_stores_the_token() {
    let scene = Scene::new().await;
    let claimed = scene
        .holder(12)
        .update_one(first(), doc! { "$set": {} })
        .await
        .unwrap();
    assert_eq!(claimed.matched_count, 1);
    assert_eq!(
        scene.all().await,
        [doc! { "_id": 1, "title": "old", "fencingToken": 12_i64 }]
    );
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
    reports
        .fenced(FencingToken::from(11))
        .replace_one(first(), &report)
        .await
        .unwrap();
    assert_eq!(
        scene.all().await[0],
        doc! { "_id": 1, "title": "older", "fencingToken": 11_i64 }
    );

    let mut document = scene.reports.find_one(first()).await.unwrap().unwrap();
    document.insert("title", "oldest");
    scene.holder(12).replace_one(first(), &document).await.unwrap();
    assert_eq!(
        scene.all().await[0],
        doc! { "_id": 1, "title": "oldest", "fencingToken": 12_i64 }
    );
    assert!(matches!(
        scene.holder(11).replace_one(first(), scene.all().await.remove(0)).await,
        Err(LockError::Stale { token, seen, .. }) if token.get() == 11 && seen.get() == 12
    ));

    reports
        .fenced(FencingToken::from(12))
        .insert_one(Report {
            id: 2,
            title: "two".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(
        reports.find_one(doc! { "_id": 2 }).await.unwrap().unwrap().title,
        "two"
    );
}
