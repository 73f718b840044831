//! Change streams wake waiters when another process releases the lock. Without a stream they poll.

use std::ops::RangeInclusive;
use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::doc;
use mongolock::{LockProvider, LockProviderBuilder};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, FailPoint, Purpose, eventually, must, names};
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::{Fixture, patient};
use crate::servers::{guarded, standalone};
use crate::waiting::{WOKEN, acquired, release_to, seldom_polling, waiter};

/// Waits for this lock until the limit, and asserts that it is not acquired.
async fn wait_without_success(provider: &LockProvider, name: &str, limit: Duration) {
    let lock = provider.lock(name).acquire_timeout(limit);
    lock.acquire().await.unwrap_err();
}

#[tokio::test]
async fn a_release_wakes_the_waiter_of_another_process() {
    let fixture = Fixture::mongodb().await;
    let (waiting, commands) = fixture.recorded(seldom_polling).await;
    for round in 0..5 {
        let held = fixture.provider.lock("woken").await.unwrap();
        let waiter = waiter(waiting.lock("woken"));
        commands.until_sent("getMore").await;
        sleep(Duration::from_millis(300)).await;
        assert!(!waiter.is_finished());
        commands.clear();
        if round == 4 {
            // A deleted document is a release as well.
            fixture.locks().delete_one(doc! { "_id": "woken" }).await.unwrap();
        } else {
            held.release().await.unwrap();
        }
        acquired(waiter, WOKEN).await.release().await.unwrap();
    }
}

/// While the lock stays held, fifty waiters send almost no commands.
#[tokio::test]
async fn fifty_waiters_send_almost_no_commands() {
    let fixture = Fixture::mongodb().await;
    let held = fixture.provider.lock("quiet").await.unwrap();
    let (provider, commands) = fixture.recorded(|b| b.acquire_timeout(AMPLE * 2)).await;
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let lock = provider.lock("quiet");
        waiters.spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    }
    commands.until_sent("getMore").await;
    sleep(Duration::from_secs(1)).await;
    commands.clear();
    sleep(Duration::from_secs(5)).await;
    let sent = commands.take();
    // The stream is read once a second, and one of the waiters sends a request after each 0.8 to 1.2 s.
    assert!(sent.len() <= 6 + 7, "{:?}", names(&sent));
    held.release().await.unwrap();
    timeout(AMPLE / 2, waiters.join_all())
        .await
        .expect("all waiters acquire the lock");
}

/// The server has no change streams, the user may not open one, or the option is off: waiters poll.
#[tokio::test]
async fn waiters_poll_without_a_change_stream() {
    let (_standalone, alone) = standalone().await;
    let (_server, without_the_right, _) = guarded(&["find", "insert", "update", "createIndex"]).await;
    let fixture = Fixture::mongodb().await;
    for (ours, wake_up) in [
        (patient(&alone), true),
        (patient(&without_the_right), true),
        (fixture.provider.clone(), false),
    ] {
        let ours = ours.to_builder().wake_up(wake_up).build().unwrap();
        let theirs = ours.to_builder().build().unwrap();
        for _ in 0..2 {
            let held = ours.lock("polled").await.unwrap();
            let waiter = waiter(theirs.lock("polled"));
            sleep(Duration::from_millis(300)).await;
            release_to(held, waiter, BEFORE_EXPIRY).await;
        }
    }
}

#[tokio::test]
async fn a_stream_is_not_opened_where_it_is_switched_off_or_the_wait_is_short() {
    let fixture = Fixture::mongodb().await;
    let (on, commands) = fixture.recorded(|builder| builder).await;
    let held = fixture.provider.lock("short").await.unwrap();
    let off = on.to_builder().wake_up(false).build().unwrap();
    wait_without_success(&off, "short", Duration::from_secs(1)).await;
    let tried = fixture.provider.lock("tried").await.unwrap();
    assert!(on.lock("tried").try_acquire().await.unwrap().is_none());
    tried.release().await.unwrap();
    wait_without_success(&on, "short", Duration::from_millis(5)).await;
    assert_eq!(commands.count("aggregate"), 0);
    held.release().await.unwrap();
}

/// Only two error codes mean that change streams are unavailable. After any other error the stream is opened again.
#[tokio::test]
async fn a_stream_that_fails_to_open_is_tried_again() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(seldom_polling).await;
    let held = fixture.provider.lock("tried again").await.unwrap();
    // 20 is IllegalOperation; the driver does not repeat the command by itself.
    let point = FailPoint::on(&["aggregate"]).times(3).error_code(20);
    let point = must(point.enable_for(fixture.db()).await);
    let waiter = waiter(provider.lock("tried again"));
    commands.until_sent("getMore").await;
    assert_eq!(commands.count("aggregate"), 4);
    must(point.clear().await);
    release_to(held, waiter, WOKEN).await;
}

/// On a standalone server, or without the right to open a stream, opening it is not tried again for minutes.
#[tokio::test]
async fn an_unavailable_stream_is_not_tried_again_for_minutes() {
    join_all([13, 40573].map(async |code| {
        let fixture = Fixture::mongodb().await;
        let (provider, commands) = fixture.recorded(|builder| builder).await;
        let _held = fixture.provider.lock("unavailable").await.unwrap();
        let point = FailPoint::on(&["aggregate"]).always().error_code(code);
        let point = must(point.enable_for(fixture.db()).await);
        for _ in 0..2 {
            wait_without_success(&provider, "unavailable", Duration::from_secs(2)).await;
        }
        assert_eq!(commands.count("aggregate"), 1);
        must(point.clear().await);
    }))
    .await;
}

