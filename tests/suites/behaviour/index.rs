//! The TTL index tidies up and is never in the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongodb::bson::doc;
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::{ClientOptions, IndexOptions};
use mongodb::{Client, IndexModel};
use mongolock::{IndexState, LockProvider};
use mongolock_tests::{FailPoint, Server, ServerOptions, eventually, must, shared};
use tokio::task::JoinSet;

use crate::world::{AMPLE, World, restricted};

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
    create(&world, "mine", None).await;
    for _ in 0..5 {
        let guard = world.provider.lock("works").await.unwrap();
        assert!(world.rival().lock("works").try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
    assert_eq!(world.locks().list_index_names().await.unwrap(), ["_id_", "mine"]);
}

/// B7, S2.12, S1.9: what is wrong with the index is said to the one who asks.
#[tokio::test]
async fn its_state_names_what_is_wrong() {
    let fine = World::mongodb().await;
    assert_eq!(fine.provider.admin().index_state().await, IndexState::Ready);

    // As DistributedLock.MongoDB makes it.
    let foreign = World::mongodb().await;
    create(&foreign, "expiresAt_ttl", Some(Duration::ZERO)).await;
    let state = foreign.provider.admin().index_state().await;
    assert!(
        matches!(&state, IndexState::Conflict { reason } if reason.contains("expiresAt_ttl")),
        "{state:?}"
    );

    let plain = World::mongodb().await;
    create(&plain, "mine", None).await;
    assert!(matches!(
        plain.provider.admin().index_state().await,
        IndexState::Conflict { .. }
    ));

    let capped = World::mongodb().await;
    capped
        .database()
        .create_collection("distributed_locks")
        .capped(true)
        .size(1 << 20)
        .await
        .unwrap();
    assert_eq!(capped.provider.admin().index_state().await, IndexState::Capped);
    let guard = capped.provider.lock("works").await.unwrap();
    guard.release().await.unwrap();
}

/// Looks that hang keep one connection of the pool, however many ask.
#[tokio::test]
async fn one_look_at_a_time_reaches_the_server() {
    let world = World::mongodb().await;
    let point = FailPoint::on(&["createIndexes"])
        .always()
        .block(Duration::from_millis(100));
    let server = shared().await.unwrap();
    let _point = point
        .app_name(world.db().name())
        .enable(server.uri())
        .await
        .unwrap();
    let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut options = ClientOptions::parse(world.db().uri()).await.unwrap();
    let seen = Arc::clone(&most);
    options.command_event_handler = Some(EventHandler::callback(move |event| match event {
        CommandEvent::Started(started) if started.command_name == "createIndexes" => {
            let now = under_way.fetch_add(1, Ordering::SeqCst) + 1;
            seen.fetch_max(now, Ordering::SeqCst);
        }
        CommandEvent::Succeeded(ended) if ended.command_name == "createIndexes" => {
            under_way.fetch_sub(1, Ordering::SeqCst);
        }
        _ => {}
    }));
    let client = Client::with_options(options).unwrap();
    let provider = LockProvider::new(&client.database(world.db().name()));
    let mut asking = JoinSet::new();
    for _ in 0..5 {
        let admin = provider.admin();
        asking.spawn(async move { admin.index_state().await });
    }
    for state in asking.join_all().await {
        assert_eq!(state, IndexState::Ready);
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

/// S1.25: without the right to create it, only the tidying is missing.
#[tokio::test]
async fn a_missing_right_is_reported() {
    let server = Server::start(ServerOptions::single().auth()).await.unwrap();
    let uri = restricted(&server, &["find", "insert", "update"]).await;
    let client = Client::with_uri_str(uri).await.unwrap();
    let provider = LockProvider::new(&client.database("app"));
    let guard = provider.lock("works").await.unwrap();
    assert!(matches!(
        provider.admin().index_state().await,
        IndexState::Unauthorized { .. }
    ));
    guard.release().await.unwrap();
}

async fn create(world: &World, name: &str, expire_after: Option<Duration>) {
    let mut options = IndexOptions::builder().name(name.to_owned()).build();
    options.expire_after = expire_after;
    let index = IndexModel::builder()
        .keys(doc! { "expiresAt": 1 })
        .options(options)
        .build();
    world.locks().create_index(index).await.unwrap();
}
