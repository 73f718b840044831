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
    holder
        .update_one(first(), retitle())
        .session(&mut session)
        .await
        .unwrap();
    holder
        .insert_one(doc! { "_id": 2 })
        .session(&mut session)
        .await
        .unwrap();
    holder
        .replace_one(doc! { "_id": 3 }, doc! {})
        .upsert(true)
        .session(&mut session)
        .await
        .unwrap();
    assert_eq!(scene.all().await, before);
    session.commit_transaction().await.unwrap();
    assert_eq!(scene.tokens().await, [11, 11, 11]);
}

/// A stale update in a transaction is rejected. A stale insert is a duplicate key, which ends the transaction.
#[tokio::test]
async fn stale_writes_in_a_transaction_are_rejected() {
    let scene = Scene::new().await;
    let mut session = scene.db.database().client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let late = scene.holder(9);
    assert_eq!(
        late.update_one(doc! { "_id": 4 }, retitle())
            .session(&mut session)
            .await
            .unwrap()
            .matched_count,
        0
    );
    for upsert in [false, true] {
        let refused = late
            .update_one(first(), retitle())
            .upsert(upsert)
            .session(&mut session)
            .await;
        assert!(matches!(refused, Err(LockError::Stale { .. })), "{refused:?}");
    }
    let refused = late.insert_one(first()).session(&mut session).await;
    assert!(
        is_duplicate_key(&refused),
        "it has ended the transaction: {refused:?}"
    );
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
