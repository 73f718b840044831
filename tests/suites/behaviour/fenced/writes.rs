//! Fenced writes store their token in a field, and a document rejects a smaller one (S1.20); the same in transactions.

use mongodb::bson::{bson, doc};
use mongolock::LockError;

use super::{Scene, first, is_duplicate_key, retitle};

/// The results are those of the driver. What is stored is compared with a model in `model`.
#[tokio::test]
async fn every_write_has_the_result_of_the_driver() {
    let scene = Scene::new().await;
    let holder = scene.holder(12);
    let inserted = holder.insert_one(doc! { "_id": 2 }).await.unwrap();
    assert_eq!(inserted.inserted_id, bson!(2));
    let updated = holder.update_one(first(), retitle()).await.unwrap();
    assert_eq!((updated.matched_count, updated.modified_count), (1, 1));
    assert_eq!(updated.upserted_id, None);
    let stages = vec![doc! { "$replaceWith": { "_id": "$_id", "shout": { "$toUpper": "$title" } } }];
    scene.holder(13).update_one(first(), stages).await.unwrap();
    let written = doc! { "_id": 1, "shout": "NEW", "fencingToken": 13_i64 };
    assert_eq!(scene.all().await[0], written);
    let holder = scene.holder(14);
    let replaced = holder.replace_one(first(), doc! { "a": 1 }).await.unwrap();
    assert_eq!((replaced.matched_count, replaced.modified_count), (1, 1));
    assert_eq!(holder.delete_one(first()).await.unwrap().deleted_count, 1);
    let upserted = holder.update_one(first(), retitle()).upsert(true).await.unwrap();
    let found = (upserted.matched_count, upserted.upserted_id);
    assert_eq!(found, (0, Some(bson!(1))));
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
    // A write that matches nothing is not stale.
    let no_match = || doc! { "_id": 1, "title": "no such" };
    let updated = late.update_one(no_match(), retitle()).await.unwrap();
    let replaced = late.replace_one(no_match(), doc! {}).await.unwrap();
    assert_eq!((updated.matched_count, replaced.matched_count), (0, 0));
    let deleted = late.delete_one(no_match()).await.unwrap();
    assert_eq!(deleted.deleted_count, 0);
    // An empty update stores the token, so that all writes of earlier holders are rejected from then on.
    let claiming = scene.holder(12).update_one(first(), doc! { "$set": {} });
    assert_eq!(claiming.await.unwrap().matched_count, 1);
    let written = doc! { "_id": 1, "title": "old", "fencingToken": 12_i64 };
    assert_eq!(scene.all().await, [written]);
}

#[tokio::test]
async fn the_fence_field_can_be_chosen() {
    let scene = Scene::new().await;
    let holder = scene.holder(9).fence_field("seen");
    let updated = holder.update_one(first(), retitle()).await.unwrap();
    assert_eq!(updated.matched_count, 1);
    let written = doc! { "_id": 1, "title": "new", "fencingToken": 10_i64, "seen": 9_i64 };
    assert_eq!(scene.all().await, [written]);
    let late = scene.holder(8).fence_field("seen").delete_one(first()).await;
    assert!(matches!(late, Err(LockError::Stale { seen, .. }) if seen.get() == 9));
}

/// A stored value that is not a number cannot be compared with a token: the write is an error that names the document.
#[tokio::test]
async fn a_stored_value_that_is_no_number_is_refused() {
    let scene = Scene::new().await;
    let foreign = [bson!("10"), bson!(null), bson!({ "at": 10 }), bson!([3, 20])];
    for (id, foreign) in (2..).zip(foreign) {
        let stored = doc! { "_id": id, "fencingToken": foreign };
        scene.reports.insert_one(stored).await.unwrap();
        let before = scene.all().await;
        for upsert in [false, true] {
            let write = scene.holder(11).update_one(doc! { "_id": id }, retitle());
            let refused = write.upsert(upsert).await;
            assert!(
                matches!(&refused, Err(LockError::InvalidFence { reason, .. }) if reason.contains(&format!("_id {id}"))),
                "{refused:?}"
            );
        }
        assert_eq!(scene.all().await, before);
    }
    // Numbers as the shell and JavaScript write them.
    for (id, number) in [(7, bson!(10.0)), (8, bson!(10))] {
        let stored = doc! { "_id": id, "fencingToken": number };
        scene.reports.insert_one(stored).await.unwrap();
        let late = scene.holder(9).delete_one(doc! { "_id": id }).await;
        assert!(matches!(late, Err(LockError::Stale { seen, .. }) if seen.get() == 10));
        let next = scene.holder(10).update_one(doc! { "_id": id }, retitle());
        assert_eq!(next.await.unwrap().matched_count, 1);
    }
}

/// Fenced writes in a transaction are committed together, and the caller ends the transaction.
#[tokio::test]
async fn writes_are_committed_together() {
    let scene = Scene::new().await;
    let mut session = scene.db.database().client().start_session().await.unwrap();
    let before = scene.all().await;

    session.start_transaction().await.unwrap();
    let holder = scene.holder(11);
    let update = holder.update_one(first(), retitle());
    update.session(&mut session).await.unwrap();
    let upsert = holder.replace_one(doc! { "_id": 3 }, doc! {}).upsert(true);
    upsert.session(&mut session).await.unwrap();
    assert_eq!(scene.all().await, before);
    session.commit_transaction().await.unwrap();
    let all = scene.all().await;
    let tokens = all.iter().map(|document| document.get_i64("fencingToken"));
    assert!(tokens.eq([Ok(11), Ok(11)]), "{all:?}");

    // A stale update in a transaction is rejected. A stale insert is a duplicate key, which ends the transaction.
    session.start_transaction().await.unwrap();
    let late = scene.holder(9);
    let none = late.update_one(doc! { "_id": 4 }, retitle());
    assert_eq!(none.session(&mut session).await.unwrap().matched_count, 0);
    for upsert in [false, true] {
        let update = late.update_one(first(), retitle()).upsert(upsert);
        let refused = update.session(&mut session).await;
        assert!(matches!(refused, Err(LockError::Stale { .. })), "{refused:?}");
    }
    let refused = late.insert_one(first()).session(&mut session).await;
    assert!(is_duplicate_key(&refused), "{refused:?}");
    session.abort_transaction().await.unwrap();
}
