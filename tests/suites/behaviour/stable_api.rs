//! Every command that the library sends belongs to the Stable API V1, which later versions of the server keep.

use std::collections::BTreeSet;
use std::time::Duration;

use mongodb::Database;
use mongodb::bson::{Document, doc};
use mongodb::error::{ErrorKind, TRANSIENT_TRANSACTION_ERROR};
use mongolock::{FencedExt, IndexState, LockError, LockFilter, LockProvider, WakeUp};
use mongolock_tests::{AMPLE, eventually, lock_document, must, names, recorded, test_db};

/// The code of a refusal of a command outside the API (`APIStrictError`).
const NOT_IN_THE_API: i32 = 323;

/// The errors of commands that are not in the API, or are to be removed from it.
const REFUSALS: [&str; 2] = ["APIStrictError", "APIDeprecationError"];

/// The commands that the library sends on a replica set.
const SENT: [&str; 12] = [
    "abortTransaction",
    "aggregate",
    "commitTransaction",
    "createIndexes",
    "delete",
    "find",
    "findAndModify",
    "getMore",
    "hello",
    "insert",
    "listIndexes",
    "update",
];

/// The other tests rely on it: their ordinary client cannot send what the API does not have.
#[tokio::test]
async fn the_ordinary_client_of_the_tests_cannot_leave_the_api() {
    let db = test_db().await;
    let distinct = doc! { "distinct": "numbers", "key": "_id" };
    let (recorded, commands) = recorded(&db, &[]).await;
    for database in [db.database(), &must(db.connect_again().await), &recorded] {
        let refused = database.run_command(distinct.clone()).await.unwrap_err();
        match refused.kind.as_ref() {
            ErrorKind::Command(error) => assert_eq!(error.code, NOT_IN_THE_API, "{error:?}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(is_refused(&commands.failed()[0]), "{:?}", commands.failed());
    let without = must(db.without_stable_api().await);
    without.run_command(distinct).await.unwrap();
}

/// The library also repeats and works around failed commands, so that no result shows a refusal: the commands do.
#[tokio::test]
async fn the_server_refuses_no_command() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[]).await;
    let provider = LockProvider::builder(&database)
        .acquire_timeout(AMPLE)
        .renew_interval(Duration::from_millis(100))
        .owner("operator")
        .build()
        .unwrap();
    hold_and_wait(&provider, &database).await;
    several_and_permits(&provider).await;
    work_once(&provider, &database).await;
    fenced_writes(&provider, &database).await;
    operate(&provider).await;
    provider.shutdown().await;

    let failed = commands.failed();
    assert!(!failed.iter().any(|failure| is_refused(failure)), "{failed:?}");
    let all = commands.all();
    let sent: BTreeSet<&str> = names(&all).into_iter().collect();
    let missing: Vec<_> = SENT.iter().filter(|name| !sent.contains(*name)).collect();
    assert!(missing.is_empty(), "not sent: {missing:?} of {sent:?}");
    let is_strict = |command: &Document| command.get_bool("apiStrict") == Ok(true);
    assert!(all.iter().all(is_strict), "{sent:?}");
}

fn is_refused(failure: &str) -> bool {
    REFUSALS.iter().any(|refusal| failure.contains(refusal))
}

/// A renewal, a wait that a change stream ends, and a release.
async fn hold_and_wait(provider: &LockProvider, database: &Database) {
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
    let guard = provider.lock("held").await.unwrap();
    let rival = provider.to_builder().owner("rival").build().unwrap();
    assert!(rival.lock("held").try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(rival.lock("held").acquire());
    let streams = || async { (rival.health().await.wake_up == WakeUp::Stream).then_some(()) };
    must(eventually(AMPLE, "a change stream", streams).await);
    let end = async || {
        let document = lock_document(database, "held").await?;
        document.get_datetime("expiresAt").ok().copied()
    };
    let granted = end().await;
    let renewed = || async { (end().await > granted).then_some(()) };
    must(eventually(AMPLE, "a renewal", renewed).await);
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    rival.shutdown().await;
}

async fn several_and_permits(provider: &LockProvider) {
    let set = provider.lock_all(["one", "two"]).acquire().await.unwrap();
    set.release().await.unwrap();
    let semaphore = provider.semaphore("few", 2);
    let (first, second) = (
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
    );
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    assert_eq!(semaphore.available().await.unwrap(), 0);
    first.release().await.unwrap();
    second.release().await.unwrap();
}

/// A mark, a guarded commit, a commit with a mark, and one that is refused.
async fn work_once(provider: &LockProvider, database: &Database) {
    let guard = provider.lock("marked").once().acquire().await.unwrap();
    guard.done().await.unwrap();
    let accounts = database.collection::<Document>("accounts");
    database.create_collection("accounts").await.unwrap();
    let mut session = database.client().start_session().await.unwrap();
    for (number, name) in ["guarded", "guarded and marked", "lost"].into_iter().enumerate() {
        let guard = provider.lock(name).once().acquire().await.unwrap();
        let context = guard.context();
        if name == "lost" {
            assert!(provider.admin().force_release(name).await.unwrap());
        }
        // A transaction that meets another operation, such as the copy of a slow request, is to be repeated.
        let committed = loop {
            session.start_transaction().await.unwrap();
            let insert = accounts.insert_one(doc! { "_id": i32::try_from(number).unwrap() });
            insert.session(&mut session).await.unwrap();
            let committed = match name {
                "guarded and marked" => context.commit_done(&mut session).await,
                _ => context.commit(&mut session).await,
            };
            match committed {
                Err(LockError::Mongo(error)) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) => {}
                committed => break committed,
            }
        };
        assert_eq!(committed.is_ok(), name != "lost", "{name}: {committed:?}");
        drop(guard);
    }
    assert_eq!(accounts.count_documents(doc! {}).await.unwrap(), 2);
}

async fn fenced_writes(provider: &LockProvider, database: &Database) {
    let guard = provider.lock("fenced").await.unwrap();
    let fenced = database
        .collection::<Document>("reports")
        .fenced(guard.fencing_token());
    let same = doc! { "_id": 1 };
    fenced.insert_one(doc! { "_id": 1, "n": 1 }).await.unwrap();
    let change = doc! { "$set": { "n": 2 } };
    fenced.update_one(same.clone(), change).await.unwrap();
    fenced
        .replace_one(same.clone(), doc! { "_id": 1, "n": 3 })
        .await
        .unwrap();
    fenced.delete_one(same).await.unwrap();
    guard.release().await.unwrap();
}

async fn operate(provider: &LockProvider) {
    let admin = provider.admin();
    let guard = provider.lock("operated").await.unwrap();
    assert!(provider.is_ready().await);
    let held = admin.get("operated").await.unwrap().unwrap();
    assert_eq!(held.fencing_token, guard.fencing_token());
    let all = LockFilter::new().prefix("operated").owner("operator");
    assert_eq!(admin.list(all).await.unwrap().len(), 1);
    let forced = admin.force_release("operated").only_if(guard.fencing_token());
    assert!(forced.await.unwrap());
    let _other = provider.lock("other").await.unwrap();
    assert_eq!(admin.release_owner("operator").await.unwrap(), 1);
}
