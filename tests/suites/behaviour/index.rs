//! The TTL index: it is created automatically, reported when it is wrong, and never blocks a lock.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::IndexOptions;
use mongodb::{Collection, Database, IndexModel};
use mongolock::{IndexState, LockFilter, LockProvider};
use mongolock_tests::{AMPLE, FailPoint, claim, locks, must, names, recorded, until};
use tokio::task::JoinSet;

use crate::fixture::{Fixture, acquire_and_release, in_time};
use crate::servers::standalone;

/// The default retention.
const DAY: Duration = Duration::from_secs(86_400);

/// S1.9
#[tokio::test]
async fn the_index_is_created_automatically() {
    let fixture = Fixture::mongodb().await;
    let hours = Duration::from_secs(7200);
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let provider = LockProvider::builder(&database).retention(hours).build().unwrap();
    acquire_and_release(&provider.lock("first")).await;
    until("the index exists", async || {
        provider.health().await.index == Some(IndexState::Ready)
    })
    .await;
    let mut sent = commands.all().into_iter();
    let created = sent.find(|command| command.contains_key("createIndexes"));
    let index = doc! { "key": { "expiresAt": 1 }, "name": "expiresAt_ttl", "expireAfterSeconds": 7200_i64 };
    assert_eq!(created.unwrap().get_array("indexes"), Ok(&vec![index.into()]));

    // On a missing or empty collection the build delays no lock: no process locks the others out meanwhile.
    let fixture = Fixture::mongodb().await;
    for ends in [false, true] {
        let (database, commands) = recorded(fixture.db(), &[]).await;
        assert_eq!(state_of(&database).await, IndexState::Ready);
        let counts = (commands.count("createIndexes"), commands.count("findAndModify"));
        assert_eq!(counts, (1, 0));
        if !ends {
            fixture.locks().drop_indexes().await.unwrap();
        }
    }
}

