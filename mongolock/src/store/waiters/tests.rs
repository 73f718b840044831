//! The commands of the waiters, on both stores: each provider has a place in the line of a name.

mod on_server;

use std::sync::Arc;
use std::time::Duration;

use mongodb::Database;
use mongodb::bson::DateTime;
use mongolock_tests::AMPLE;

use super::{ProviderMark, Waiter, WaiterEntry};
use crate::opaque::Opaque;
use crate::store::{IndexState, MemoryStore, MongoStore, Store};
use crate::timing::{COMMAND_LIMIT, WAITER_KEPT};

/// Makes two tests of each function: one in memory, one on MongoDB.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test] async fn $name() { super::$name(super::memory()).await; })*
        }
        mod on_mongodb {
            $(#[tokio::test] async fn $name() {
                let db = mongolock_tests::test_db().await;
                super::$name(super::mongodb(db.database())).await;
            })*
        }
    };
}

on_both_stores!(
    a_provider_that_enters_later_stands_behind,
    a_move_leads_to_the_end_behind_the_last_known_place,
    a_move_takes_no_later_place_back,
    a_place_far_in_the_future_does_not_decide_over_later_places,
    a_lost_document_comes_back_with_the_next_move,
    a_prolonged_wait_does_not_bring_a_removed_document_back,
    a_provider_that_leaves_removes_only_its_own_documents,
    a_wait_is_added_to_a_place_that_is_kept,
    a_document_names_its_waiter_and_since_when_it_waits,
    names_and_owners_are_taken_literally,
    one_provider_has_one_place_however_many_moves_are_under_way,
);

fn memory() -> Store {
    Store::Memory(Arc::new(MemoryStore::new()))
}

fn mongodb(database: &Database) -> Store {
    Store::Mongo(Opaque::new(MongoStore::new(
        database,
        "locks",
        None,
        Arc::default(),
    )))
}

fn entry(name: &str, provider: &ProviderMark) -> WaiterEntry {
    WaiterEntry {
        name: Arc::from(name),
        provider: provider.clone(),
        owner: Arc::from("owner"),
        waited: Some(Duration::from_secs(2)),
        time_slot: Duration::from_millis(7),
        last: None,
        keeps_place: false,
    }
}

fn marks<const N: usize>() -> [ProviderMark; N] {
    std::array::from_fn(|_| ProviderMark::random())
}

async fn move_to_end(store: &Store, name: &str, provider: &ProviderMark, last: Option<DateTime>) -> DateTime {
    let entry = WaiterEntry {
        last,
        ..entry(name, provider)
    };
    move_one(store, entry).await
}

/// Moves one document, and returns its place.
async fn move_one(store: &Store, entry: WaiterEntry) -> DateTime {
    let moved = store.move_to_end(std::slice::from_ref(&entry), COMMAND_LIMIT);
    moved.await.unwrap();
    let line = line(store, &entry.name).await;
    let own = |waiter: &&Waiter| *waiter.provider == *entry.provider.as_str();
    line.iter().find(own).expect("it stands in line").at
}

/// Enters these providers one behind the other, and returns the place of the last one.
async fn enter_all(store: &Store, name: &str, providers: &[ProviderMark]) -> DateTime {
    let mut last = None;
    for provider in providers {
        last = Some(move_to_end(store, name, provider, last).await);
    }
    last.expect("there are providers")
}

async fn line(store: &Store, name: &str) -> Vec<Waiter> {
    let mut lines = store.lines(&[Arc::from(name)], COMMAND_LIMIT).await.unwrap();
    lines.remove(name).unwrap_or_default()
}

async fn order(store: &Store, name: &str) -> Vec<Arc<str>> {
    let line = line(store, name).await;
    line.into_iter().map(|waiter| waiter.provider).collect()
}

fn texts(providers: &[&ProviderMark]) -> Vec<Arc<str>> {
    providers
        .iter()
        .map(|provider| Arc::from(provider.as_str()))
        .collect()
}

