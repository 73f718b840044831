//! Fenced writes as part of a transaction.

use mongodb::bson::doc;
use mongolock::LockError;

use super::{Scene, first, is_duplicate_key, retitle, unique_index};

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
    let insert = holder.insert_one(doc! { "_id": 2 });
    insert.session(&mut session).await.unwrap();
    let upsert = holder.replace_one(doc! { "_id": 3 }, doc! {}).upsert(true);
    upsert.session(&mut session).await.unwrap();
    assert_eq!(scene.all().await, before);
    session.commit_transaction().await.unwrap();
    let all = scene.all().await;
    let tokens = all.iter().map(|document| document.get_i64("fencingToken"));
    assert!(tokens.eq([Ok(11), Ok(11), Ok(11)]), "{all:?}");
}

/// A stale update in a transaction is rejected. A stale insert is a duplicate key, which ends the transaction.
#[tokio::test]
async fn stale_writes_in_a_transaction_are_rejected() {
    let scene = Scene::new().await;
    let mut session = scene.db.database().client().start_session().await.unwrap();
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

/// A duplicate key is not a transient error: the driver must not repeat the transaction.
#[tokio::test]
async fn a_collision_in_a_transaction_is_not_repeated() {
    let scene = Scene::new().await;
    unique_index(&scene.reports, "title").await;
    let (holder, mut made) = (scene.holder(11), 0);
    let mut session = scene.db.database().client().start_session().await.unwrap();
    let refused: mongodb::error::Result<()> = session
        .start_transaction()
        .and_run2(async |session| {
            made += 1;
            let taken = doc! { "$set": { "title": "old" } };
            let write = holder.update_one(doc! { "_id": 2 }, taken).upsert(true);
            write.session(session).await?;
            Ok(())
        })
        .await;
    assert!(is_duplicate_key(&refused.map_err(LockError::from)));
    assert_eq!(made, 1);
}
