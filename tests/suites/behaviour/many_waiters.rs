//! Many locks that one process awaits: one query looks at all of them, and their first requests are sent a few at a time.

use std::ops::Range;
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, Timestamp, doc};
use mongolock::{IndexState, LockError, LockProvider, LockProviderBuilder};
use mongolock_tests::{
    AMPLE, BEFORE_EXPIRY, Commands, FailPoint, Fault, Injected, Proxy, Purpose, change_lock, claim,
    eventually, must, names, with_parameter,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::fixture::Fixture;

/// The number of claims that are in flight, each with a command of its own, before the others go together; fewer than that
/// never do.
const IN_LANE: usize = 4;

/// The number of commands that may be in flight in one provider, however large the pool of its client is.
const ADMITTED: usize = 128;

/// A late reply, which comes before the time after which a reply is overdue.
const LATE: Duration = Duration::from_secs(1);

/// The number of locks that are more than a process without a change stream asks for by claims.
const MANY: usize = 100;

const HOUR: i64 = 60 * 60 * 1000;

/// Writes the documents of locks that another process holds for so many milliseconds.
async fn plant(fixture: &Fixture, count: usize, lasts: i64) {
    let document = |number: usize| claim(number.to_string(), format!("theirs#{number}"), lasts);
    let documents = (0..count).map(document);
    fixture.locks().insert_many(documents).await.unwrap();
}

/// Deletes these documents, and none that a waiter makes meanwhile.
async fn delete_planted(fixture: &Fixture) {
    let planted = doc! { "lockId": { "$regex": "^theirs#" } };
    fixture.locks().delete_many(planted).await.unwrap();
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

/// Waits until a query has looked at this lock.
async fn until_looked_at(commands: &Commands, name: &str) {
    let looks_at = |command: &Document| {
        let filter = command.get_document("filter");
        let ids = filter.and_then(|filter| filter.get_document("_id")?.get_array("$in"));
        ids.is_ok_and(|ids| ids.iter().any(|id| id.as_str() == Some(name)))
    };
    let looked = || async { commands.all().iter().any(looks_at).then_some(()) };
    must(eventually(AMPLE, "a look at the lock", looked).await);
}

/// The number of requests for locks, also of those that went together on a slow machine.
fn claims(commands: &Commands) -> usize {
    let is_claim = |update: &&Bson| {
        update
            .as_document()
            .is_some_and(|update| update.contains_key("upsert"))
    };
    let together = |command: &Document| {
        let updates = command.get_array("updates");
        updates.map_or(0, |updates| updates.iter().filter(is_claim).count())
    };
    let sent = commands.all();
    let alone = |command: &&Document| {
        command.contains_key("findAndModify") && Purpose::of(command) == Some(Purpose::Acquire)
    };
    sent.iter().filter(alone).count() + sent.iter().map(together).sum::<usize>()
}

/// A provider that only looks, and the commands that it sends.
async fn looking_only(fixture: &Fixture) -> (LockProvider, Commands) {
    fixture.recorded(|builder| builder.wake_up(false)).await
}

#[tokio::test]
async fn a_look_finds_released_expired_and_deleted_locks() {
    let fixture = Fixture::mongodb().await;
    for end in ["released", "expired", "deleted"] {
        let (provider, commands) = looking_only(&fixture).await;
        plant(&fixture, MANY, HOUR).await;
        let waiters = wait_for(&provider, 0..MANY);
        // The first calls ask by requests of their own, because they are few.
        let only_looks = || async {
            commands.clear();
            sleep(Duration::from_secs(2)).await;
            let sent = commands.take();
            let looks = names(&sent).iter().filter(|name| **name == "find").count();
            (looks > 0 && looks == sent.len()).then_some(())
        };
        must(eventually(AMPLE / 2, "looks and nothing else", only_looks).await);
        let mut ended = doc! { "expiresAt": DateTime::now() };
        if end == "released" {
            ended.insert("lockId", "");
        }
        if end == "deleted" {
            delete_planted(&fixture).await;
        } else {
            let change = doc! { "$set": ended };
            fixture.locks().update_many(doc! {}, change).await.unwrap();
        }
        all_served(waiters, AMPLE).await;
        assert_eq!(claims(&commands), MANY, "{end}: one request each");
        fixture.locks().delete_many(doc! {}).await.unwrap();
    }
}

/// The end of a lease is known from the look before it, so the lock is looked at just then and not seconds later.
#[tokio::test]
async fn a_lease_that_ends_is_noticed_when_it_ends() {
    let fixture = Fixture::mongodb().await;
    // Without the ends of the leases the waiters would look once in ten minutes.
    let seldom = |b: LockProviderBuilder| b.wake_up(false).retry_interval(AMPLE * 10..=AMPLE * 10);
    let (provider, commands) = fixture.recorded(seldom).await;
    plant(&fixture, 50, 4000).await;
    all_served(wait_for(&provider, 0..50), BEFORE_EXPIRY).await;
    assert!(commands.count("find") > 0);
}

/// A provider with a client of its own, whose acquire requests reach the server late.
struct AnsweredLate {
    provider: LockProvider,
    late: Injected,
    proxy: Proxy,
}

impl AnsweredLate {
    /// The client has a pool of this size.
    async fn start(fixture: &Fixture, pool: usize) -> Self {
        let proxy = must(fixture.db().proxy().await);
        let uri = with_parameter(&proxy.uri(), &format!("maxPoolSize={pool}"));
        let connected = LockProvider::connect(uri).await.unwrap();
        let builder = connected.to_builder().database(fixture.db().name());
        let provider = builder.acquire_timeout(AMPLE).build().unwrap();
        assert_eq!(provider.admin().index_state().await, IndexState::Ready);
        let late = Fault::delay_request(LATE).command(Purpose::Acquire);
        Self {
            provider,
            late: proxy.inject(late.times(u32::MAX)),
            proxy,
        }
    }

    /// Waits until the first requests are in flight, and returns their number shortly before the first reply.
    async fn in_flight(&self) -> usize {
        let sent = || must(usize::try_from(self.late.hits()));
        let begun = || async { (sent() >= IN_LANE).then_some(()) };
        must(eventually(AMPLE, "the first requests", begun).await);
        sleep(LATE / 2).await;
        sent()
    }
}

/// The requests of waiting calls are sent a bounded number at a time: two connections of a small pool stay free, and a pool
/// that has room for all of them is not used up either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_requests_are_sent_a_few_at_a_time() {
    for (pool, admitted) in [(10, 8), (1000, ADMITTED)] {
        let fixture = Fixture::mongodb().await;
        let it = AnsweredLate::start(&fixture, pool).await;
        let waiters = wait_for(&it.provider, 0..ADMITTED * 2);
        let most = it.in_flight().await;
        it.proxy.clear_faults();
        all_served(waiters, AMPLE).await;
        assert!(most <= admitted, "{most} over a pool of {pool}");
    }
}

/// A call whose time is up before its first request was sent cannot say that the lock is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_never_sent_is_not_busy() {
    let fixture = Fixture::mongodb().await;
    let it = AnsweredLate::start(&fixture, 1000).await;
    let waiters = wait_for(&it.provider, 0..ADMITTED * 2);
    it.in_flight().await;
    let late = it.provider.lock("late").acquire_timeout(LATE / 10);
    let error = late.acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Mongo(_)), "{error}");
    it.proxy.clear_faults();
    all_served(waiters, AMPLE).await;
}

