use std::ops::RangeInclusive;

use mongodb::error::{CommandError, ErrorKind};
use serde::Deserialize;
use serde::de::value::MapDeserializer;
use tokio::time::timeout;

use super::*;
use crate::LockError;
use crate::lease::Queues;
use crate::protocol::{Then, Until};
use crate::store::{MemoryStore, ProviderMark, StreamFilter};
use crate::timing::{LOOKER_CHECK, STREAM_POLL_MIN, STREAM_UNAVAILABLE};

pub(super) const PAUSES: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_millis(800);

pub(super) fn with_wake_up(wake_up: bool) -> Arc<ReleaseNotifier> {
    let store = Arc::new(Store::Memory(Arc::new(MemoryStore::new())));
    let config = Config {
        wake_up,
        ..Config::default()
    };
    let (mark, owner) = (ProviderMark::random(), Arc::from("owner"));
    let lines = Arc::new(Lines::new(Arc::clone(&store), mark, owner));
    Arc::new(ReleaseNotifier::new(store, lines, Arc::default(), &config))
}

fn in_memory() -> Arc<ReleaseNotifier> {
    with_wake_up(true)
}

/// A waiter for the lock `n`, which rests.
fn subscribe(notifier: &Arc<ReleaseNotifier>) -> Subscription<'static> {
    subscribe_to(notifier, "n")
}

/// A waiter that rests, and keeps its turn for good.
pub(super) fn subscribe_to(notifier: &Arc<ReleaseNotifier>, name: &str) -> Subscription<'static> {
    let turn = Queues::new().join(&Arc::from(name)).try_turn().unwrap();
    let waiter = notifier.subscribe(Box::leak(Box::new(turn)), Backoff::new(PAUSES));
    waiter.rest(None);
    waiter
}

/// A command error with this code, as the server sends it.
fn command_error(code: i32) -> LockError {
    let reply = MapDeserializer::<_, serde::de::value::Error>::new([("code", code)].into_iter());
    let error = CommandError::deserialize(reply).unwrap();
    LockError::Mongo(ErrorKind::Command(error).into())
}

