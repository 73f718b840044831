//! The names in the filter of the change stream: the awaited ones, as long as they are few.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, Commands, FailPoint, eventually, must};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::fixture::Fixture;
use crate::waiting::{WOKEN, acquired, hold_all, release_to, seldom_polling, waiter};

/// The least time between two changes of the filter.
const APART: Duration = Duration::from_secs(2);

/// The commands that have opened streams.
fn opened(commands: &Commands) -> Vec<Document> {
    let mut all = commands.all();
    all.retain(|command| command.contains_key("aggregate"));
    all
}

/// The names in the filter of each stream that was opened; `None` for one without names.
fn filters(commands: &Commands) -> Vec<Option<Vec<String>>> {
    opened(commands).iter().map(filter_of).collect()
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

/// Waits until the filter of the last stream meets the condition.
async fn until_filter(commands: &Commands, what: &str, is_met: impl Fn(Option<&[String]>) -> bool) {
    let met = || async {
        let last = filters(commands).pop()?;
        is_met(last.as_deref()).then_some(())
    };
    must(eventually(AMPLE, what, met).await);
}

async fn until_reported(commands: &Commands, name: &str) {
    let has_name = |names: Option<&[String]>| names.is_some_and(|names| names.iter().any(|own| own == name));
    until_filter(commands, "a filter with the name", has_name).await;
}

#[tokio::test]
async fn a_lock_that_is_awaited_later_is_added_to_the_filter() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(seldom_polling).await;
    let held = hold_all(&fixture.provider, ["first", "second"]).await;
    let first_waiter = waiter(provider.lock("first"));
    until_reported(&commands, "first").await;
    let second_waiter = waiter(provider.lock("second"));
    until_reported(&commands, "second").await;
    until_reported(&commands, "first").await;
    // The names that were not awaited are not in it.
    assert!(filters(&commands).iter().flatten().all(|names| names.len() <= 2));
    sleep(Duration::from_millis(300)).await;
    for (held, waiter) in held.into_iter().zip([first_waiter, second_waiter]) {
        assert!(!waiter.is_finished());
        release_to(held, waiter, WOKEN).await;
    }
}

/// One process awaits a lock again and again while other locks come and go: each release of the lock wakes it, although
/// the filter changes all the time. Without a wake-up each turn would take five seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changing_filter_misses_no_release() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(seldom_polling).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let others = await_others(provider.clone(), fixture.rival(), Arc::clone(&is_over));
    let others = tokio::spawn(others);
    let (begun, mut slow, mut turns) = (Instant::now(), 0, 0);
    while begun.elapsed() < APART * 6 {
        let held = fixture.provider.lock("steady").acquire().await.unwrap();
        let waiting = waiter(provider.lock("steady"));
        sleep(Duration::from_millis(held_for(turns))).await;
        let released = Instant::now();
        held.release().await.unwrap();
        let next = acquired(waiting, WOKEN).await;
        slow += usize::from(released.elapsed() > Duration::from_secs(2));
        turns += 1;
        next.release().await.unwrap();
    }
    is_over.store(true, Relaxed);
    others.await.unwrap();
    let switches = filters(&commands).len();
    assert!(turns >= 10 && switches >= 4, "{turns} turns, {switches} streams");
    assert_eq!(slow, 0, "of {turns} turns with {switches} streams");
}

/// A time of 100 to 400 ms that differs from turn to turn, so that releases meet each moment of a change.
fn held_for(turn: u64) -> u64 {
    100 + turn * 137 % 300
}

/// Awaits one new lock after the other, each of which is held for a while.
async fn await_others(provider: LockProvider, holder: LockProvider, is_over: Arc<AtomicBool>) {
    let mut number = 0;
    while !is_over.load(Relaxed) {
        let name = format!("other {number}");
        let held = holder.lock(&name).acquire().await.unwrap();
        let limited = provider.lock(&name).acquire_timeout(Duration::from_millis(700));
        let outcome = limited.acquire().await;
        // A busy server may be too slow for the request.
        let is_late = matches!(outcome, Err(LockError::Timeout { .. } | LockError::Mongo(_)));
        assert!(is_late, "{outcome:?}");
        held.release().await.unwrap();
        number += 1;
    }
}

