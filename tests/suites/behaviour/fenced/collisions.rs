//! Upserts and duplicate keys: which of them are a stale token, and which are the driver's own error.

use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use mongodb::options::{Collation, CollationStrength, UpdateOptions};
use mongolock::{FencedExt, FencingToken, LockError};
use mongolock_tests::{names, recorded};

use super::{Scene, first, is_duplicate_key, retitle, unique_index};

/// A duplicate key that has nothing to do with the token is the driver's own error.
#[tokio::test]
async fn other_duplicate_keys_are_errors_of_the_driver() {
    let scene = Scene::new().await;
    unique_index(&scene.reports, "title").await;
    let other = doc! { "_id": 2, "title": "other" };
    scene.reports.insert_one(other).await.unwrap();
    let before = scene.all().await;

    let (holder, late) = (scene.holder(11), scene.holder(9));
    let (taken, third) = (|| doc! { "title": "other" }, || doc! { "_id": 3 });
    let set = || doc! { "$set": taken() };
    assert!(is_duplicate_key(&holder.insert_one(taken()).await));
    assert!(is_duplicate_key(&holder.update_one(first(), set()).await));
    let replacement = holder.replace_one(third(), taken()).upsert(true);
    assert!(is_duplicate_key(&replacement.await));
    let update = holder.update_one(third(), set()).upsert(true);
    assert!(is_duplicate_key(&update.await));
    assert_eq!(scene.all().await, before);

    // A document with this `_id` exists, but does not match the query.
    let open = || doc! { "_id": 1, "state": "open" };
    let update = holder.update_one(open(), retitle()).upsert(true);
    assert!(is_duplicate_key(&update.await));
    let update = late.update_one(open(), retitle());
    scene.refuses(update.upsert(true)).await;

    // The query by the field of the unique index matches the same document, which has a greater token.
    let update = late.update_one(doc! { "title": "old" }, retitle());
    scene.refuses(update.upsert(true)).await;
}

/// Two upserts of the same document at the same time do not fail with a duplicate key.
#[tokio::test]
async fn concurrent_upserts_all_succeed() {
    let scene = Scene::new().await;
    for id in 100..110 {
        let writes = (0..32).map(async |task| {
            let update = doc! { "$addToSet": { "tasks": task } };
            let upsert = scene.holder(10 + task).update_one(doc! { "_id": id }, update);
            upsert.upsert(true).await
        });
        let (mut made, mut written) = (0, 0);
        for write in join_all(writes).await {
            match write {
                Ok(result) => {
                    written += 1;
                    made += usize::from(result.upserted_id.is_some());
                }
                Err(LockError::Stale { token, seen, .. }) => assert!(token < seen),
                Err(error) => panic!("{error}"),
            }
        }
        let document = scene.reports.find_one(doc! { "_id": id }).await.unwrap().unwrap();
        assert_eq!(document.get_array("tasks").unwrap().len(), written);
        // The upsert with the greatest token is never refused.
        assert_eq!(document.get_i64("fencingToken"), Ok(41));
        assert_eq!(made, 1);
    }
}

/// Two values of `_id` that are equal only under a collation do not collide in the index: a stale upsert must not
/// insert a second document.
#[tokio::test]
async fn a_collation_lets_no_stale_upsert_insert() {
    let scene = Scene::new().await;
    let written = doc! { "_id": "A", "fencingToken": 10_i64 };
    scene.reports.insert_one(written).await.unwrap();
    let strength = CollationStrength::Secondary;
    let no_case = Collation::builder().locale("en").strength(strength).build();
    let options = UpdateOptions::builder().upsert(true).collation(no_case).build();
    let late = scene.holder(9).update_one(doc! { "_id": "a" }, retitle());
    scene.refuses(late.with_options(options)).await;
}

/// An upsert whose query has a condition beside its key ends after a few commands if the condition is not met.
#[tokio::test]
async fn an_upsert_with_an_unmet_condition_ends() {
    let scene = Scene::new().await;
    unique_index(&scene.reports, "slug").await;
    let published = doc! { "_id": 2, "slug": "a", "status": "published", "fencingToken": 10_i64 };
    scene.reports.insert_one(published).await.unwrap();
    let (database, commands) = recorded(&scene.db, &[]).await;
    let reports = database.collection::<Document>("reports");
    let draft = || doc! { "slug": "a", "status": "draft" };
    let upsert = |token: i64, query: Document, update: Document| {
        let holder = reports.fenced(FencingToken::from(token));
        holder.update_one(query, update).upsert(true).into_future()
    };
    assert!(is_duplicate_key(&upsert(11, draft(), retitle()).await));
    let thrice = "update find update find update";
    assert_eq!(names(&commands.take()).join(" "), thrice);
    scene.refuses(upsert(9, draft(), retitle())).await;
    commands.clear();
    // The upsert collides with a document that its query does not match.
    let other = upsert(9, doc! { "slug": "b" }, doc! { "$set": { "slug": "a" } });
    assert!(is_duplicate_key(&other.await));
    assert_eq!(names(&commands.take()), ["update", "find", "update"]);
}

/// Deletions at the same time do not make an upsert fail: each upsert writes.
#[tokio::test]
async fn concurrent_deletions_fail_no_upsert() {
    let scene = Scene::new().await;
    unique_index(&scene.reports, "key").await;
    for query in [doc! { "_id": 100 }, doc! { "key": 100 }] {
        let writers = (0..8).map(async |writer| {
            let holder = scene.holder(10);
            for _ in 0..50 {
                if writer % 2 == 0 {
                    holder.delete_one(query.clone()).await.unwrap();
                } else {
                    let upsert = holder.update_one(query.clone(), retitle()).upsert(true);
                    let wrote = upsert.await.unwrap();
                    assert!(wrote.matched_count == 1 || wrote.upserted_id.is_some());
                }
            }
        });
        join_all(writers).await;
    }
}
