//! Thousands of calls at once. The suite is a program of its own: beside many other tests it gets little processor time, replies
//! come late, and requests are repeated. While a server rejects most commands, no other test can use its fail points.

mod overload;

use std::time::Duration;

use mongolock::{IndexState, LockProvider};
use mongolock_tests::{AMPLE, claim, eventually, locks, must, names, recorded, test_db};
use tokio::task::JoinSet;
use tokio::time::sleep;

const WAITERS: usize = 10_000;

const HOUR: i64 = 60 * 60 * 1000;

/// Ten thousand waiters on ten thousand locks send few commands while the locks stay held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_awaited_locks_cost_few_commands() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[]).await;
    let builder = LockProvider::builder(&database).acquire_timeout(AMPLE * 10);
    let provider = builder.build().unwrap();
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
    let held = |number: usize| claim(number.to_string(), format!("theirs#{number}"), HOUR);
    let theirs = (0..WAITERS).map(held);
    locks(db.database()).insert_many(theirs).await.unwrap();
    let mut waiters = JoinSet::new();
    for number in 0..WAITERS {
        let lock = provider.lock(number);
        waiters.spawn(async move { lock.acquire().await.map(drop) });
    }
    let quiet = || async {
        commands.clear();
        sleep(Duration::from_secs(3)).await;
        let sent = commands.all();
        // They are twelve a second; two thousand a second would be sent if each waiter sent its own.
        (sent.len() <= 36 && !names(&sent).contains(&"findAndModify")).then_some(())
    };
    must(eventually(AMPLE * 2, "few commands, and no acquire request", quiet).await);
    assert!(waiters.try_join_next().is_none(), "all of them wait");
}
