//! Waiters are told of releases in other processes, where the server can tell them.

use std::time::Duration;

use mongodb::bson::doc;
use mongolock::LockProvider;
use mongolock_tests::{FailPoint, Server, ServerOptions, must, shared};
use tokio::time::{sleep, timeout};

use crate::fixture::{AMPLE, Commands, Fixture, names, recorded, restricted};

/// Polling alone would take minutes after the first few attempts.
fn patient(database: &mongodb::Database) -> mongolock::LockProviderBuilder {
    LockProvider::builder(database)
        .retry_interval(Duration::from_millis(10)..=AMPLE * 10)
        .acquire_timeout(AMPLE * 10)
}

fn streams(commands: &Commands) -> usize {
    let opened = commands.all();
    opened
        .iter()
        .filter(|command| command.contains_key("aggregate"))
        .count()
}

/// As [`recorded`], and within reach of the fail points.
async fn failing(fixture: &Fixture) -> (mongodb::Database, Commands) {
    let app_name = format!("appName={}", fixture.db().name());
    recorded(fixture.db(), &[&app_name]).await
}

#[tokio::test]
async fn a_release_wakes_the_waiter_of_another_process() {
    let fixture = Fixture::mongodb().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let waiting = patient(&database).build().unwrap();
    for round in 0..5 {
        let held = fixture.provider.lock("woken").await.unwrap();
        let lock = waiting.lock("woken");
        let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
        commands.until_sent("getMore").await;
        sleep(Duration::from_millis(300)).await;
        assert!(!waiter.is_finished());
        commands.take();
        if round == 4 {
            // Deleted by hand: that is a release as well.
            fixture.locks().delete_one(doc! { "_id": "woken" }).await.unwrap();
        } else {
            held.release().await.unwrap();
        }
        let next = timeout(AMPLE / 3, waiter).await.expect("it is woken").unwrap();
        next.release().await.unwrap();
    }
}

/// While nobody releases anything, fifty waiters send next to nothing.
#[tokio::test]
async fn waiting_costs_next_to_nothing() {
    let fixture = Fixture::mongodb().await;
    let held = fixture.provider.lock("quiet").await.unwrap();
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let provider = LockProvider::builder(&database)
        .acquire_timeout(AMPLE * 2)
        .build()
        .unwrap();
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let lock = provider.lock("quiet");
        waiters.spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    }
    commands.until_sent("getMore").await;
    sleep(Duration::from_secs(1)).await;
    commands.take();
    sleep(Duration::from_secs(5)).await;
    let sent = commands.take();
    assert!(sent.len() <= 10, "{:?}", names(&sent));
    held.release().await.unwrap();
    timeout(AMPLE, waiters.join_all())
        .await
        .expect("all have their turn");
}