async fn a_provider_that_enters_later_stands_behind(store: Store) {
    let [a, b, c] = marks();
    enter_all(&store, "n", &[a.clone(), b.clone(), c.clone()]).await;
    enter_all(&store, "other", &[c.clone(), a.clone()]).await;
    assert_eq!(order(&store, "n").await, texts(&[&a, &b, &c]));
    let both = [Arc::from("n"), Arc::from("other"), Arc::from("unknown")];
    let lines = store.lines(&both, COMMAND_LIMIT).await.unwrap();
    assert_eq!((lines.len(), lines["n"].len(), lines["other"].len()), (2, 3, 2));
    assert!(lines["n"].is_sorted_by_key(|waiter| waiter.at));
}

async fn a_move_leads_to_the_end_behind_the_last_known_place(store: Store) {
    let [a, b, c] = marks();
    let last = enter_all(&store, "n", &[a.clone(), b.clone(), c.clone()]).await;
    let moved = move_to_end(&store, "n", &a, Some(last)).await;
    assert!(moved > last);
    assert_eq!(order(&store, "n").await, texts(&[&b, &c, &a]));
    assert_eq!(line(&store, "n").await[2].at, moved);

    // The last place is a minute ahead of the clock, as after a failover to a clock that is behind.
    let ahead = DateTime::from_millis(moved.timestamp_millis() + 60_000);
    let moved = move_to_end(&store, "n", &b, Some(ahead)).await;
    assert_eq!(moved.timestamp_millis(), ahead.timestamp_millis() + 1);
    assert_eq!(order(&store, "n").await, texts(&[&c, &a, &b]));
}

/// A command that was sent before another one may take effect after it.
async fn a_move_takes_no_later_place_back(store: Store) {
    let [a] = marks();
    let now = move_to_end(&store, "n", &a, None).await;
    let ahead = DateTime::from_millis(now.timestamp_millis() + 60_000);
    let later = move_to_end(&store, "n", &a, Some(ahead)).await;
    assert_eq!(move_to_end(&store, "n", &a, None).await, later);
    assert_eq!(line(&store, "n").await[0].at, later);
}

