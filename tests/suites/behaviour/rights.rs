//! The minimal roles that the guide lists are sufficient.

use std::time::Duration;

use mongodb::bson::doc;
use mongodb::options::IndexOptions;
use mongodb::{Client, IndexModel};
use mongolock::{IndexState, LockFilter, LockProvider};
use mongolock_tests::{Server, ServerOptions, locks, must};

use crate::fixture::{patient, restricted};

#[tokio::test]
async fn five_actions_on_one_collection_are_enough() {
    let server = must(Server::start(ServerOptions::single().auth()).await);
    let role = ["find", "insert", "update", "createIndex", "changeStream"];
    let client = Client::with_uri_str(restricted(&server, &role).await)
        .await
        .unwrap();
    let database = client.database("app");
    let provider = patient(&database);

    let guard = provider.lock("works").await.unwrap();
    let admin = provider.admin();
    assert_eq!(admin.index_state().await, IndexState::Ready);
    let locks = locks(&database);
    locks.watch().await.expect("the role allows a change stream");
    let rival = provider.to_builder().build().unwrap().lock("works");
    let waiting = tokio::spawn(async move { rival.acquire().await });
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();

    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    guard.context().commit(&mut session).await.unwrap();

    assert_eq!(admin.list(LockFilter::new()).await.unwrap().len(), 1);
    assert!(admin.get("works").await.unwrap().is_some());
    assert!(admin.force_release("works").await.unwrap());
    assert_eq!(admin.release_owner("unknown").await.unwrap(), 0);
    provider.shutdown().await;
}

/// An index that an administrator has created is found without the right to create one.
#[tokio::test]
async fn for_an_index_made_by_hand_the_right_to_list_is_enough() {
    let server = must(Server::start(ServerOptions::single().auth()).await);
    let options = IndexOptions::builder()
        .name("expiresAt_ttl".to_owned())
        .expire_after(Duration::from_secs(86_400))
        .build();
    let index = IndexModel::builder()
        .keys(doc! { "expiresAt": 1 })
        .options(options)
        .build();
    let owner = server.client().await.unwrap().database("app");
    locks(&owner).create_index(index).await.unwrap();

    let role = ["find", "insert", "update", "listIndexes"];
    let client = Client::with_uri_str(restricted(&server, &role).await)
        .await
        .unwrap();
    let provider = LockProvider::new(&client.database("app"));
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
}
