//! Many locks that one process awaits: one query looks at all of them, and their first requests are sent a few at a time.

use std::ops::Range;
use std::time::Duration;

use mongodb::bson::{DateTime, Timestamp, doc};
use mongolock::{IndexState, LockError, LockProvider, LockProviderBuilder};
use mongolock_tests::{
    AMPLE, BEFORE_EXPIRY, Fault, Purpose, change_lock, claim, must, names, until, with_parameter,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::fixture::Fixture;

/// The number of commands that may be in flight in one provider, however large the pool of its client is.
const ADMITTED: usize = 128;

/// A late reply, which comes before the time after which a reply is overdue.
const LATE: Duration = Duration::from_secs(1);

/// The number of locks that are more than a process without a change stream asks for by claims.
const MANY: usize = 100;

/// Writes the documents of locks that another process holds for so many milliseconds.
async fn plant(fixture: &Fixture, count: usize, lasts: i64) {
    let document = |number: usize| claim(number.to_string(), format!("theirs#{number}"), lasts);
    let documents = (0..count).map(document);
    fixture.locks().insert_many(documents).await.unwrap();
}

/// Waits for each of these locks with a task of its own, which releases the lock as soon as it has it.
fn wait_for(provider: &LockProvider, numbers: Range<usize>) -> JoinSet<Result<(), LockError>> {
    let mut waiters = JoinSet::new();
    for number in numbers {
        let lock = provider.lock(number);
        waiters.spawn(async move { lock.acquire().await?.release().await });
    }
    waiters
}

/// Waits until all have had their lock, within this time.
async fn all_served(waiters: JoinSet<Result<(), LockError>>, limit: Duration) {
    let served = timeout(limit, waiters.join_all()).await;
    let served: Result<Vec<()>, _> = served.expect("all have their locks").into_iter().collect();
    served.unwrap();
}

/// One look at all locks finds each way in which a lock becomes free. A document that no computation fits is the matter of its own
/// waiter.
#[tokio::test]
async fn a_look_finds_released_expired_deleted_and_damaged_locks() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(|builder| builder.wake_up(false)).await;
    plant(&fixture, MANY, 3_600_000).await;
    let damaged = tokio::spawn(provider.lock(0).acquire());
    let waiters = wait_for(&provider, 1..MANY);
    // The first calls ask by requests of their own, because they are few.
    let only_looks = async || {
        commands.clear();
        sleep(Duration::from_secs(2)).await;
        let sent = commands.take();
        let looks = names(&sent).iter().filter(|name| **name == "find").count();
        looks > 0 && looks == sent.len()
    };
    until("looks and nothing else", only_looks).await;
    // The type is greater than every date: by the comparison alone the lock would be held for ever.
    let (time, increment) = (1, 1);
    let later = doc! { "$set": { "expiresAt": Timestamp { time, increment } } };
    change_lock(fixture.database(), "0", later).await;
    let ended = timeout(BEFORE_EXPIRY, damaged).await.expect("it ends");
    let error = ended.unwrap().unwrap_err();
    assert!(matches!(error, LockError::CorruptDocument { .. }), "{error}");

    commands.clear();
    let (locks, now) = (fixture.locks(), DateTime::now());
    let planted = |numbers: Range<usize>| {
        let names: Vec<String> = numbers.map(|number| number.to_string()).collect();
        doc! { "_id": { "$in": names } }
    };
    must(locks.delete_many(planted(1..33)).await);
    let expired = doc! { "$set": { "expiresAt": now } };
    must(locks.update_many(planted(33..66), expired).await);
    let released = doc! { "$set": { "expiresAt": now, "lockId": "" } };
    must(locks.update_many(planted(66..MANY), released).await);
    all_served(waiters, AMPLE).await;
    let sent = commands.all();
    let claims = sent
        .iter()
        .filter(|command| Purpose::of(command) == Some(Purpose::Acquire));
    // Also of those that went together on a slow machine.
    let requests = claims.map(|command| command.get_array("updates").map_or(1, Vec::len));
    assert_eq!(requests.sum::<usize>(), MANY - 1, "one request each");
}

/// The end of a lease is known from the look before it, so the lock is looked at just then and not seconds later.
#[tokio::test]
async fn a_lease_that_ends_is_noticed_when_it_ends() {
    let fixture = Fixture::mongodb().await;
    // Without the ends of the leases the waiters would look once in ten minutes.
    let seldom = |b: LockProviderBuilder| b.wake_up(false).retry_interval(AMPLE * 10..=AMPLE * 10);
    let (provider, commands) = fixture.recorded(seldom).await;
    plant(&fixture, 50, 2000).await;
    all_served(wait_for(&provider, 0..50), BEFORE_EXPIRY).await;
    assert!(commands.count("find") > 0);
}

/// The requests of waiting calls are sent a bounded number at a time: two connections of a small pool stay free, and a pool
/// that has room for all of them is not used up either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_requests_are_sent_a_few_at_a_time() {
    for (pool, admitted) in [(10, 8), (1000, ADMITTED)] {
        let fixture = Fixture::mongodb().await;
        let proxy = must(fixture.db().proxy().await);
        let uri = with_parameter(&proxy.uri(), &format!("maxPoolSize={pool}"));
        let connected = LockProvider::connect(uri).await.unwrap();
        let builder = connected.to_builder().database(fixture.db().name());
        let provider = builder.acquire_timeout(AMPLE).build().unwrap();
        assert_eq!(provider.admin().index_state().await, IndexState::Ready);
        let late = Fault::delay_request(LATE).command(Purpose::Acquire);
        let late = proxy.inject(late.times(u32::MAX));
        let waiters = wait_for(&provider, 0..ADMITTED * 2);
        let sent = || must(usize::try_from(late.hits()));
        until("the first requests", async || sent() >= 4).await;
        // Shortly before the first reply.
        sleep(LATE / 2).await;
        let most = sent();
        proxy.clear_faults();
        all_served(waiters, AMPLE).await;
        assert!(most <= admitted, "{most} over a pool of {pool}");
    }
}