/// Beyond 64 awaited locks the stream has no names in its filter, and below 48 it has them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_awaited_locks_have_a_stream_without_names() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(seldom_polling).await;
    let mut held = hold_all(&fixture.provider, 0..80).await;
    let mut many = JoinSet::new();
    for number in 10..80 {
        let lock = provider.lock(number);
        many.spawn(async move { lock.acquire().await.unwrap() });
    }
    until_filter(&commands, "a stream without names", |names| names.is_none()).await;
    let few: Vec<_> = (0..10).map(|number| waiter(provider.lock(number))).collect();
    sleep(APART + Duration::from_millis(500)).await;
    // Releases are reported without a filter as well.
    for held in held.split_off(40) {
        held.release().await.unwrap();
    }
    for _ in 40..80 {
        let next = timeout(WOKEN, many.join_next()).await.expect("it is woken");
        next.unwrap().unwrap().release().await.unwrap();
    }
    // Some names may be in it whose waiters have just left.
    let has_names = |names: Option<&[String]>| names.is_some_and(|names| (40..48).contains(&names.len()));
    until_filter(&commands, "a filter with the rest", has_names).await;
    held.clear();
    for waiter in few {
        acquired(waiter, WOKEN).await.release().await.unwrap();
    }
    timeout(AMPLE, many.join_all()).await.expect("they are woken");
}

/// The collection is dropped just when the filter changes: a time of the server before that is of no use, and the stream
/// is opened without one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_filter_outlives_the_collection() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(seldom_polling).await;
    let _held = hold_all(&fixture.provider, ["first", "second"]).await;
    let first_waiter = waiter(provider.lock("first"));
    until_reported(&commands, "first").await;
    let second_waiter = waiter(provider.lock("second"));
    for _ in 0..3 {
        sleep(Duration::from_millis(700)).await;
        fixture.locks().drop().await.unwrap();
    }
    for waiter in [first_waiter, second_waiter] {
        // A waiter that had the lock before the last drop has lost it.
        drop(acquired(waiter, AMPLE / 2).await);
    }
    // The stream works again.
    let held = fixture.provider.lock("third").await.unwrap();
    let third_waiter = waiter(provider.lock("third"));
    until_reported(&commands, "third").await;
    sleep(Duration::from_millis(500)).await;
    release_to(held, third_waiter, WOKEN).await;
}

/// The server refuses the stream with another filter: the one before has ended or goes on, and a stream is opened without a time.
#[tokio::test]
async fn a_refused_change_of_the_filter_loses_no_waiter() {
    // 286: the history of the server does not reach back so far. 280: a fatal error of the stream.
    for code in [286, 280] {
        let fixture = Fixture::mongodb().await;
        let (provider, commands) = fixture.recorded(seldom_polling).await;
        let held = hold_all(&fixture.provider, ["first", "second"]).await;
        let first_waiter = waiter(provider.lock("first"));
        until_reported(&commands, "first").await;
        let point = FailPoint::on(&["aggregate"]).error_code(code);
        let point = must(point.enable_for(fixture.db()).await);
        let second_waiter = waiter(provider.lock("second"));
        let refusal = || async {
            let mut failed = commands.failed().into_iter();
            failed.find(|failed| failed.starts_with("aggregate:"))
        };
        must(eventually(AMPLE, "the refusal", refusal).await);
        must(point.clear().await);
        let streams = || async { (filters(&commands).len() >= 3).then_some(()) };
        must(eventually(AMPLE, "a stream after the refusal", streams).await);
        sleep(Duration::from_millis(500)).await;
        for (held, waiter) in held.into_iter().zip([first_waiter, second_waiter]) {
            release_to(held, waiter, WOKEN).await;
        }
    }
}