/// A look that fails is repeated, and its error is the one of the calls whose time is up, unless they ask by requests of their own
/// then.
#[tokio::test]
async fn a_look_that_fails_is_repeated() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(|builder| builder.wake_up(false)).await;
    plant(&fixture, MANY, HOUR).await;
    let waiters = wait_for(&provider, 0..MANY);
    until_looked_at(&commands, "0").await;
    // 91: the server shuts down.
    let point = FailPoint::on(&["find"]).always().error_code(91);
    let point = must(point.enable_for(fixture.db()).await);
    let short = provider.lock(0).acquire_timeout(Duration::from_secs(3));
    let behind = short.acquire().await.unwrap_err();
    // The last reply decides: it may be that to a request.
    assert!(
        matches!(behind, LockError::Timeout { .. } | LockError::Mongo(_)),
        "{behind}"
    );
    must(point.clear().await);
    let known = || async {
        let tried = provider.lock(1).try_acquire().await;
        matches!(tried, Ok(None)).then_some(())
    };
    must(eventually(AMPLE, "the looks have replies again", known).await);
    delete_planted(&fixture).await;
    all_served(waiters, AMPLE).await;
}

/// A document that no computation fits is the matter of its own waiter.
#[tokio::test]
async fn a_damaged_document_does_not_stop_the_look_at_others() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = looking_only(&fixture).await;
    plant(&fixture, MANY, HOUR).await;
    let waiters = wait_for(&provider, 1..MANY);
    let damaged = provider.lock(0);
    let damaged = tokio::spawn(async move { damaged.acquire().await.map(drop) });
    until_looked_at(&commands, "0").await;
    // The type is greater than every date: by the comparison alone the lock would be held for ever.
    let later = Timestamp {
        time: 1,
        increment: 1,
    };
    change_lock(fixture.database(), "0", doc! { "$set": { "expiresAt": later } }).await;
    let ended = timeout(BEFORE_EXPIRY, damaged).await.expect("it ends");
    let error = ended.unwrap().unwrap_err();
    assert!(matches!(error, LockError::CorruptDocument { .. }), "{error}");
    delete_planted(&fixture).await;
    all_served(waiters, AMPLE).await;
}
