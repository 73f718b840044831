//! Every command that the library sends belongs to the Stable API V1, which later versions of the server keep.

use std::collections::BTreeSet;
use std::time::Duration;

use mongodb::Database;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::TRANSIENT_TRANSACTION_ERROR;
use mongolock::{FencedExt, IndexState, LockError, LockEventKind, LockFilter, LockProvider};
use mongolock_tests::{Commands, Purpose, locks, names, recorded, test_db};

use crate::conformance::kind::CALLS;
use crate::fixture::in_time;

/// The errors of commands that are not in the API, or are to be removed from it.
const REFUSALS: [&str; 2] = ["APIStrictError", "APIDeprecationError"];

/// The commands that the library sends on a replica set.
const SENT: &str = "abortTransaction aggregate commitTransaction createIndexes delete find findAndModify getMore hello insert \
                    listIndexes update";

/// Uses all that a provider offers, and waits for a change stream; the commands are those of the database's client.
pub(crate) async fn use_everything(database: &Database, commands: &Commands) {
    let builder = LockProvider::builder(database).owner("operator");
    let builder = builder.renew_interval(Duration::from_millis(100));
    let provider = builder.build().unwrap();
    let begun = DateTime::from_millis(DateTime::now().timestamp_millis() - 1_000);
    let admin = provider.admin();
    // A build beside documents may take longer than the library allows.
    assert_eq!(admin.index_state().await, IndexState::Ready);
    // The library asks a server with `hello` only if no command was confirmed for a while, or for the whole health.
    assert!(provider.health().await.has_primary);
    let guard = provider.lock("works").await.unwrap();
    commands.until_sent(Purpose::Renew).await;
    let rival = provider.to_builder().build().unwrap();
    let waiting = tokio::spawn(rival.lock("works").acquire_timeout(None).acquire());
    // The waiter opens its change stream after a few attempts.
    commands.until_sent("aggregate").await;
    let mut events = admin.events(LockFilter::new().name("works")).since(begun);
    assert!(in_time(events.next()).await.unwrap().unwrap().kind.is_held());
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    while in_time(events.next()).await.unwrap().unwrap().kind != LockEventKind::Released {}

    let mut session = database.client().start_session().await.unwrap();
    for name in ["guarded", "marked", "lost"] {
        let guard = provider.lock(name).once().await.unwrap();
        if name == "lost" {
            let forced = admin.force_release(name).only_if(guard.fencing_token());
            assert!(forced.await.unwrap());
        }
        // A transaction that meets a renewal is to be repeated.
        let committed = loop {
            session.start_transaction().await.unwrap();
            let locks = locks(database);
            let begins = locks.find_one(doc! {});
            begins.session(&mut session).await.unwrap();
            let committed = match name {
                "marked" => guard.context().commit_done(&mut session).await,
                _ => guard.context().commit(&mut session).await,
            };
            match committed {
                Err(LockError::Mongo(error)) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) => {}
                committed => break committed,
            }
        };
        assert_eq!(committed.is_ok(), name != "lost", "{name}: {committed:?}");
        drop(guard.release().await);
    }
    for kind in CALLS {
        let target = kind.of(&provider, None);
        let hold = target.acquire().await.unwrap();
        assert!(kind.of(&rival, None).try_acquire().await.unwrap().is_none());
        let handle = hold.detach(Duration::from_secs(60)).await.unwrap();
        target.extend(&handle, Duration::from_secs(90)).await.unwrap();
        target.resume(&handle).await.unwrap().release().await.unwrap();
    }
    assert_eq!(provider.semaphore("permit", 1).available().await.unwrap(), 1);
    guard.detach(Duration::from_secs(60)).await.unwrap();

    let filter = LockFilter::new().prefix("w").owner("operator");
    assert_eq!(admin.list(filter).await.unwrap().len(), 1);
    assert!(admin.get("works").await.unwrap().is_some());
    assert_eq!(admin.release_owner("operator").await.unwrap(), 1);
    rival.shutdown().await;
    provider.shutdown().await;
}

/// The library also repeats and works around failed commands, so that no result shows a refusal: the commands do.
#[tokio::test]
async fn the_server_refuses_no_command() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[]).await;
    use_everything(&database, &commands).await;
    let fenced = database.collection::<Document>("reports").fenced(7.into());
    let (same, change) = (doc! { "_id": 1 }, doc! { "$set": { "n": 2 } });
    fenced.insert_one(same.clone()).await.unwrap();
    fenced.update_one(same.clone(), change).await.unwrap();
    fenced.replace_one(same.clone(), same.clone()).await.unwrap();
    fenced.delete_one(same).await.unwrap();

    let failed = commands.failed();
    let is_refused = |failure: &String| REFUSALS.iter().any(|refusal| failure.contains(refusal));
    assert!(!failed.iter().any(is_refused), "{failed:?}");
    // Also a command that the API does not have would be among them.
    let distinct = doc! { "distinct": "reports", "key": "_id" };
    database.run_command(distinct).await.unwrap_err();
    let failed = commands.failed();
    assert!(failed.iter().any(is_refused), "{failed:?}");
    let all = commands.all();
    let sent: BTreeSet<&str> = names(&all).into_iter().collect();
    let missing: Vec<_> = SENT.split(' ').filter(|name| !sent.contains(name)).collect();
    assert!(missing.is_empty(), "not sent: {missing:?} of {sent:?}");
    let is_strict = |command: &Document| command.get_bool("apiStrict") == Ok(true);
    assert!(all.iter().all(is_strict), "{sent:?}");
}
