//! Change streams wake waiters when another process releases the lock. Without a stream they poll.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use mongolock::{LockError, LockGuard, LockProvider, LockProviderBuilder, WakeUp};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, Commands, FailPoint, Purpose, must, until};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::{Fixture, hold_all, patient};
use crate::servers::{guarded, standalone};

/// The limit within which a release must wake a waiter.
const WOKEN: Duration = Duration::from_secs(10);

/// After the first few attempts such a provider polls so rarely that only a wake-up ends its waits in time.
fn seldom_polling(builder: LockProviderBuilder) -> LockProviderBuilder {
    let builder = builder.retry_interval(Duration::from_millis(10)..=AMPLE * 10);
    builder.acquire_timeout(AMPLE * 10)
}

/// A task that acquires a lock or a set.
fn waiter<L>(lock: L) -> JoinHandle<LockGuard>
where
    L: IntoFuture<Output = Result<LockGuard, LockError>, IntoFuture: Send + 'static>,
{
    let acquiring = lock.into_future();
    tokio::spawn(async move { acquiring.await.unwrap() })
}

/// The guard of a waiter, which acquires its lock within this time.
async fn acquired(waiter: JoinHandle<LockGuard>, limit: Duration) -> LockGuard {
    let acquired = timeout(limit, waiter).await;
    acquired.expect("the waiter acquires the lock").unwrap()
}

/// Releases a lock, and expects that its waiter has it within this time.
async fn release_to(held: LockGuard, waiter: JoinHandle<LockGuard>, limit: Duration) {
    held.release().await.unwrap();
    acquired(waiter, limit).await.release().await.unwrap();
}

/// Waits for this lock until the limit, and asserts that it is not acquired.
async fn wait_without_success(provider: &LockProvider, name: &str, limit: Duration) {
    let lock = provider.lock(name).acquire_timeout(limit);
    lock.acquire().await.unwrap_err();
}

/// The server has no change streams, or the user may not open one: waiters poll.
#[tokio::test]
async fn waiters_poll_without_a_change_stream() {
    let (_standalone, alone) = standalone().await;
    let (_server, without_the_right, _) = guarded(&["find", "insert", "update", "createIndex"]).await;
    for ours in [patient(&alone), patient(&without_the_right)] {
        let theirs = ours.to_builder().build().unwrap();
        for _ in 0..2 {
            let held = ours.lock("polled").await.unwrap();
            let waiter = waiter(theirs.lock("polled"));
            sleep(Duration::from_millis(200)).await;
            let health = theirs.health().await;
            let polls = health.has_primary && health.wake_up == WakeUp::Polling;
            assert!(polls, "{health:?}");
            release_to(held, waiter, BEFORE_EXPIRY).await;
        }
    }
}

/// Two codes mean that there are no change streams, or no right to open one: the stream is not tried again for minutes. After any
/// other error it is, with pauses of a second, because another process may close its own: a service that limits the number of
/// streams refuses this one with an error of its own, which is not documented; errors of Atlas have the code 8000.
#[tokio::test]
async fn a_stream_that_fails_to_open_is_tried_again() {
    let codes = [(13, false), (40573, false), (8000, true), (20, true), (1, true)];
    join_all(codes.map(async |(code, is_tried_again)| {
        let fixture = Fixture::mongodb().await;
        let (provider, commands) = fixture.recorded(|builder| builder).await;
        let point = FailPoint::on(&["aggregate"]).always().error_code(code);
        let point = must(point.enable_for(fixture.db()).await);
        let begun = Instant::now();
        for _ in 0..2 {
            let held = fixture.provider.lock("tried").await.unwrap();
            let waiter = waiter(provider.lock("tried"));
            // The stream is tried at the beginning of the wait.
            sleep(Duration::from_millis(1300)).await;
            release_to(held, waiter, BEFORE_EXPIRY).await;
        }
        let tried = commands.count("aggregate");
        must(point.clear().await);
        if !is_tried_again {
            assert_eq!(tried, 1, "{code}");
            return;
        }
        let shortest = Duration::from_millis(150) * u32::try_from(tried).unwrap();
        let elapsed = begun.elapsed();
        assert!(tried >= 2 && elapsed > shortest, "{code}: {tried} in {elapsed:?}");
        // There is room for the stream now.
        let held = fixture.provider.lock("tried").await.unwrap();
        let waiter = waiter(provider.lock("tried"));
        commands.until_sent("getMore").await;
        release_to(held, waiter, AMPLE).await;
    }))
    .await;
}

#[tokio::test]
async fn an_idle_stream_is_closed() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(|builder| builder).await;
    let _held = fixture.provider.lock("idle").await.unwrap();
    let waiter = waiter(provider.lock("idle"));
    commands.until_sent("getMore").await;
    assert_eq!(provider.health().await.wake_up, WakeUp::Stream);
    waiter.abort();
    commands.until_sent("killCursors").await;
    assert_eq!(provider.health().await.wake_up, WakeUp::Idle);
}