/// B7, S2.12, S1.9, S1.21, S1.25: the list of indexes decides whether there is one that fits, and none is created if there is one on
/// the field. The index of DistributedLock.MongoDB has the name of ours. `listCollections` is sent because an index does not remove
/// documents of a capped collection. A conflict has the command that ends it. With each of them locks work, except that unused
/// documents are not removed.
#[tokio::test]
async fn the_list_of_indexes_decides_if_an_index_exists() {
    for (name, expire_after) in [
        ("expiresAt_ttl", Some(DAY)),
        ("expiresAt_ttl", Some(Duration::ZERO)),
        ("mine", None),
    ] {
        let fixture = Fixture::mongodb().await;
        create_on(&fixture.locks(), name, expire_after).await;
        let (database, commands) = recorded(fixture.db(), &[]).await;
        let state = state_of(&database).await;
        assert_eq!(names(&commands.all()), ["listIndexes", "listCollections"]);
        let is_ready = expire_after == Some(DAY);
        assert_eq!(state == IndexState::Ready, is_ready, "{state:?}");
        let conflicts = matches!(state, IndexState::Conflict { .. });
        assert_eq!(conflicts, !is_ready, "{state:?}");
        let early = "(a longer `takeover_margin` ends early)";
        assert_eq!(state.to_string().contains(early), !is_ready, "{state}");
        let mends = format!(r#"in mongosh: db.getCollection("distributed_locks").dropIndex("{name}")"#);
        assert_eq!(state.to_string().ends_with(&mends), !is_ready, "{state}");
        acquire_and_release(&LockProvider::new(&database).lock("works")).await;
        let indexes = fixture.locks().list_index_names().await.unwrap();
        assert_eq!(indexes, ["_id_", name]);
    }
}

/// With the collation of a language, separators are ignored: the permit of a semaphore could be the lock of another name. Locks of
/// ordinary names work all the same. In a capped collection they are released since MongoDB 6.0 only.
#[tokio::test]
async fn a_capped_collection_and_a_collation_are_reported() {
    let locale = "en".to_owned();
    let capped = doc! { "capped": true, "size": 1 << 20 };
    let collation = doc! { "collation": { "locale": "en" } };
    for (option, value, expected) in [
        ("capped", capped, IndexState::Capped),
        ("collation", collation, IndexState::Collation { locale }),
    ] {
        let fixture = Fixture::mongodb().await;
        let mut create = doc! { "create": "distributed_locks" };
        create.extend(value);
        // The Stable API has no capped collection.
        let database = must(fixture.db().without_stable_api().await);
        database.run_command(create).await.unwrap();
        assert_eq!(fixture.provider.admin().index_state().await, expected, "{option}");
        let _works = in_time(fixture.provider.lock("a")).await.unwrap();
    }
}

/// Checks that hang occupy one connection of a process, however many callers ask, and none delays an acquire. Nothing but the
/// locks is in the collection.
#[tokio::test]
async fn each_of_eight_processes_sends_one_build_at_most() {
    let fixture = Fixture::mongodb().await;
    must(fixture.locks().insert_one(claim("filled", "", 0)).await);
    // Builds at the same time overlap.
    let slow = FailPoint::on(&["createIndexes"]).always();
    let slow = slow.block(Duration::from_millis(100));
    let _point = must(slow.enable_for(fixture.db()).await);
    let mut starting = JoinSet::new();
    for number in 0..8 {
        let (database, commands) = recorded(fixture.db(), &[]).await;
        starting.spawn(async move {
            let provider = LockProvider::new(&database);
            let admin = provider.admin();
            let acquire = provider.lock(format!("starts:{number}")).acquire();
            let (guard, state, again) = tokio::join!(acquire, admin.index_state(), admin.index_state());
            guard.unwrap().release().await.unwrap();
            assert_eq!(state, again);
            assert_eq!(state, IndexState::Ready);
            commands.count("createIndexes")
        });
    }
    // One that comes later finds the index.
    let builds = starting.join_all().await;
    assert!(
        builds.contains(&1) && builds.iter().all(|sent| *sent <= 1),
        "{builds:?}"
    );
    let listed = fixture.provider.admin().list(LockFilter::new()).await.unwrap();
    // Eight that have started, and the one before.
    assert_eq!(listed.len(), 9, "{listed:?}");
}

/// A standalone server refuses the commit quorum that replica sets need.
#[tokio::test]
async fn a_filled_collection_of_a_standalone_gets_the_index() {
    let (_server, database) = standalone().await;
    locks(&database).insert_one(claim("filled", "", 0)).await.unwrap();
    assert_eq!(state_of(&database).await, IndexState::Ready);
}

/// The state has the command that mends it.
#[tokio::test]
async fn a_failed_build_is_reported_with_the_command_that_mends_it() {
    const MAX_TIME_EXPIRED: i32 = 50;
    let fixture = Fixture::mongodb().await;
    must(fixture.locks().insert_one(claim("filled", "", 0)).await);
    let failing = FailPoint::on(&["createIndexes"]).always();
    let failing = failing.error_code(MAX_TIME_EXPIRED);
    let _point = must(failing.enable_for(fixture.db()).await);
    let state = fixture.provider.admin().index_state().await;
    let mends = "in mongosh: db.getCollection(\"distributed_locks\").createIndex({ expiresAt: 1 }, { name: \
                 \"expiresAt_ttl\", expireAfterSeconds: 86400 })";
    let failed = matches!(&state, IndexState::Failed { reason } if reason.ends_with(mends));
    assert!(failed, "{state:?}");
}

/// A stream of events tells that the collection is gone, or the stream of a waiter. Meanwhile `health` does not say that the
/// index exists.
#[tokio::test]
async fn an_index_that_ended_with_its_collection_is_created_again() {
    for (ending, has_waiter) in [
        ("drop", false),
        ("drop", true),
        ("dropDatabase", true),
        ("renameCollection", false),
    ] {
        let fixture = Fixture::mongodb().await;
        let (one, commands) = fixture.recorded(|builder| builder.acquire_timeout(AMPLE)).await;
        acquire_and_release(&one.lock("free")).await;
        until("the index is ready", async || {
            one.health().await.index == Some(IndexState::Ready)
        })
        .await;
        let held = claim("held", "dora#1", 600_000);
        fixture.locks().insert_one(held).await.unwrap();
        let mut streaming = JoinSet::new();
        if has_waiter {
            let waiting = one.lock("held");
            streaming.spawn(async move { drop(waiting.acquire().await.unwrap()) });
        } else {
            let mut events = one.admin().events(LockFilter::new());
            streaming.spawn(async move { while events.next().await.is_some() {} });
        }
        commands.until_sent("getMore").await;
        end_collection(&fixture, ending).await;
        let seen = async || {
            let (told, ours) = (one.health().await.index, "expiresAt_ttl".to_owned());
            let names = fixture.locks().list_index_names().await;
            (told, names.is_ok_and(|names| names.contains(&ours)))
        };
        let notices = async || {
            let (told, exists) = seen().await;
            exists || told != Some(IndexState::Ready)
        };
        until("the end is noticed", notices).await;
        let ready = async || {
            let (told, exists) = seen().await;
            let is_ready = told == Some(IndexState::Ready);
            assert!(exists || !is_ready, "{ending}, {has_waiter}");
            is_ready
        };
        until("the index is ready again", ready).await;
        if has_waiter {
            let ended = in_time(streaming.join_next()).await;
            ended.expect("the waiter has the lock").unwrap();
        }
    }
}

/// Removes the collection of the locks with this command, or puts another one in its place.
async fn end_collection(fixture: &Fixture, command: &str) {
    // The Stable API has no `renameCollection`.
    let database = must(fixture.db().without_stable_api().await);
    let ending = match command {
        "drop" => fixture.locks().drop().await,
        "dropDatabase" => database.drop().await,
        _ => {
            let restored = database.collection::<Document>("restored");
            restored.insert_one(claim("restored", "", 0)).await.unwrap();
            let (from, to) = (restored.namespace(), fixture.locks().namespace());
            let rename = doc! { command: from.to_string(), "to": to.to_string(), "dropTarget": true };
            let admin = database.client().database("admin");
            admin.run_command(rename).await.map(drop)
        }
    };
    ending.unwrap();
}

async fn state_of(database: &Database) -> IndexState {
    LockProvider::new(database).admin().index_state().await
}

async fn create_on(locks: &Collection<Document>, name: &str, expire_after: Option<Duration>) {
    let mut options = IndexOptions::builder().name(name.to_owned()).build();
    options.expire_after = expire_after;
    let index = IndexModel::builder().keys(doc! { "expiresAt": 1 });
    locks.create_index(index.options(options).build()).await.unwrap();
}