/// A service that limits the number of streams refuses this one with an error of its own. Which one is not documented; errors
/// of Atlas have the code 8000. Waiters poll, and the stream is tried again with growing pauses, because another process may
/// close its own.
#[tokio::test]
async fn waiters_poll_while_the_number_of_streams_is_limited() {
    join_all([8000, 20, 1].map(async |code| {
        let fixture = Fixture::mongodb().await;
        let (provider, commands) = fixture.recorded(|builder| builder).await;
        let point = FailPoint::on(&["aggregate"]).always().error_code(code);
        let point = must(point.enable_for(fixture.db()).await);
        let begun = Instant::now();
        for _ in 0..3 {
            let held = fixture.provider.lock("limited").await.unwrap();
            let waiter = waiter(provider.lock("limited"));
            // The stream is tried at the beginning of the wait.
            sleep(Duration::from_millis(1500)).await;
            release_to(held, waiter, BEFORE_EXPIRY).await;
        }
        // It is tried again after a second.
        let tried = commands.count("aggregate");
        let shortest = Duration::from_millis(150) * u32::try_from(tried).unwrap();
        assert!(
            tried >= 2 && begun.elapsed() > shortest,
            "{tried} in {:?}",
            begun.elapsed()
        );
        // There is room for the stream now.
        must(point.clear().await);
        let held = fixture.provider.lock("limited").await.unwrap();
        let waiter = waiter(provider.lock("limited"));
        commands.until_sent("getMore").await;
        release_to(held, waiter, AMPLE).await;
    }))
    .await;
}

#[tokio::test]
async fn an_idle_stream_is_closed() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(|builder| builder).await;
    let held = fixture.provider.lock("idle").await.unwrap();
    for opened in 1..=2 {
        // The second waiter opens it again.
        let waiter = waiter(provider.lock("idle"));
        let is_open = || async { (commands.count("aggregate") == opened).then_some(()) };
        must(eventually(AMPLE, "an open stream", is_open).await);
        waiter.abort();
        commands.until_sent("killCursors").await;
    }
    held.release().await.unwrap();
}

/// A broken stream is opened again, and waiters poll in the meantime.
#[tokio::test]
async fn a_broken_stream_is_opened_again() {
    let fixture = Fixture::mongodb().await;
    let held = fixture.provider.lock("broken").await.unwrap();
    let waiter = waiter(fixture.with(seldom_polling).lock("broken"));
    sleep(Duration::from_millis(500)).await;
    // 280: the stream cannot be resumed.
    let point = FailPoint::on(&["getMore", "aggregate"]).times(4).error_code(280);
    let point = must(point.enable_for(fixture.db()).await);
    sleep(Duration::from_millis(1500)).await;
    // It is woken, or it polls.
    release_to(held, waiter, AMPLE / 2).await;
    must(point.clear().await);
}

/// Dropping the collection ends its streams without an error. The test has two threads, so that it can still fail if
/// the task of the stream reads an ended stream in a busy loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_ends_with_its_collection_is_opened_again() {
    let fixture = Fixture::mongodb().await;
    let (waiting, commands) = fixture.recorded(seldom_polling).await;
    let held = fixture.provider.lock("dropped").await.unwrap();
    let waiter = waiter(waiting.lock("dropped"));
    commands.until_sent("getMore").await;
    commands.clear();
    fixture.locks().drop().await.unwrap();
    let next = acquired(waiter, AMPLE / 2).await;
    commands.until_sent("aggregate").await;
    next.release().await.unwrap();
    held.release().await.unwrap_err();
}

/// The pauses of a provider that polls all the time.
const OFTEN: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_millis(20);

/// S1.24: on a lock that stays held, growing pauses send a fraction of the attempts, and a stream almost none.
#[tokio::test]
async fn adaptive_pauses_send_fewer_commands_than_fixed_ones() {
    let fixture = Fixture::mongodb().await;
    let held = fixture.provider.lock("counted").await.unwrap();
    let attempts = async |options: fn(LockProviderBuilder) -> LockProviderBuilder, limit| {
        let (provider, commands) = fixture.recorded(options).await;
        wait_without_success(&provider, "counted", limit).await;
        // After its first attempts a call only looks.
        commands.count(Purpose::Acquire) + commands.count("find")
    };
    let limit = Duration::from_secs(4);
    // Looks are a tenth of a second apart at least, so that it takes longer until they are many.
    let fixed = attempts(|b| b.wake_up(false).retry_interval(OFTEN), limit * 2).await;
    let adaptive = attempts(|b| b.wake_up(false), limit * 2).await;
    let pushed = attempts(|b| b, limit).await;
    // Some claims, and looks from then on.
    assert!(adaptive <= 50, "{adaptive} attempts");
    // A slow machine makes few of the many attempts.
    assert!(adaptive * 2 < fixed, "{adaptive} attempts instead of {fixed}");
    assert!(pushed <= 8, "{pushed} attempts with a stream, {adaptive} without");
    held.release().await.unwrap();
}
