//! Building the TTL index on a filled collection while a foreign transaction is open.

use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{DateTime, doc};
use mongolock::{IndexState, LockProvider};
use mongolock_tests::{AMPLE, Commands, TestDb, locks, must, stable_options, test_db};
use tokio::time::sleep;

use crate::callers::Callers;
use crate::foreign_transaction;

/// The time for which the foreign transaction stays open: longer than the default acquire timeout of 10 s.
const OPEN: Duration = Duration::from_secs(15);

/// The time that an acquire may take at most: 1 s, which is the limit of one build, and 1.5 s for a slow machine.
const LONGEST: Duration = Duration::from_millis(2500);

/// Inserts documents of free locks, without any index except the one on `_id`.
async fn fill(db: &TestDb) {
    let released = (0..20).map(|number| {
        doc! {
            "_id": format!("filled:{number}"), "lockId": "", "acquiredAt": DateTime::from_millis(0),
            "expiresAt": DateTime::from_millis(0), "fencingToken": 1_i64,
        }
    });
    locks(db.database()).insert_many(released).await.unwrap();
}

/// A provider as another process would have it, whose commands are recorded together with those of others.
async fn process(db: &TestDb, commands: &Commands) -> LockProvider {
    let mut options = must(stable_options(db.uri()).await);
    commands.record(&mut options);
    LockProvider::new(&Client::with_options(options).unwrap().database(db.name()))
}

/// S1.9, S1.21: commands queue behind a build that waits for the transaction, for no longer than the limit of one
/// build, also if each process builds.
#[tokio::test]
async fn an_open_transaction_and_a_missing_index_delay_no_acquire() {
    let db = test_db().await;
    fill(&db).await;
    let mut session = foreign_transaction(&db, &["filled:0"]).await;
    let commands = Commands::default();
    let mut locks = Vec::new();
    for number in 0..4 {
        locks.push(process(&db, &commands).await.lock(number));
    }
    let callers = Callers::start(locks, Duration::from_millis(20));
    let operator = process(&db, &commands).await;
    let admin = operator.admin();
    let asking = tokio::spawn(async move { admin.index_state().await });
    sleep(OPEN).await;
    let calls = callers.stop().await;
    let (count, longest) = (calls.count, calls.longest);
    assert!(count > 0 && longest < LONGEST, "{count}, {longest:?}");
    assert_eq!(calls.failed_releases, 0);
    let state = asking.await.unwrap();
    assert!(matches!(state, IndexState::Failed { .. }), "{state:?}");
    let builds = commands.count("createIndexes");
    assert_eq!(builds, 5, "each process builds once, and again an hour later");
    session.abort_transaction().await.unwrap();
    let guard = operator.lock("filled:0").acquire_timeout(AMPLE).await.unwrap();
    guard.release().await.unwrap();
}