/// Such a place is damaged: if others stood behind it, all of them would have the same place, the last one that there is.
async fn a_place_far_in_the_future_does_not_decide_over_later_places(store: Store) {
    let [a, b] = marks();
    let now = move_to_end(&store, "n", &a, None).await.timestamp_millis();
    let hour = 3_600_000;
    let mut last = 0;
    for (turn, provider) in [&a, &b, &a, &b].into_iter().enumerate() {
        let damaged = DateTime::from_millis(i64::MAX - i64::try_from(turn).unwrap());
        let place = move_to_end(&store, "n", provider, Some(damaged))
            .await
            .timestamp_millis();
        assert!(
            (now + hour..now + hour + 60_000).contains(&place) && place > last,
            "turn {turn}: {place}"
        );
        last = place;
        // The clock goes on by more than a millisecond.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    assert_eq!(order(&store, "n").await, texts(&[&a, &b]));
}

async fn a_lost_document_comes_back_with_the_next_move(store: Store) {
    let [a, b] = marks();
    let last = enter_all(&store, "n", &[a.clone(), b.clone()]).await;
    store
        .leave_lines(&a, &[Arc::from("n")], COMMAND_LIMIT)
        .await
        .unwrap();
    assert_eq!(order(&store, "n").await, texts(&[&b]));
    move_to_end(&store, "n", &a, Some(last)).await;
    assert_eq!(order(&store, "n").await, texts(&[&b, &a]));
}

async fn a_prolonged_wait_does_not_bring_a_removed_document_back(store: Store) {
    let [a, b] = marks();
    enter_all(&store, "kept", &[a.clone(), b.clone()]).await;
    enter_all(&store, "left", &[a.clone(), b.clone()]).await;
    let names = [Arc::from("kept"), Arc::from("left"), Arc::from("never")];
    store.leave_lines(&a, &names[1..2], COMMAND_LIMIT).await.unwrap();
    store.prolong_waits(&a, &names, COMMAND_LIMIT).await.unwrap();
    assert_eq!(order(&store, "kept").await, texts(&[&a, &b]));
    assert_eq!(order(&store, "left").await, texts(&[&b]));
    assert!(order(&store, "never").await.is_empty());
}

async fn a_provider_that_leaves_removes_only_its_own_documents(store: Store) {
    let [a, b] = marks();
    for name in ["one", "two", "three"] {
        enter_all(&store, name, &[a.clone(), b.clone()]).await;
    }
    let names = [Arc::from("one"), Arc::from("two")];
    store.leave_lines(&a, &names, COMMAND_LIMIT).await.unwrap();
    // Leaving once more changes nothing.
    store.leave_lines(&a, &names, COMMAND_LIMIT).await.unwrap();
    assert_eq!(order(&store, "one").await, texts(&[&b]));
    assert_eq!(order(&store, "two").await, texts(&[&b]));
    assert_eq!(order(&store, "three").await, texts(&[&a, &b]));
}

async fn a_wait_is_added_to_a_place_that_is_kept(store: Store) {
    let [first, second] = marks();
    let nobody = WaiterEntry {
        waited: None,
        ..entry("n", &first)
    };
    let place = move_one(&store, nobody).await;
    let last = move_to_end(&store, "n", &second, Some(place)).await;
    let kept = WaiterEntry {
        keeps_place: true,
        last: Some(last),
        ..entry("n", &first)
    };
    assert_eq!(move_one(&store, kept.clone()).await, place);
    let before = line(&store, "n").await;
    assert!(before[0].since.is_some(), "it says since when it waits");
    store
        .leave_lines(&first, &[Arc::from("n")], COMMAND_LIMIT)
        .await
        .unwrap();
    assert!(move_one(&store, kept).await > last, "it has no place to keep");
}

async fn names_and_owners_are_taken_literally(store: Store) {
    let [a] = marks();
    for name in ["$name", "a.b", "$$NOW", "ä:1"] {
        let literal = WaiterEntry {
            owner: Arc::from("$at"),
            ..entry(name, &a)
        };
        move_one(&store, literal).await;
        let line = line(&store, name).await;
        assert_eq!((line.len(), line[0].owner.as_str()), (1, "$at"), "{name}");
    }
}

async fn one_provider_has_one_place_however_many_moves_are_under_way(store: Store) {
    let ([a], store) = (marks(), Arc::new(store));
    let mut moves = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (store, a) = (Arc::clone(&store), a.clone());
        moves.spawn(async move { move_to_end(&store, "n", &a, None).await });
    }
    let places = moves.join_all().await;
    let line = line(&store, "n").await;
    assert_eq!(line.len(), 1);
    assert_eq!(Some(line[0].at), places.into_iter().max());
}

async fn a_document_names_its_waiter_and_since_when_it_waits(store: Store) {
    let [holder, waiting, idle] = marks();
    let last = enter_all(&store, "n", &[holder.clone(), waiting.clone()]).await;
    let nobody = WaiterEntry {
        waited: None,
        last: Some(last),
        ..entry("n", &idle)
    };
    move_one(&store, nobody).await;
    let line = line(&store, "n").await;
    assert_eq!(line[1].time_slot, Duration::from_millis(7));
    assert_eq!((line[1].owner.as_str(), line[2].since), ("owner", None));
    let since = line[1].since.expect("somebody waits");
    let waited = line[1].at.timestamp_millis() - since.timestamp_millis();
    assert!((2000..2100).contains(&waited), "{waited} ms");
}

/// A process that has died leaves the line when its time is over; one that lives prolongs its wait.
#[tokio::test(start_paused = true)]
async fn a_document_in_memory_that_is_not_prolonged_leaves_the_line() {
    let (store, [expired, alive]) = (memory(), marks());
    enter_all(&store, "n", &[expired.clone(), alive.clone()]).await;
    tokio::time::sleep(WAITER_KEPT / 2).await;
    store
        .prolong_waits(&alive, &[Arc::from("n")], COMMAND_LIMIT)
        .await
        .unwrap();
    assert_eq!(order(&store, "n").await, texts(&[&expired, &alive]));
    tokio::time::sleep(WAITER_KEPT / 2).await;
    assert_eq!(order(&store, "n").await, texts(&[&alive]));
    tokio::time::sleep(WAITER_KEPT / 2).await;
    assert!(order(&store, "n").await.is_empty());
}
