//! The TTL index: it is created automatically, reported when it is wrong, and never blocks a lock.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::IndexOptions;
use mongodb::{Client, Collection, Database, IndexModel};
use mongolock::{IndexState, LockFilter, LockProvider};
use mongolock_tests::{
    AMPLE, FailPoint, FailPointGuard, claim, eventually, locks, must, names, recorded, stable_client,
    stable_options,
};
use tokio::task::JoinSet;

use crate::fixture::{Fixture, acquire_and_release};
use crate::in_flight::InFlight;
use crate::servers::standalone;

/// The lock under which a process builds the index.
const INTERNAL_LOCK: &str = "mongolock\u{1f}ttl-index";

/// The default retention.
const DAY: Duration = Duration::from_secs(86_400);

/// S1.9
#[tokio::test]
async fn the_index_is_created_automatically() {
    let fixture = Fixture::mongodb().await;
    let hours = Duration::from_secs(7200);
    let provider = fixture.with(|builder| builder.retention(hours));
    let guard = provider.lock("first").await.unwrap();
    let exists = async || {
        let mut indexes = fixture.locks().list_indexes().await.ok()?;
        while indexes.advance().await.ok()? {
            let index = indexes.deserialize_current().ok()?;
            if index.keys == doc! { "expiresAt": 1 } {
                return index.options;
            }
        }
        None
    };
    let index = must(eventually(AMPLE, "the index exists", exists).await);
    assert_eq!(index.name.as_deref(), Some("expiresAt_ttl"));
    assert_eq!(index.expire_after, Some(hours));
    guard.release().await.unwrap();
}

/// S1.21, S1.25, B7: with a conflicting index everything works, except that unused documents are not removed.
#[tokio::test]
async fn locks_work_without_the_index() {
    let fixture = Fixture::mongodb().await;
    create(&fixture, "mine", None).await;
    for _ in 0..5 {
        let guard = fixture.provider.lock("works").await.unwrap();
        assert!(!fixture.is_free("works").await);
        guard.release().await.unwrap();
    }
    let indexes = fixture.locks().list_index_names().await.unwrap();
    assert_eq!(indexes, ["_id_", "mine"]);
}

/// B7, S2.12, S1.9: `index_state` says what is wrong with the index. The one of DistributedLock.MongoDB has the name of ours.
#[tokio::test]
async fn index_state_names_the_problem() {
    let fine = Fixture::mongodb().await;
    assert_eq!(fine.provider.admin().index_state().await, IndexState::Ready);

    for (index, expires_at_once) in [("expiresAt_ttl", Some(Duration::ZERO)), ("mine", None)] {
        let other = Fixture::mongodb().await;
        create(&other, index, expires_at_once).await;
        let state = other.provider.admin().index_state().await;
        assert!(
            matches!(&state, IndexState::Conflict { reason, .. } if reason.contains(index)),
            "{state:?}"
        );
    }
    assert_eq!(
        capped().await.provider.admin().index_state().await,
        IndexState::Capped
    );
}

/// A lock in a capped collection is released since MongoDB 6.0 only.
#[tokio::test]
async fn locks_of_a_capped_collection_work() {
    acquire_and_release(&capped().await.provider.lock("works")).await;
}

/// A capped collection. The Stable API has none.
async fn capped() -> Fixture {
    let capped = Fixture::mongodb().await;
    let database = must(capped.db().without_stable_api().await);
    let creating = database.create_collection("distributed_locks");
    creating.capped(true).size(1 << 20).await.unwrap();
    capped
}

/// If the index or a conflicting one exists, the list of indexes decides, and none is created. `listCollections` is
/// sent because an index does not remove documents of a capped collection. A conflict has the command that ends it.
#[tokio::test]
async fn the_list_of_indexes_decides_if_an_index_exists() {
    for (retention, is_ready) in [(DAY, true), (Duration::ZERO, false)] {
        let fixture = Fixture::mongodb().await;
        create(&fixture, "expiresAt_ttl", Some(retention)).await;
        let (database, commands) = recorded(fixture.db(), &[]).await;
        let state = state_of(&database).await;
        assert_eq!(state == IndexState::Ready, is_ready, "{state:?}");
        assert_eq!(names(&commands.all()), ["listIndexes", "listCollections"]);
        let mends = r#"in mongosh: db.getCollection("distributed_locks").dropIndex("expiresAt_ttl")"#;
        assert_eq!(state.to_string().ends_with(mends), !is_ready, "{state}");
    }
}

