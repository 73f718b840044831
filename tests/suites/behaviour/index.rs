//! The TTL index: it is created automatically, reported when it is wrong, and never blocks a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::IndexOptions;
use mongodb::{Client, Collection, Database, IndexModel};
use mongolock::{IndexState, LockFilter, LockProvider};
use mongolock_tests::{
    AMPLE, FailPoint, FailPointGuard, Server, ServerOptions, eventually, locks, must, names, recorded,
    stable_client, stable_options,
};
use tokio::task::JoinSet;

use crate::fixture::{Fixture, restricted};

/// The default retention.
const DAY: Duration = Duration::from_secs(86_400);

/// S1.9
#[tokio::test]
async fn the_index_is_created_automatically() {
    let fixture = Fixture::mongodb().await;
    let provider = fixture
        .provider
        .to_builder()
        .retention(Duration::from_secs(7200))
        .build()
        .unwrap();
    let guard = provider.lock("first").await.unwrap();
    let index = must(
        eventually(AMPLE, "the index exists", async || {
            let mut indexes = fixture.locks().list_indexes().await.ok()?;
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

/// S1.21, S1.25, B7: with a conflicting index everything works, except that unused documents are not removed.
#[tokio::test]
async fn locks_work_without_the_index() {
    let fixture = Fixture::mongodb().await;
    create(&fixture, "mine", None).await;
    for _ in 0..5 {
        let guard = fixture.provider.lock("works").await.unwrap();
        assert!(
            fixture
                .rival()
                .lock("works")
                .try_acquire()
                .await
                .unwrap()
                .is_none()
        );
        guard.release().await.unwrap();
    }
    assert_eq!(
        fixture.locks().list_index_names().await.unwrap(),
        ["_id_", "mine"]
    );
}

/// B7, S2.12, S1.9: `index_state` says what is wrong with the index.
#[tokio::test]
async fn index_state_names_the_problem() {
    let fine = Fixture::mongodb().await;
    assert_eq!(fine.provider.admin().index_state().await, IndexState::Ready);

    // The index as DistributedLock.MongoDB creates it.
    let foreign = Fixture::mongodb().await;
    create(&foreign, "expiresAt_ttl", Some(Duration::ZERO)).await;
    let state = foreign.provider.admin().index_state().await;
    assert!(
        matches!(&state, IndexState::Conflict { reason, .. } if reason.contains("expiresAt_ttl")),
        "{state:?}"
    );

    let plain = Fixture::mongodb().await;
    create(&plain, "mine", None).await;
    assert!(matches!(
        plain.provider.admin().index_state().await,
        IndexState::Conflict { .. }
    ));

    let capped = Fixture::mongodb().await;
    // The Stable API has no capped collections.
    must(capped.db().without_stable_api().await)
        .create_collection("distributed_locks")
        .capped(true)
        .size(1 << 20)
        .await
        .unwrap();
    assert_eq!(capped.provider.admin().index_state().await, IndexState::Capped);
    let guard = capped.provider.lock("works").await.unwrap();
    guard.release().await.unwrap();
}

/// If the index or a conflicting one exists, the list of indexes decides, and none is created. `listCollections` is
/// sent because an index does not remove documents of a capped collection.
#[tokio::test]
async fn the_list_of_indexes_decides_if_an_index_exists() {
    let both: &[&str] = &["listIndexes", "listCollections"];
    for (retention, is_ready, sent) in [(DAY, true, both), (Duration::ZERO, false, &both[..1])] {
        let fixture = Fixture::mongodb().await;
        create(&fixture, "expiresAt_ttl", Some(retention)).await;
        let (database, commands) = recorded(fixture.db(), &[]).await;
        let state = LockProvider::new(&database).admin().index_state().await;
        assert_eq!(state == IndexState::Ready, is_ready, "{state:?}");
        assert_eq!(
            matches!(state, IndexState::Conflict { .. }),
            !is_ready,
            "{state:?}"
        );
        assert_eq!(names(&commands.all()), sent);
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
        let state = LockProvider::new(&database).admin().index_state().await;
        assert_eq!(state, IndexState::Ready);
        let sent = commands.all();
        assert!(!names(&sent).contains(&"findAndModify"), "{sent:?}");
        let build = sent
            .iter()
            .find(|command| command.contains_key("createIndexes"))
            .unwrap();
        let limit = build.get("maxTimeMS").map(ToString::to_string);
        assert_eq!(limit.as_deref(), Some("1000"));
    }
}

/// On a filled collection the process that holds an internal lock builds the index, and the others find it.
#[tokio::test]
async fn of_eight_processes_one_builds_the_index() {
    let fixture = Fixture::mongodb().await;
    fill(&fixture).await;
    let _point = slow_builds(&fixture).await;
    let builds = Builds::default();
    let mut starting = JoinSet::new();
    for number in 0..8 {
        let provider = LockProvider::new(&builds.counted(&fixture).await);
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
    assert_eq!(builds.most_at_once(), 1);
    assert_eq!(builds.all(), 1);
    internal_lock_is_an_ordinary_document_and_not_listed(&fixture).await;
}

async fn internal_lock_is_an_ordinary_document_and_not_listed(fixture: &Fixture) {
    let document = fixture.document("mongolock\u{1f}ttl-index").await.unwrap();
    let fields: Vec<&str> = document.keys().map(String::as_str).collect();
    assert_eq!(
        fields,
        ["_id", "lockId", "acquiredAt", "expiresAt", "fencingToken"]
    );
    assert_eq!(
        document.get_str("lockId"),
        Ok(""),
        "the internal lock is released after the build"
    );
    let listed = fixture.provider.admin().list(LockFilter::new()).await.unwrap();
    assert!(listed.iter().all(|lock| !lock.name.contains("ttl-index")));
    assert!(listed.iter().any(|lock| lock.name == "starts:0"));
}

/// A standalone server refuses the commit quorum that replica sets need.
#[tokio::test]
async fn a_filled_collection_of_a_standalone_gets_the_index() {
    let server = Server::start(ServerOptions::standalone()).await.unwrap();
    let database = server.client().await.unwrap().database("app");
    locks(&database).insert_one(released("filled")).await.unwrap();
    let state = LockProvider::new(&database).admin().index_state().await;
    assert_eq!(state, IndexState::Ready);
}

/// After a build that ran out of time the list of indexes decides whether the index is there.
#[tokio::test]
async fn a_build_that_ran_out_of_time_may_have_succeeded() {
    let fixture = Fixture::mongodb().await;
    fill(&fixture).await;
    let _point = out_of_time(&fixture).await;
    let app_name = format!("appName={}", fixture.db().name());
    let (database, commands) = recorded(fixture.db(), &[&app_name]).await;
    let admin = LockProvider::new(&database).admin();
    let asking = tokio::spawn(async move { admin.index_state().await });
    commands.until_sent("createIndexes").await;
    // The fail point does not apply to this client, because its application name differs.
    let client = must(stable_client(fixture.db().uri()).await);
    let locks = client
        .database(fixture.db().name())
        .collection("distributed_locks");
    create_on(&locks, "expiresAt_ttl", Some(DAY)).await;
    assert_eq!(asking.await.unwrap(), IndexState::Ready);
}

/// Repeated builds would delay commands repeatedly: after a failed build no process builds for
/// five to ten minutes.
#[tokio::test]
async fn after_a_failed_build_no_process_builds_for_minutes() {
    let fixture = Fixture::mongodb().await;
    fill(&fixture).await;
    let point = out_of_time(&fixture).await;
    let builds = Builds::default();
    for _ in 0..3 {
        let provider = LockProvider::new(&builds.counted(&fixture).await);
        let state = provider.admin().index_state().await;
        assert!(matches!(state, IndexState::Failed { .. }), "{state:?}");
    }
    assert_eq!(builds.all(), 1);
    let lock = fixture.provider.admin().get("mongolock\u{1f}ttl-index").await;
    let pause = lock.unwrap().unwrap().remaining.as_secs();
    assert!((280..=600).contains(&pause), "{pause}");

    // An operator can end the pause.
    must(point.clear().await);
    let admin = fixture.provider.admin();
    assert!(admin.force_release("mongolock\u{1f}ttl-index").await.unwrap());
    assert_eq!(admin.index_state().await, IndexState::Ready);
}

/// Checks of the index that hang occupy one connection of the pool, however many callers ask.
#[tokio::test]
async fn one_index_check_at_a_time_reaches_the_server() {
    let fixture = Fixture::mongodb().await;
    let _point = slow_builds(&fixture).await;
    let builds = Builds::default();
    let provider = LockProvider::new(&builds.counted(&fixture).await);
    let mut asking = JoinSet::new();
    for _ in 0..5 {
        let admin = provider.admin();
        asking.spawn(async move { admin.index_state().await });
    }
    for state in asking.join_all().await {
        assert_eq!(state, IndexState::Ready);
    }
    assert_eq!(builds.most_at_once(), 1);
}

/// S1.25: without the right to create the index, locks work, and unused documents are not removed.
#[tokio::test]
async fn a_missing_right_is_reported() {
    let server = Server::start(ServerOptions::single().auth()).await.unwrap();
    let uri = restricted(&server, &["find", "insert", "update"]).await;
    let client = must(stable_client(uri).await);
    let provider = LockProvider::new(&client.database("app"));
    let guard = provider.lock("works").await.unwrap();
    assert!(matches!(
        provider.admin().index_state().await,
        IndexState::Unauthorized { .. }
    ));
    guard.release().await.unwrap();
}

/// Counts the index builds that some clients have sent.
#[derive(Clone, Default)]
struct Builds {
    all: Arc<AtomicUsize>,
    under_way: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Builds {
    /// The fixture's database through one more client.
    async fn counted(&self, fixture: &Fixture) -> Database {
        let mut options = must(stable_options(fixture.db().uri()).await);
        options.app_name = Some(fixture.db().name().to_owned());
        let builds = self.clone();
        options.command_event_handler = Some(EventHandler::callback(move |event| builds.count(&event)));
        Client::with_options(options)
            .unwrap()
            .database(fixture.db().name())
    }

    fn count(&self, event: &CommandEvent) {
        match event {
            CommandEvent::Started(started) if started.command_name == "createIndexes" => {
                self.all.fetch_add(1, Ordering::SeqCst);
                let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(now, Ordering::SeqCst);
            }
            CommandEvent::Succeeded(ended) if ended.command_name == "createIndexes" => self.end(),
            CommandEvent::Failed(ended) if ended.command_name == "createIndexes" => self.end(),
            _ => {}
        }
    }

    fn end(&self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    fn all(&self) -> usize {
        self.all.load(Ordering::SeqCst)
    }

    fn most_at_once(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// Makes index builds of the fixture's clients take at least 100 ms, so that builds at the same time overlap.
async fn slow_builds(fixture: &Fixture) -> FailPointGuard {
    let point = FailPoint::on(&["createIndexes"]).always();
    let point = point.block(Duration::from_millis(100));
    must(point.enable_for(fixture.db()).await)
}

/// Makes index builds of the fixture's clients fail after half a second, as if they had reached their time limit.
async fn out_of_time(fixture: &Fixture) -> FailPointGuard {
    const MAX_TIME_EXPIRED: i32 = 50;
    let point = FailPoint::on(&["createIndexes"]).always();
    let point = point
        .block(Duration::from_millis(500))
        .error_code(MAX_TIME_EXPIRED);
    must(point.enable_for(fixture.db()).await)
}

/// Fills the collection with one document, without any index except the one on `_id`.
async fn fill(fixture: &Fixture) {
    fixture.locks().insert_one(released("filled")).await.unwrap();
}

fn released(name: &str) -> Document {
    let past = DateTime::now();
    doc! { "_id": name, "lockId": "", "acquiredAt": past, "expiresAt": past, "fencingToken": 1_i64 }
}

async fn create(fixture: &Fixture, name: &str, expire_after: Option<Duration>) {
    create_on(&fixture.locks(), name, expire_after).await;
}

async fn create_on(locks: &Collection<Document>, name: &str, expire_after: Option<Duration>) {
    let mut options = IndexOptions::builder().name(name.to_owned()).build();
    options.expire_after = expire_after;
    let index = IndexModel::builder()
        .keys(doc! { "expiresAt": 1 })
        .options(options)
        .build();
    locks.create_index(index).await.unwrap();
}
