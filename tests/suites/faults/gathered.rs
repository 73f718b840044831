//! Calls of many tasks at once: what waits for room among the commands in flight becomes one command. Its faults must not
//! reach the calls.

use std::ops::Range;
use std::sync::Arc;

use mongodb::bson::{Document, doc};
use mongolock::{LockGuard, LockProvider};
use mongolock_tests::{AMPLE, Commands, FailPoint, Purpose, TestDb, recorded, test_db};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{fail, foreign_transaction, warm_up};

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

/// The number of statements in each update of these commands.
fn statements(commands: &[Document]) -> Vec<usize> {
    let updates = commands
        .iter()
        .filter_map(|command| command.get_array("updates").ok());
    updates.map(Vec::len).collect()
}

/// The number of claims among these commands that were sent alone.
fn alone(commands: &[Document]) -> usize {
    let is_alone = |command: &&Document| {
        command.contains_key("findAndModify") && Purpose::of(command) == Some(Purpose::Acquire)
    };
    commands.iter().filter(is_alone).count()
}

/// Asserts that no document says that a lock is held.
async fn assert_all_free(db: &TestDb) {
    let locks = db.database().collection::<Document>("distributed_locks");
    let held = doc! { "_id": { "$regex": "^many:" }, "lockId": { "$ne": "" } };
    assert_eq!(locks.count_documents(held).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_for_room_cost_few_commands() {
    let db = test_db().await;
    let (provider, commands) = provider(&db).await;
    commands.clear();
    let guards = acquire(&provider, 0..CALLS).await;
    let sent = commands.take();
    let alone = alone(&sent);
    let together = statements(&sent);
    assert_eq!(
        alone + together.iter().sum::<usize>(),
        CALLS,
        "each claim was sent once: {together:?}"
    );
    assert!(
        alone + 2 * together.len() < CALLS / 4,
        "{alone} alone, {together:?} together"
    );
    assert!(
        together.iter().all(|claims| (2..=128).contains(claims)),
        "{together:?}"
    );

    assert_eq!(release(guards).await, CALLS);
    let sent = commands.count(Purpose::Release);
    assert!(sent < CALLS / 4, "{sent} releases");
    assert_all_free(&db).await;
    provider.shutdown().await;
}

/// The claims beside it go alone after the common command has failed; it goes on to wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_document_does_not_keep_the_claims_of_others() {
    let db = test_db().await;
    let (provider, _) = provider(&db).await;
    let blocked = CALLS / 2;
    release(acquire(&provider, blocked..blocked + 1).await).await;
    let mut session = foreign_transaction(&db, &[&name(blocked)]).await;

    let waiting = tokio::spawn({
        let provider = provider.clone();
        async move { acquire(&provider, 0..CALLS).await }
    });
    let others = acquire(&provider, CALLS..2 * CALLS).await;
    assert_eq!(others.len(), CALLS);
    assert!(!waiting.is_finished(), "the document is blocked");
    session.abort_transaction().await.unwrap();
    let mut guards = waiting.await.unwrap();
    guards.extend(others);
    assert_eq!(release(guards).await, 2 * CALLS);
    assert_all_free(&db).await;
    provider.shutdown().await;
}

/// Acquires and releases all locks while this fault hits updates, which are what several requests become.
async fn all_are_acquired_and_released_under(fault: FailPoint) {
    let db = test_db().await;
    let (provider, _) = provider(&db).await;
    let fault = fail(&db, fault).await;
    let guards = acquire(&provider, 0..CALLS).await;
    assert_eq!(guards.len(), CALLS);
    fault.clear().await.unwrap();
    assert_eq!(release(guards).await, CALLS);
    assert_all_free(&db).await;
    provider.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_go_alone_after_a_reply_is_lost() {
    let fault = FailPoint::on(&["update"]).times(2).close_connection();
    all_are_acquired_and_released_under(fault).await;
}

/// The command was made, and a failover could take it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_go_alone_after_a_write_that_no_majority_has_confirmed() {
    let fault = FailPoint::on(&["update"])
        .times(2)
        .write_concern_error(64, "injected");
    all_are_acquired_and_released_under(fault).await;
}

/// A command that was rejected for overload has written nothing, and goes again as it is; so does the query after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_command_is_repeated_whole() {
    for rejected in ["update", "find"] {
        let db = test_db().await;
        let (provider, commands) = provider(&db).await;
        commands.clear();
        // Background work of the provider has other collections.
        let locks = format!("{}.distributed_locks", db.name());
        let fault = fail(&db, FailPoint::rejecting(&[rejected]).collection(&locks).times(4)).await;
        let guards = acquire(&provider, 0..CALLS).await;
        fault.clear().await.unwrap();
        let sent = commands.take();
        let alone = alone(&sent);
        assert!(
            alone < CALLS / 4,
            "{alone} alone, {:?} together",
            statements(&sent)
        );
        assert_eq!(release(guards).await, CALLS);
        assert_all_free(&db).await;
        provider.shutdown().await;
    }
}

/// A lock that an operator has freed before its release, and one that others have had since: only their holders are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_in_one_command_have_outcomes_of_their_own() {
    let db = test_db().await;
    let (provider, _) = provider(&db).await;
    let guards = acquire(&provider, 0..CALLS).await;
    let locks = db.database().collection::<Document>("distributed_locks");
    let taken = doc! { "$set": { "lockId": "other#1" } };
    let names: Vec<String> = [3, 50, 150].map(name).into();
    let taken = locks
        .update_many(doc! { "_id": { "$in": &names } }, taken)
        .await
        .unwrap();
    assert_eq!(taken.modified_count, 3);
    locks.delete_one(doc! { "_id": name(99) }).await.unwrap();
    assert_eq!(release(guards).await, CALLS - 4);
    let held = doc! { "_id": { "$regex": "^many:" }, "lockId": { "$ne": "" } };
    assert_eq!(locks.count_documents(held).await.unwrap(), 3);
    provider.shutdown().await;
}
