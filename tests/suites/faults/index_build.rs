//! Building the TTL index on a filled collection while a foreign transaction is open.

use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{DateTime, doc};
use mongolock::{IndexState, LockProvider};
use mongolock_tests::{AMPLE, Commands, TestDb, locks, must, stable_options, test_db, transaction_on};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

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

/// The longest duration of an acquire, of those that follow each other until `end`.
async fn longest_acquire(provider: LockProvider, name: String, end: Instant) -> Duration {
    let mut longest = Duration::ZERO;
    while Instant::now() < end {
        let begun = Instant::now();
        let guard = provider.lock(&name).await;
        longest = longest.max(begun.elapsed());
        let guard = guard.unwrap_or_else(|error| panic!("{name} after {:?}: {error}", begun.elapsed()));
        guard.release().await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
    longest
}

/// S1.9, S1.21: commands queue behind a build that waits for the transaction, for no longer than the limit of one
/// build.
#[tokio::test]
async fn an_open_transaction_and_a_missing_index_delay_no_acquire() {
    let db = test_db().await;
    fill(&db).await;
    let mut session = transaction_on(&db.connect_again().await.unwrap(), &["filled:0"]).await;
    let commands = Commands::default();
    let end = Instant::now() + OPEN;
    let mut acquiring = JoinSet::new();
    for number in 0..4 {
        let provider = process(&db, &commands).await;
        acquiring.spawn(longest_acquire(provider, format!("free:{number}"), end));
    }
    let operator = process(&db, &commands).await;
    let admin = operator.admin();
    let asking = tokio::spawn(async move { admin.index_state().await });
    for longest in acquiring.join_all().await {
        assert!(longest < LONGEST, "{longest:?}");
    }
    let state = asking.await.unwrap();
    assert!(matches!(state, IndexState::Failed { .. }), "{state:?}");
    assert_eq!(
        commands.count("createIndexes"),
        1,
        "the next build begins minutes later"
    );
    session.abort_transaction().await.unwrap();
    let guard = operator.lock("filled:0").acquire_timeout(AMPLE).await.unwrap();
    guard.release().await.unwrap();
}