/// The server cannot push, may not, or is not asked to: waiting polls.
#[tokio::test]
async fn without_a_stream_waiting_polls() {
    let standalone = Server::start(ServerOptions::standalone()).await.unwrap();
    let guarded = Server::start(ServerOptions::single().auth()).await.unwrap();
    let locks_only = restricted(&guarded, &["find", "insert", "update", "createIndex"]).await;
    let own_set = shared().await.unwrap().uri().to_owned();
    for (uri, wake_up) in [(standalone.uri(), true), (locks_only, true), (own_set, false)] {
        let client = mongodb::Client::with_uri_str(uri).await.unwrap();
        let ours = LockProvider::builder(&client.database("app"))
            .wake_up(wake_up)
            .build()
            .unwrap();
        let theirs = ours.another().build().unwrap();
        for _ in 0..2 {
            let held = ours.lock("polled").await.unwrap();
            let lock = theirs.lock("polled").acquire_timeout(AMPLE);
            let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
            sleep(Duration::from_millis(300)).await;
            held.release().await.unwrap();
            timeout(AMPLE, waiter)
                .await
                .unwrap()
                .unwrap()
                .release()
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn a_stream_is_not_opened_where_it_is_switched_off_or_the_wait_is_short() {
    let fixture = Fixture::mongodb().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let held = fixture.provider.lock("short").await.unwrap();
    let off = LockProvider::builder(&database)
        .wake_up(false)
        .acquire_timeout(Duration::from_secs(1))
        .build()
        .unwrap();
    off.lock("short").acquire().await.unwrap_err();
    let on = LockProvider::builder(&database).build().unwrap();
    assert!(on.lock("short").try_acquire().await.unwrap().is_none());
    on.lock("short")
        .acquire_timeout(Duration::from_millis(5))
        .acquire()
        .await
        .unwrap_err();
    assert_eq!(streams(&commands), 0);
    held.release().await.unwrap();
}

/// Errors that are not of the passing kind, when it is opened: only two of all errors mean that there is none to be had.
#[tokio::test]
async fn a_stream_that_fails_to_open_is_tried_again() {
    let fixture = Fixture::mongodb().await;
    let (database, commands) = failing(&fixture).await;
    let held = fixture.provider.lock("tried again").await.unwrap();
    // 20 is IllegalOperation; the driver does not repeat the command by itself.
    let point = FailPoint::on(&["aggregate"])
        .times(3)
        .error_code(20)
        .app_name(fixture.db().name());
    let point = point.enable(fixture.db().uri()).await.unwrap();
    let lock = patient(&database).build().unwrap().lock("tried again");
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    commands.until_sent("getMore").await;
    assert_eq!(streams(&commands), 4);
    must(point.clear().await);
    held.release().await.unwrap();
    let next = timeout(AMPLE / 3, waiter).await.expect("it is woken").unwrap();
    next.release().await.unwrap();
}

/// A standalone server, or a user without the right: that is not asked again for minutes.
#[tokio::test]
async fn an_unavailable_stream_is_seldom_tried() {
    for code in [13, 40573] {
        let fixture = Fixture::mongodb().await;
        let (database, commands) = failing(&fixture).await;
        let _held = fixture.provider.lock("unavailable").await.unwrap();
        let point = FailPoint::on(&["aggregate"])
            .always()
            .error_code(code)
            .app_name(fixture.db().name());
        let point = point.enable(fixture.db().uri()).await.unwrap();
        let provider = LockProvider::new(&database);
        for _ in 0..2 {
            let lock = provider
                .lock("unavailable")
                .acquire_timeout(Duration::from_secs(2));
            lock.acquire().await.unwrap_err();
        }
        assert_eq!(streams(&commands), 1);
        must(point.clear().await);
    }
}

#[tokio::test]
async fn an_idle_stream_is_closed() {
    let fixture = Fixture::mongodb().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let provider = LockProvider::new(&database);
    let held = fixture.provider.lock("idle").await.unwrap();
    provider
        .lock("idle")
        .acquire_timeout(Duration::from_millis(400))
        .acquire()
        .await
        .unwrap_err();
    assert_eq!(streams(&commands), 1);
    commands.until_sent("killCursors").await;
    // And opened again when somebody waits.
    provider
        .lock("idle")
        .acquire_timeout(Duration::from_millis(400))
        .acquire()
        .await
        .unwrap_err();
    assert_eq!(streams(&commands), 2);
    held.release().await.unwrap();
}

/// A stream that breaks is opened again, and whoever waits looks again meanwhile.
#[tokio::test]
async fn a_broken_stream_loses_nobody() {
    let fixture = Fixture::mongodb().await;
    let waiting = patient(fixture.database()).build().unwrap();
    let held = fixture.provider.lock("broken").await.unwrap();
    let lock = waiting.lock("broken");
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    sleep(Duration::from_millis(500)).await;
    // 280: the stream cannot be resumed.
    let point = FailPoint::on(&["getMore", "aggregate"])
        .times(4)
        .error_code(280)
        .app_name(fixture.db().name());
    let point = point.enable(fixture.db().uri()).await.unwrap();
    sleep(Duration::from_millis(1500)).await;
    held.release().await.unwrap();
    timeout(AMPLE, waiter)
        .await
        .expect("it is woken or looks again")
        .unwrap()
        .release()
        .await
        .unwrap();
    must(point.clear().await);
}

/// A collection that is dropped ends its streams without an error. With two threads, one is left to say so if the task
/// of the stream keeps asking one that has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_ends_with_its_collection_is_opened_again() {
    let fixture = Fixture::mongodb().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let waiting = patient(&database).build().unwrap();
    let held = fixture.provider.lock("dropped").await.unwrap();
    let lock = waiting.lock("dropped");
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    commands.until_sent("getMore").await;
    commands.take();
    fixture.locks().drop().await.unwrap();
    let next = timeout(AMPLE, waiter).await.expect("it looks again").unwrap();
    commands.until_sent("aggregate").await;
    next.release().await.unwrap();
    held.release().await.unwrap_err();
}

/// S1.24: on a lock that stays held, growing pauses need a fraction of the attempts, and a stream next to none.
#[tokio::test]
async fn adaptive_waiting_sends_fewer_commands() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    let held = fixture.provider.lock("counted").await.unwrap();
    let attempts = async |builder: fn(mongolock::LockProviderBuilder) -> mongolock::LockProviderBuilder| {
        let (database, commands) = recorded(fixture.db(), &[]).await;
        let provider = builder(LockProvider::builder(&database)).build().unwrap();
        provider
            .lock("counted")
            .acquire_timeout(Duration::from_secs(4))
            .acquire()
            .await
            .unwrap_err();
        let sent = commands.take();
        names(&sent)
            .into_iter()
            .filter(|name| *name == "findAndModify")
            .count()
    };
    let fixed = attempts(|b| {
        b.wake_up(false)
            .retry_interval(Duration::from_millis(10)..=Duration::from_millis(20))
    })
    .await;
    let adaptive = attempts(|b| b.wake_up(false)).await;
    let pushed = attempts(|b| b).await;
    assert!(adaptive * 4 < fixed, "{adaptive} attempts instead of {fixed}");
    assert!(pushed <= 8, "{pushed} attempts with a stream, {adaptive} without");
    held.release().await.unwrap();
}
