//! Calls of many tasks at once: what waits for room among the commands in flight becomes one command. Its faults must not
//! reach the calls.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use mongolock::{LockGuard, LockProvider};
use mongolock_tests::{AMPLE, Commands, FailPoint, Purpose, TestDb, locks, must, recorded, test_db};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{claims, fail, warm_up};

/// The number of calls at once, far more than the commands that a client has in flight.
const CALLS: usize = 200;

/// A provider whose commands are recorded.
async fn provider(db: &TestDb) -> (LockProvider, Commands) {
    // The driver's own repetitions would hide those of the library.
    let (database, commands) = recorded(db, &["maxAdaptiveRetries=0"]).await;
    let provider = LockProvider::new(&database);
    warm_up(&provider).await;
    (provider, commands)
}

fn name(number: usize) -> String {
    format!("many:{number}")
}

/// The outcomes of calls that tasks of their own make at once.
async fn at_once<T: Send + 'static>(
    calls: impl ExactSizeIterator<Item: IntoFuture<Output = T, IntoFuture: Send + 'static> + Send + 'static>,
) -> Vec<T> {
    let (mut tasks, together) = (JoinSet::new(), Arc::new(Barrier::new(calls.len())));
    for call in calls {
        let together = Arc::clone(&together);
        tasks.spawn(async move {
            together.wait().await;
            call.await
        });
    }
    timeout(AMPLE, tasks.join_all()).await.unwrap()
}

/// Acquires the locks with these numbers at once.
async fn acquire(provider: &LockProvider, numbers: Range<usize>) -> Vec<LockGuard> {
    let locks = numbers.map(|number| provider.lock(name(number)).acquire_timeout(AMPLE));
    at_once(locks).await.into_iter().map(Result::unwrap).collect()
}

/// Releases all locks at once; returns how many of them were held until then.
async fn release(guards: Vec<LockGuard>) -> usize {
    let released = at_once(guards.into_iter().map(LockGuard::release)).await;
    released.iter().filter(|released| released.is_ok()).count()
}

/// The number of claims that were sent alone, and the numbers of those that were sent together.
fn sent(commands: &[Document]) -> (usize, Vec<usize>) {
    let is_claim = |command: &&Document| Purpose::of(command) == Some(Purpose::Acquire);
    let is_alone = |command: &&Document| command.contains_key("findAndModify");
    let (alone, together): (Vec<_>, Vec<_>) = commands.iter().filter(is_claim).partition(is_alone);
    let statements = together
        .iter()
        .map(|command| command.get_array("updates").map_or(0, Vec::len));
    (alone.len(), statements.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_for_room_cost_few_commands() {
    let db = test_db().await;
    let (provider, commands) = provider(&db).await;
    commands.clear();
    let guards = acquire(&provider, 0..CALLS).await;
    let (alone, together) = sent(&commands.take());
    let sent = alone + together.iter().sum::<usize>();
    assert_eq!(sent, CALLS, "each claim was sent once: {together:?}");
    let few = alone + 2 * together.len() < CALLS / 4;
    assert!(few, "{alone} alone, {together:?} together");
    let in_bounds = together.iter().all(|claims| (2..=128).contains(claims));
    assert!(in_bounds, "{together:?}");
    assert_eq!(release(guards).await, CALLS);
    let releases = commands.count(Purpose::Release);
    assert!(releases < CALLS / 4, "{releases} releases");
    assert_eq!(claims(db.database()).await, 0);
}

/// A common command whose connection was cut, or that no majority has confirmed, was made perhaps: its claims go alone. One
/// that was rejected for overload has written nothing, and goes again as it is; so does the query after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_common_command_that_fails_costs_no_call() {
    let update = || FailPoint::on(&["update"]).times(2);
    let faults = [
        (update().close_connection(), false),
        (update().write_concern_error(64, "injected"), false),
        (FailPoint::rejecting(&["update"]).times(4), true),
        (FailPoint::rejecting(&["find"]).times(4), true),
    ];
    join_all(faults.map(async |(fault, goes_whole)| {
        let db = test_db().await;
        let (provider, commands) = provider(&db).await;
        commands.clear();
        // Background work of the provider has other collections.
        let fault = fault.collection(&format!("{}.distributed_locks", db.name()));
        let fault = fail(&db, fault).await;
        let guards = acquire(&provider, 0..CALLS).await;
        must(fault.clear().await);
        let (alone, together) = sent(&commands.take());
        let few = !goes_whole || alone < CALLS / 4;
        assert!(few, "{alone} alone, {together:?} together");
        assert_eq!(release(guards).await, CALLS);
        assert_eq!(claims(db.database()).await, 0);
    }))
    .await;
}

/// A lock that an operator has freed before its release, and one that others have had since: only their holders are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_in_one_command_have_outcomes_of_their_own() {
    let db = test_db().await;
    let (provider, _) = provider(&db).await;
    let guards = acquire(&provider, 0..CALLS).await;
    let names: Vec<String> = [3, 50, 150].map(name).into();
    let taken = doc! { "$set": { "lockId": "other#1" } };
    let taken = locks(db.database())
        .update_many(doc! { "_id": { "$in": &names } }, taken)
        .await;
    assert_eq!(taken.unwrap().modified_count, 3);
    let deleted = locks(db.database()).delete_one(doc! { "_id": name(99) }).await;
    deleted.unwrap();
    assert_eq!(release(guards).await, CALLS - 4);
    assert_eq!(claims(db.database()).await, 3);
}