/// S1.24: on a lock that stays held, growing pauses send a fraction of the attempts, and a stream almost none, also for fifty
/// waiters.
#[tokio::test]
async fn adaptive_pauses_send_fewer_commands_than_fixed_ones() {
    let fixture = Fixture::mongodb().await;
    let _held = fixture.provider.lock("counted").await.unwrap();
    let limit = Duration::from_secs(6);
    let attempts = async |options: fn(LockProviderBuilder) -> LockProviderBuilder, waiters: usize| {
        let (provider, commands) = fixture.recorded(options).await;
        join_all((0..waiters).map(|_| wait_without_success(&provider, "counted", limit))).await;
        // After its first attempts a call only looks.
        commands.count(Purpose::Acquire) + commands.count("find")
    };
    let (fixed, adaptive, pushed) = tokio::join!(
        attempts(
            |b| b
                .wake_up(false)
                .retry_interval(Duration::from_millis(10)..=Duration::from_millis(20)),
            1
        ),
        attempts(|b| b.wake_up(false), 1),
        attempts(|b| b, 50),
    );
    // Some claims, and looks from then on.
    assert!(adaptive <= 50, "{adaptive} attempts");
    // Looks are a tenth of a second apart at least, and a slow machine makes few of the many attempts.
    assert!(adaptive * 2 < fixed, "{adaptive} attempts instead of {fixed}");
    // One of the waiters sends a request after each 0.8 to 1.2 s.
    assert!(pushed <= 14, "{pushed} with a stream, {adaptive} without");
}

/// The names in the filter of each stream that was opened; `None` for one without names.
fn filters(commands: &Commands) -> Vec<Option<Vec<String>>> {
    let mut opened = commands.all();
    opened.retain(|command| command.contains_key("aggregate"));
    opened.iter().map(filter_of).collect()
}

fn filter_of(aggregate: &Document) -> Option<Vec<String>> {
    let stages = aggregate.get_array("pipeline").unwrap();
    let matching = stages[1].as_document().unwrap().get_document("$match").unwrap();
    let awaited = matching.get_array("$and").ok()?[0].as_document().unwrap();
    let names = awaited.get_array("$or").unwrap()[0].as_document().unwrap();
    let names = names.get_document("documentKey._id").unwrap();
    let names = names.get_array("$in").unwrap().iter();
    Some(names.map(|name| name.as_str().unwrap().to_owned()).collect())
}

/// One process awaits a lock again and again while other locks come and go: each release of the lock wakes it, although
/// the filter changes all the time. Without a wake-up each turn would take five seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changing_filter_misses_no_release() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(seldom_polling).await;
    let (waiting, holder) = (provider.clone(), fixture.rival());
    let others = tokio::spawn(async move {
        for number in 0.. {
            let _held = holder.lock(number).await.unwrap();
            wait_without_success(&waiting, &number.to_string(), Duration::from_millis(700)).await;
        }
    });
    let mut turns = 0;
    while turns < 12 || filters(&commands).len() < 5 {
        let held = fixture.provider.lock("steady").acquire().await.unwrap();
        let waiting = waiter(provider.lock("steady"));
        // It differs from turn to turn, so that releases meet each moment of a change.
        sleep(Duration::from_millis(100 + turns * 137 % 300)).await;
        let released = Instant::now();
        release_to(held, waiting, WOKEN).await;
        assert!(released.elapsed() < Duration::from_secs(2), "turn {turns}");
        turns += 1;
        assert!(turns < 200, "the filter does not change");
    }
    others.abort();
}

/// Beyond 64 awaited locks the stream has no names in its filter, and below 48 it has them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_awaited_locks_have_a_stream_without_names() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(seldom_polling).await;
    let until_filter = async |what: &str, is_met: fn(Option<&[String]>) -> bool| {
        until(what, async || {
            filters(&commands)
                .pop()
                .is_some_and(|last| is_met(last.as_deref()))
        })
        .await;
    };
    let mut held = hold_all(&fixture.provider, 0..80).await;
    let mut many = JoinSet::new();
    for number in 10..80 {
        let lock = provider.lock(number);
        many.spawn(async move { lock.acquire().await.unwrap() });
    }
    until_filter("a stream without names", |names| names.is_none()).await;
    let few: Vec<_> = (0..10).map(|number| waiter(provider.lock(number))).collect();
    until("all wait", async || provider.health().await.waiting == 80).await;
    // Releases are reported without a filter as well, and a deleted document is a release.
    must(fixture.locks().delete_one(doc! { "_id": "79" }).await);
    drop(held.pop());
    for held in held.split_off(40) {
        held.release().await.unwrap();
    }
    for _ in 40..80 {
        let next = timeout(WOKEN, many.join_next()).await.expect("it is woken");
        next.unwrap().unwrap().release().await.unwrap();
    }
    // Some names may be in it whose waiters have just left.
    until_filter("a filter with the rest", |names| {
        names.is_some_and(|names| (40..48).contains(&names.len()))
    })
    .await;
    held.clear();
    for waiter in few {
        acquired(waiter, WOKEN).await.release().await.unwrap();
    }
    timeout(AMPLE, many.join_all()).await.expect("they are woken");
}