/// On a missing or empty collection the build delays no lock: the index is created at once.
#[tokio::test]
async fn a_missing_or_empty_collection_gets_the_index_at_once() {
    for exists in [false, true] {
        let fixture = Fixture::mongodb().await;
        if exists {
            let creating = fixture.database().create_collection("distributed_locks");
            creating.await.unwrap();
        }
        let (database, commands) = recorded(fixture.db(), &[]).await;
        assert_eq!(state_of(&database).await, IndexState::Ready);
        let mut sent = commands.all();
        assert!(!names(&sent).contains(&"findAndModify"), "{sent:?}");
        sent.retain(|command| command.contains_key("createIndexes"));
        let limit = sent[0].get("maxTimeMS").map(ToString::to_string);
        assert_eq!(limit.as_deref(), Some("1000"));
    }
}

/// On a filled collection the process that holds an internal lock builds the index, and the others find it.
#[tokio::test]
async fn of_eight_processes_one_builds_the_index() {
    let fixture = Fixture::mongodb().await;
    fill(&fixture).await;
    let _point = slow_builds(&fixture).await;
    let builds = Arc::<InFlight>::default();
    let mut starting = JoinSet::new();
    for number in 0..8 {
        let provider = counted(&builds, &fixture).await;
        starting.spawn(async move {
            let admin = provider.admin();
            let acquire = provider.lock(format!("starts:{number}")).acquire();
            let (guard, state) = tokio::join!(acquire, admin.index_state());
            guard.unwrap().release().await.unwrap();
            state
        });
    }
    for state in starting.join_all().await {
        assert_eq!(state, IndexState::Ready);
    }
    assert_eq!(builds.most.load(SeqCst), 1);
    internal_lock_is_an_ordinary_document_and_not_listed(&fixture).await;
}

async fn internal_lock_is_an_ordinary_document_and_not_listed(fixture: &Fixture) {
    let document = fixture.document(INTERNAL_LOCK).await.unwrap();
    assert_eq!(
        document.keys().collect::<Vec<_>>(),
        ["_id", "lockId", "acquiredAt", "expiresAt", "fencingToken"]
    );
    assert_eq!(
        document.get_str("lockId"),
        Ok(""),
        "it is released after the build"
    );
    let listed = fixture.provider.admin().list(LockFilter::new()).await.unwrap();
    assert!(listed.iter().all(|lock| !lock.name.contains("ttl-index")));
    assert!(listed.iter().any(|lock| lock.name == "starts:0"));
}

/// A standalone server refuses the commit quorum that replica sets need.
#[tokio::test]
async fn a_filled_collection_of_a_standalone_gets_the_index() {
    let (_server, database) = standalone().await;
    locks(&database).insert_one(claim("filled", "", 0)).await.unwrap();
    assert_eq!(state_of(&database).await, IndexState::Ready);
}

/// After a build that ran out of time the list of indexes decides whether the index is there.
#[tokio::test]
async fn a_build_that_ran_out_of_time_may_have_succeeded() {
    let fixture = Fixture::mongodb().await;
    fill(&fixture).await;
    let _point = out_of_time(&fixture).await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let admin = LockProvider::new(&database).admin();
    let asking = tokio::spawn(async move { admin.index_state().await });
    commands.until_sent("createIndexes").await;
    // The fail point does not apply to this client, because its application name differs.
    let client = must(stable_client(fixture.db().uri()).await);
    let database = client.database(fixture.db().name());
    create_on(&locks(&database), "expiresAt_ttl", Some(DAY)).await;
    assert_eq!(asking.await.unwrap(), IndexState::Ready);
}

/// Repeated builds would delay commands repeatedly: after a failed build no process builds for ten minutes. The state has the
/// command that mends it.
#[tokio::test]
async fn after_a_failed_build_no_process_builds_for_minutes() {
    let fixture = Fixture::mongodb().await;
    fill(&fixture).await;
    let point = out_of_time(&fixture).await;
    let builds = Arc::<InFlight>::default();
    for _ in 0..3 {
        let state = counted(&builds, &fixture).await.admin().index_state().await;
        let mends = "in mongosh: db.getCollection(\"distributed_locks\").createIndex({ expiresAt: 1 }, { name: \
                     \"expiresAt_ttl\", expireAfterSeconds: 86400 })";
        assert!(
            matches!(&state, IndexState::Failed { reason } if reason.ends_with(mends)),
            "{state:?}"
        );
    }
    assert_eq!(builds.all.load(SeqCst), 1);
    let pause = fixture.info(INTERNAL_LOCK).await.remaining.as_secs();
    assert!((500..=600).contains(&pause), "{pause}");

    // An operator can end the pause.
    must(point.clear().await);
    let admin = fixture.provider.admin();
    assert!(admin.force_release(INTERNAL_LOCK).await.unwrap());
    assert_eq!(admin.index_state().await, IndexState::Ready);
}

