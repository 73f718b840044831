//! A process with hundreds of leases and callers of free locks, while the server rejects commands for overload. What lasts for
//! minutes is measured by the part `overload` of the benchmark.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::{Bson, Document};
use mongolock::{LockGuard, LockProvider};
use mongolock_tests::{AMPLE, FailPoint, Purpose, must, recorded, test_db, until};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// So few leases share one command.
const LEASES: usize = 300;

/// The tasks that acquire and release free locks, and how long one of them waits for its lock.
const CALLERS: usize = 8;
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// The last part of the rejections, in which acquire requests are counted.
const LAST: Duration = Duration::from_secs(4);

/// The number of the leases that a command renews, which are none for another command.
fn renewed(command: &Document) -> usize {
    if Purpose::of(command) != Some(Purpose::Renew) {
        return 0;
    }
    let statements = command.get_array("updates").into_iter().flatten();
    let of_statements = statements.filter_map(|statement| statement.as_document()?.get_document("q").ok());
    let queries = command.get_document("query").into_iter().chain(of_statements);
    let names = queries.flat_map(names).filter_map(Bson::as_str);
    names.filter(|name| name.starts_with("lease:")).count()
}

/// The names in a query.
fn names(query: &Document) -> Vec<&Bson> {
    let of_many = query.get_document("_id").and_then(|id| id.get_array("$in"));
    let of_one = |_| query.get("_id").into_iter().collect();
    of_many.map_or_else(of_one, |ids| ids.iter().collect())
}

/// The number of guards whose locks are lost.
fn lost(guards: &[LockGuard]) -> usize {
    guards.iter().filter(|guard| guard.is_lost()).count()
}

/// Acquires and releases free locks until this time. An acquire may fail only with the words of an overloaded server.
async fn call(provider: LockProvider, caller: usize, until: Instant) {
    let lock = provider.lock(format!("free:{caller}"));
    let lock = lock.acquire_timeout(ACQUIRE_TIMEOUT);
    while Instant::now() < until {
        match lock.acquire().await {
            // A release without a reply is repeated in the background.
            Ok(guard) => drop(guard.release().await),
            Err(error) => assert!(error.to_string().starts_with("MongoDB is overloaded"), "{error}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// B9: this part of the commands is rejected for this time. The leases last, or are lost at their deadlines; rejected renewals are
/// repeated whole, acquire requests give way, and the server is not flooded.
async fn rejected(part: f64, expiry: Duration, time: Duration) {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[]).await;
    let provider = LockProvider::builder(&database).expiry(expiry).build().unwrap();
    let locks = (0..LEASES).map(|number| provider.lock(format!("lease:{number}")));
    let guards = join_all(locks.map(|lock| lock.acquire_timeout(AMPLE).acquire())).await;
    let guards: Vec<LockGuard> = guards.into_iter().map(Result::unwrap).collect();
    // Leases that were acquired at different times share a command from then on.
    until("a common renewal", async || {
        assert_eq!(lost(&guards), 0, "before the fault");
        commands.take().iter().any(|sent| renewed(sent) == LEASES)
    })
    .await;
    let rejecting = FailPoint::rejecting(&["update", "findAndModify", "find"]).part(part);
    let point = must(rejecting.enable_for(&db).await);
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        callers.spawn(call(provider.clone(), caller, begun + time));
    }
    // A lease was renewed a third of it before, or later.
    let before = time.saturating_sub(LAST);
    let half = (expiry / 2).min(before);
    sleep(half).await;
    assert_eq!(lost(&guards), 0, "before the deadlines");
    sleep(before.saturating_sub(half)).await;
    let mut sent = commands.take();
    sleep(LAST).await;
    let last = commands.take();
    let claims = last
        .iter()
        .filter(|sent| Purpose::of(sent) == Some(Purpose::Acquire));
    assert!(part < 1.0 || claims.count() as u64 <= 15 * LAST.as_secs());
    sent.extend(last);
    let number = sent.len() as u64;
    assert!(number <= 200 * time.as_secs(), "{number} commands");
    let renewals: Vec<usize> = sent.iter().map(renewed).collect();
    let together = renewals.contains(&LEASES) && !renewals.contains(&1);
    assert!(together, "{renewals:?}");
    assert!(provider.is_ready().await && provider.health().await.overloaded_since.is_some());
    must(point.clear().await);
    let lasts = part < 1.0 || time < expiry;
    assert_eq!(lost(&guards), if lasts { 0 } else { LEASES });
    timeout(AMPLE, callers.join_all()).await.expect("the calls end");
    for released in join_all(guards.into_iter().map(LockGuard::release)).await {
        assert_eq!(released.is_ok(), lasts, "{released:?}");
    }
    // Work goes on at once.
    let lock = provider.lock("free:after").acquire_timeout(ACQUIRE_TIMEOUT);
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// For longer than a lease lasts. A renewal is repeated eight times a second, which is about 85 times before the lease ends: that all
/// of them are rejected happens once in some thousand runs.
#[tokio::test]
async fn leases_last_while_most_commands_are_rejected() {
    rejected(0.9, Duration::from_secs(16), Duration::from_secs(17)).await;
}

/// For half of a lease, of which up to a third is over by then.
#[tokio::test]
async fn everything_is_rejected_for_less_than_a_lease() {
    rejected(1.0, Duration::from_secs(16), Duration::from_secs(8)).await;
}

/// The last renewal was confirmed up to a third of the expiry before the rejections began.
#[tokio::test]
async fn everything_is_rejected_for_longer_than_a_lease() {
    rejected(1.0, Duration::from_secs(9), Duration::from_secs(12)).await;
}
