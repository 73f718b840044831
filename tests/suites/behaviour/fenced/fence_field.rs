//! The field that stores the token: its name, and values in it that are no tokens.

use mongodb::bson::{bson, doc};
use mongolock::LockError;

use super::{Scene, first, retitle};

#[tokio::test]
async fn a_write_to_the_fence_field_is_refused() {
    let scene = Scene::new().await;
    let before = scene.all().await;
    let holder = scene.holder(11);
    let of_field = |field: &str| holder.clone().fence_field(field).update_one(first(), retitle());
    let writes = [
        holder.update_one(first(), doc! { "$set": { "fencingToken": 1 } }),
        holder.update_one(first(), vec![doc! { "$unset": "fencingToken" }]),
        of_field("a.b"),
        of_field("_id"),
    ];
    for write in writes {
        let refused = write.await;
        let Err(error @ LockError::InvalidFence { .. }) = refused else {
            panic!("{refused:?}");
        };
        assert!(error.to_string().contains("fence field `"), "{error}");
    }
    assert_eq!(scene.all().await, before);
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