/// Checks of the index that hang occupy one connection of the pool, however many callers ask.
#[tokio::test]
async fn one_index_check_at_a_time_reaches_the_server() {
    let fixture = Fixture::mongodb().await;
    let _point = slow_builds(&fixture).await;
    let builds = Arc::<InFlight>::default();
    let provider = counted(&builds, &fixture).await;
    let mut asking = JoinSet::new();
    for _ in 0..5 {
        let admin = provider.admin();
        asking.spawn(async move { admin.index_state().await });
    }
    for state in asking.join_all().await {
        assert_eq!(state, IndexState::Ready);
    }
    assert_eq!(builds.most.load(SeqCst), 1);
}

/// A stream of events tells that the collection is gone, or the stream of a waiter. Meanwhile `health` does not say that the
/// index exists.
#[tokio::test]
async fn an_index_that_ended_with_its_collection_is_created_again() {
    for ending in ["drop", "dropDatabase", "renameCollection"] {
        for has_waiter in [false, true] {
            let fixture = Fixture::mongodb().await;
            let (one, commands) = fixture.recorded(|builder| builder.acquire_timeout(AMPLE)).await;
            acquire_and_release(&one.lock("free")).await;
            let ready = || async { (one.health().await.index == Some(IndexState::Ready)).then_some(()) };
            must(eventually(AMPLE, "the index is ready", ready).await);
            let held = claim("held", "dora#1", 600_000);
            fixture.locks().insert_one(held).await.unwrap();
            let mut streaming = JoinSet::new();
            if has_waiter {
                let waiting = one.lock("held");
                streaming.spawn(async move { drop(waiting.acquire().await) });
            } else {
                let mut events = one.admin().events(LockFilter::new());
                streaming.spawn(async move { while events.next().await.is_some() {} });
            }
            commands.until_sent("getMore").await;
            end_collection(&fixture, ending).await;
            let seen = async || (one.health().await.index, index_exists(&fixture).await);
            let noticed = || async {
                let (told, exists) = seen().await;
                (exists || told != Some(IndexState::Ready)).then_some(())
            };
            must(eventually(AMPLE, "the end is noticed", noticed).await);
            let ready = || async {
                let (told, exists) = seen().await;
                let is_ready = told == Some(IndexState::Ready);
                assert!(exists || !is_ready, "{ending}, {has_waiter}");
                is_ready.then_some(())
            };
            must(eventually(AMPLE, "the index is ready again", ready).await);
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

async fn index_exists(fixture: &Fixture) -> bool {
    let names = fixture.locks().list_index_names().await;
    names.is_ok_and(|names| names.contains(&"expiresAt_ttl".to_owned()))
}

async fn state_of(database: &Database) -> IndexState {
    LockProvider::new(database).admin().index_state().await
}

/// A provider for the fixture's database on one more client, whose index builds are counted.
async fn counted(builds: &Arc<InFlight>, fixture: &Fixture) -> LockProvider {
    let mut options = must(stable_options(fixture.db().uri()).await);
    options.app_name = Some(fixture.db().name().to_owned());
    builds.count("createIndexes", &mut options);
    let client = Client::with_options(options).unwrap();
    LockProvider::new(&client.database(fixture.db().name()))
}

/// Makes index builds of the fixture's clients take at least 100 ms, so that builds at the same time overlap.
async fn slow_builds(fixture: &Fixture) -> FailPointGuard {
    let point = FailPoint::on(&["createIndexes"]).always();
    let slow = point.block(Duration::from_millis(100));
    must(slow.enable_for(fixture.db()).await)
}

/// Makes index builds of the fixture's clients fail after half a second, as if they had reached their time limit.
async fn out_of_time(fixture: &Fixture) -> FailPointGuard {
    const MAX_TIME_EXPIRED: i32 = 50;
    let point = FailPoint::on(&["createIndexes"]).always();
    let slow = point.block(Duration::from_millis(500));
    must(slow.error_code(MAX_TIME_EXPIRED).enable_for(fixture.db()).await)
}

/// Fills the collection with one document, without any index except the one on `_id`.
async fn fill(fixture: &Fixture) {
    fixture.locks().insert_one(claim("filled", "", 0)).await.unwrap();
}

async fn create(fixture: &Fixture, name: &str, expire_after: Option<Duration>) {
    create_on(&fixture.locks(), name, expire_after).await;
}

async fn create_on(locks: &Collection<Document>, name: &str, expire_after: Option<Duration>) {
    let mut options = IndexOptions::builder().name(name.to_owned()).build();
    options.expire_after = expire_after;
    let index = IndexModel::builder().keys(doc! { "expiresAt": 1 });
    locks.create_index(index.options(options).build()).await.unwrap();
}