/// Polls as a waiter does for this time, and returns whether the stream is open then.
async fn opens_within(subscription: &Subscription<'_>, time: Duration) -> bool {
    let end = Instant::now() + time;
    while !subscription.is_open() && Instant::now() < end {
        subscription.rest(None);
        tokio::time::sleep(Duration::from_millis(800)).await;
    }
    subscription.is_open()
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_stream_is_tried_again_after_minutes() {
    for code in [13, 40573] {
        let notifier = in_memory();
        assert!(!notifier.retries_after(&command_error(code)));
        let waiter = subscribe(&notifier);
        assert!(!opens_within(&waiter, STREAM_UNAVAILABLE * 3 / 4).await);
        assert!(opens_within(&waiter, STREAM_UNAVAILABLE / 2).await);
    }
}

/// There is no waiter when the pause ends, and no task lives until the next waiter comes.
#[tokio::test(start_paused = true)]
async fn an_unavailable_stream_is_tried_again_for_the_next_waiter() {
    let notifier = in_memory();
    notifier.retries_after(&command_error(13));
    drop(subscribe(&notifier));
    tokio::time::sleep(STREAM_UNAVAILABLE * 2).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    let waiter = subscribe(&notifier);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(waiter.is_open());
}

/// A stream that has cost too much is closed for a while, in which its waiters poll.
#[tokio::test(start_paused = true)]
async fn the_stream_is_opened_again_after_a_time_of_polling() {
    let notifier = in_memory();
    let waiter = subscribe(&notifier);
    assert!(opens_within(&waiter, Duration::from_secs(1)).await);
    lock(&notifier.state).stream_task.as_ref().unwrap().abort();
    tokio::task::yield_now().await;
    notifier.poll_instead(STREAM_POLL_MIN);
    assert!(!opens_within(&waiter, STREAM_POLL_MIN * 3 / 4).await);
    assert!(opens_within(&waiter, STREAM_POLL_MIN / 2).await);
}

#[tokio::test(start_paused = true)]
async fn every_other_error_is_tried_again_soon() {
    let (notifier, connection) = (in_memory(), std::io::Error::other("cut"));
    let others = [20, 40, 136, 280, 8000].map(command_error);
    for error in others.into_iter().chain([LockError::Mongo(connection.into())]) {
        assert!(notifier.retries_after(&error), "{error}");
        assert_eq!(lock(&notifier.state).stream, StreamState::Closed);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_stopped_stays_off() {
    let notifier = in_memory();
    let waiter = subscribe(&notifier);
    notifier.stop();
    notifier.retries_after(&command_error(13));
    assert!(!opens_within(&waiter, STREAM_UNAVAILABLE * 3).await);
    let off = with_wake_up(false);
    let waiter = subscribe(&off);
    assert!(!opens_within(&waiter, STREAM_UNAVAILABLE * 3).await);
}

#[tokio::test(start_paused = true)]
async fn a_stream_counts_as_open_while_it_answers() {
    let notifier = in_memory();
    let subscription = subscribe(&notifier);
    tokio::time::sleep(STREAM_SILENT * 3).await;
    assert!(subscription.is_open(), "replies without a release count");
    // There are no replies from here on.
    lock(&notifier.state).stream_task.as_ref().unwrap().abort();
    assert!(subscription.is_open());
    tokio::time::sleep(STREAM_SILENT).await;
    assert!(!subscription.is_open());
}

/// A request of the waiter has acquired the lock after the reply to another one: only a request can tell.
#[tokio::test(start_paused = true)]
async fn a_waiter_whose_own_claim_has_the_lock_is_woken_by_a_look() {
    let notifier = with_wake_up(false);
    notifier.look_from(1);
    let Store::Memory(memory) = &*notifier.store else {
        unreachable!("these tests have the store in memory")
    };
    let lock_id: Arc<str> = Arc::from("owner#own");
    memory.acquire("n", &lock_id);
    let waiter = subscribe(&notifier);
    waiter.set_claim(&lock_id, false);
    let begun = Instant::now();
    waiter.woken().await;
    assert!(begun.elapsed() < *PAUSES.end(), "{:?}", begun.elapsed());
}

/// Only a waiter for work that may succeed once asks the server about a mark; to others it is a holder as any.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_ends_with_a_mark_is_woken_by_a_look_at_one() {
    let notifier = with_wake_up(false);
    notifier.look_from(1);
    let Store::Memory(memory) = &*notifier.store else {
        unreachable!("these tests have the store in memory")
    };
    memory.acquire("n", "owner#other");
    let waiter = subscribe(&notifier);
    for ends_with_mark in [false, true] {
        waiter.set_claim(&"owner#own".into(), ends_with_mark);
        waiter.rest(None);
        let is_woken = timeout(*PAUSES.end() * 3, waiter.woken()).await.is_ok();
        assert!(!is_woken, "another holder has the lock");
    }
    let until = Until::After(3_600_000);
    memory.change("n", "owner#other", Then::Mark { until });
    for ends_with_mark in [false, true] {
        waiter.set_claim(&"owner#own".into(), ends_with_mark);
        waiter.rest(None);
        let is_woken = timeout(*PAUSES.end() * 3, waiter.woken()).await.is_ok();
        assert_eq!(is_woken, ends_with_mark);
    }
}

/// The task that wakes waiters runs on a runtime that nothing drives at present.
#[tokio::test]
async fn a_waiter_does_not_depend_on_the_runtime_of_another_one() {
    let notifier = with_wake_up(false);
    let other = std::thread::spawn({
        let notifier = Arc::clone(&notifier);
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let waiter = runtime.block_on(async { subscribe_to(&notifier, "other") });
            (runtime, waiter)
        }
    });
    let (runtime, first) = other.join().unwrap();
    let waiter = subscribe(&notifier);
    let begun = Instant::now();
    waiter.woken().await;
    assert!(begun.elapsed() < LOOKER_CHECK * 4, "{:?}", begun.elapsed());
    drop(first);
    runtime.shutdown_background();
}

/// The stream changes to a filter that was made before the waiter came.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_the_stream_stops_to_report_looks_at_once() {
    let notifier = in_memory();
    notifier.opened(&StreamFilter::All);
    let waiter = subscribe(&notifier);
    waiter.woken().await;
    assert!(
        waiter.rest(None) > Duration::from_secs(1),
        "the stream reports the lock"
    );
    let others = StreamFilter::Names(Arc::new(["other".into()].into()));
    notifier.note_reply(&others);
    let begun = Instant::now();
    waiter.woken().await;
    assert!(
        begun.elapsed() < Duration::from_millis(10),
        "{:?}",
        begun.elapsed()
    );
}
