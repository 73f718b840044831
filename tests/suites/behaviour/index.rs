//! The TTL index tidies up and is never in the way.

use std::time::Duration;

use mongodb::IndexModel;
use mongodb::bson::doc;
use mongodb::options::IndexOptions;
use mongolock_tests::{eventually, must};

use crate::world::{AMPLE, World};

/// S1.9
#[tokio::test]
async fn it_appears_by_itself() {
    let world = World::mongodb().await;
    let provider = world
        .provider
        .another()
        .retention(Duration::from_secs(7200))
        .build()
        .unwrap();
    let guard = provider.lock("first").await.unwrap();
    let index = must(
        eventually(AMPLE, "the index is there", async || {
            let mut indexes = world.locks().list_indexes().await.ok()?;
            while indexes.advance().await.ok()? {
                let index = indexes.deserialize_current().ok()?;
                if index.keys == doc! { "expiresAt": 1 } {
                    return index.options;
                }
            }
            None
        })
        .await,
    );
    assert_eq!(index.name.as_deref(), Some("expiresAt_ttl"));
    assert_eq!(index.expire_after, Some(Duration::from_secs(7200)));
    guard.release().await.unwrap();
}

/// S1.21, S1.25, B7: with an index in the way, everything but the tidying works.
#[tokio::test]
async fn locks_work_without_it() {
    let world = World::mongodb().await;
    let plain = IndexModel::builder()
        .keys(doc! { "expiresAt": 1 })
        .options(IndexOptions::builder().name("mine".to_owned()).build())
        .build();
    world.locks().create_index(plain).await.unwrap();
    for _ in 0..5 {
        let guard = world.provider.lock("works").await.unwrap();
        assert!(world.rival().lock("works").try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
    assert_eq!(world.locks().list_index_names().await.unwrap(), ["_id_", "mine"]);
}
