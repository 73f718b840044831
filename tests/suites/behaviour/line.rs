//! The line in which processes wait: their order, what is sent for their documents, and what the loss or damage of these costs.

use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongolock::{LockError, LockGuard, LockProvider};
use mongolock_tests::{AMPLE, FailPoint, eventually, must, recorded};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::competition::{Competition, SECTION, SHARED, compete};
use crate::fixture::{Fixture, acquire_and_release, in_time, patient};
use crate::servers::{WITHOUT_WAITERS, guarded};
use crate::waiter_documents::{count, line, on_waiters, until_empty, waiters};

/// The longest time that a waiter leaves a lock that is free to all before it in line.
const TIME_SLOTS: Duration = Duration::from_millis(50);

fn three(fixture: &Fixture) -> [LockProvider; 3] {
    ["a", "b", "c"].map(|owner| fixture.process(owner))
}

/// Who does not wait, or not for long, sends what was sent without a line.
#[tokio::test]
async fn nothing_is_sent_for_locks_that_nobody_awaits_for_long() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(|builder| builder).await;
    for name in 0..20 {
        let guard = provider.lock(name).await.unwrap();
        assert!(fixture.rival().lock(name).try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
    let held = fixture.rival().lock("held").await.unwrap();
    assert!(provider.lock("held").try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
    assert_eq!(on_waiters(&commands), []);
}

/// Two documents of each process are enough for two locks, however many tasks wait and however many turns they have.
#[tokio::test]
async fn the_work_leaves_no_document() {
    let fixture = Fixture::mongodb().await;
    let waiters = waiters(fixture.database());
    let mut working = JoinSet::new();
    for process in three(&fixture) {
        for task in 0..6 {
            let process = process.clone();
            working.spawn(async move {
                for _ in 0..10 {
                    let guard = process.lock(task % 2).acquire().await.unwrap();
                    sleep(SECTION).await;
                    guard.release().await.unwrap();
                }
            });
        }
    }
    let mut most = 0;
    while !working.is_empty() {
        most = count(&waiters).await.max(most);
        while let Some(done) = working.try_join_next() {
            done.unwrap();
        }
    }
    assert!((3..=6).contains(&most), "{most} documents");
    until_empty(&waiters).await;
}

/// Documents of processes that have died would stay for ever without them.
#[tokio::test]
async fn the_first_wait_has_the_indexes_built() {
    let fixture = Fixture::mongodb().await;
    let (waiting, commands) = fixture.recorded(|builder| builder).await;
    let held = fixture.provider.lock("held").await.unwrap();
    let mut waits = JoinSet::new();
    for name in ["held", "other", "held"] {
        let lock = waiting.lock(name);
        waits.spawn(async move { acquire_and_release(&lock).await });
    }
    let waiters = waiters(fixture.database());
    let built = || async {
        let names = waiters.list_index_names().await.ok()?;
        let is_built = |wanted: &str| names.iter().any(|name| name == wanted);
        (is_built("line") && is_built("until_ttl")).then_some(())
    };
    must(eventually(AMPLE, "the indexes of the waiters", built).await);
    held.release().await.unwrap();
    waits.join_all().await;
    let mut builds = on_waiters(&commands);
    builds.retain(|command| command.contains_key("createIndexes"));
    assert_eq!(builds.len(), 1, "{builds:?}");
    let limit = builds[0].get("maxTimeMS").map(ToString::to_string);
    assert_eq!(limit.as_deref(), Some("1000"));
}

#[tokio::test]
async fn a_collection_that_is_dropped_while_they_wait_costs_order_only() {
    let fixture = Fixture::mongodb().await;
    let (waiters, competition) = (waiters(fixture.database()), begun(&three(&fixture)).await);
    for _ in 0..10 {
        waiters.clone().drop().await.unwrap();
        competition.until_each_had(2).await;
    }
    // The documents come back with the next turns.
    competition.until_in_rotation().await;
    competition.end().await;
    until_empty(&waiters).await;
}

/// A competition in which each process has had a turn in line.
async fn begun(processes: &[LockProvider]) -> Competition {
    let competition = Competition::begin(processes);
    competition.until_each_had(2).await;
    competition
}

/// The value of a damaged field.
fn any_value() -> Bson {
    match fastrand::u8(0..8) {
        0 => Bson::Null,
        1 => Bson::MaxKey,
        2 => fastrand::i64(..).into(),
        3 => fastrand::f64().into(),
        4 => DateTime::from_millis(fastrand::i64(..)).into(),
        5 => "$name".into(),
        6 => doc! { "$ref": "never", "$id": 1 }.into(),
        _ => fastrand::i32(-1000..1000).into(),
    }
}

/// Somebody writes into the documents as they please, and adds others.
async fn damage(waiters: Collection<Document>, seed: u64) {
    fastrand::seed(seed);
    for number in 0.. {
        let fields = [
            "name", "provider", "owner", "at", "since", "moment", "until", "unknown",
        ];
        let field = fastrand::choice(fields).unwrap_or("at");
        // Some values are refused by the pipelines of no update: the server takes all of these.
        let change = doc! { "$set": { field: any_value() } };
        if fastrand::bool() {
            waiters.update_many(doc! {}, change).await.unwrap();
        } else {
            waiters.update_one(doc! {}, change).await.unwrap();
        }
        let id = format!("forged-{}", number % 20);
        let mut forged = doc! {
            "_id": &id, "name": SHARED, "provider": &id, "at": DateTime::from_millis(number % 20),
            "moment": i64::MAX, "until": DateTime::MAX, "unknown": [1],
        };
        forged.insert(fastrand::choice(fields).unwrap_or("at"), any_value());
        let upsert = waiters.replace_one(doc! { "_id": id }, forged).upsert(true);
        upsert.await.unwrap();
        sleep(Duration::from_millis(2)).await;
    }
}

/// Three processes go on in documents that anybody has damaged, and their own are sound again afterwards.
#[tokio::test]
async fn damaged_and_forged_documents_cost_order_only() {
    let fixture = Fixture::mongodb().await;
    let (waiters, competition) = (waiters(fixture.database()), begun(&three(&fixture)).await);
    let seed = fastrand::u64(..);
    let damaging = tokio::spawn(damage(waiters.clone(), seed));
    println!("seed {seed}");
    competition.until_each_had(30).await;
    assert!(!damaging.is_finished());
    damaging.abort();
    let _ = damaging.await;
    waiters.delete_many(doc! {}).await.unwrap();
    competition.until_in_rotation().await;
    competition.end().await;
}

/// Documents that twenty processes left behind when they died, before all others in line.
#[tokio::test]
async fn documents_of_expired_waiters_cost_some_turns_and_then_nothing() {
    let fixture = Fixture::mongodb().await;
    let waiters = waiters(fixture.database());
    let competition = Competition::begin(&three(&fixture));
    let turn = async || {
        let (begun, before) = (Instant::now(), competition.turns().len());
        competition.until_each_had(20).await;
        begun.elapsed() / u32::try_from(competition.turns().len() - before).unwrap()
    };
    let alone = turn().await;
    let now = DateTime::now().timestamp_millis();
    let left = (0..20).map(|number| {
        doc! {
            "_id": format!("expired-{number}:{SHARED}"), "name": SHARED, "provider": format!("expired-{number}"), "owner": "expired",
            "at": DateTime::from_millis(now - 1000 + number), "since": DateTime::from_millis(now - 1000), "moment": 50,
            "until": DateTime::from_millis(now + 60_000),
        }
    });
    waiters.insert_many(left).await.unwrap();
    // If expired waiters were still counted, each turn would come after their time slots. A slow machine takes as long alone.
    let is_fast = || async { (turn().await < TIME_SLOTS.max(alone * 2)).then_some(()) };
    must(eventually(AMPLE, "turns that do not wait for expired waiters", is_fast).await);
    competition.end().await;
}

/// A user without a right on the documents works as one without a line; the server refuses them once and not for each wait.
#[tokio::test]
async fn a_provider_that_may_not_write_the_documents_waits_without_an_order() {
    let (_server, database, _) = guarded(&WITHOUT_WAITERS).await;
    let provider = patient(&database);
    let processes = ["a", "b", "c"].map(|owner| provider.to_builder().owner(owner).build().unwrap());
    compete(&processes, 20).await;
}

/// The documents cannot be written or read, for any reason: waiters do not wait for them.
#[tokio::test]
async fn documents_that_fail_for_a_while_cost_order_only() {
    let fixture = Fixture::mongodb().await;
    let waiters = waiters(fixture.database());
    let mut processes = Vec::new();
    for owner in ["a", "b", "c"] {
        let (database, _) = recorded(fixture.db(), &[]).await;
        processes.push(patient(&database).to_builder().owner(owner).build().unwrap());
    }
    let competition = begun(&processes).await;
    let slow = FailPoint::on(&["find", "update", "delete"]).always();
    for fault in [
        FailPoint::on(&["find"]).always().error_code(50),
        FailPoint::on(&["update"]).times(3).close_connection(),
        slow.block(Duration::from_millis(700)),
    ] {
        let fault = fault.collection(&waiters.namespace().to_string());
        let point = must(fault.enable_for(fixture.db()).await);
        competition.until_each_had(5).await;
        must(point.clear().await);
    }
    competition.until_in_rotation().await;
    competition.end().await;
    until_empty(&waiters).await;
}

/// Waits until the line of this lock has these owners.
async fn until_line_is(fixture: &Fixture, name: &str, owners: &[&str]) {
    let reached = || async { (line(fixture.database(), name).await == owners).then_some(()) };
    must(eventually(AMPLE, "the line of these owners", reached).await);
}

/// Has these waiters release the lock as soon as they have it.
async fn until_served(waiters: impl IntoIterator<Item = JoinHandle<LockGuard>>) {
    let mut serving = JoinSet::new();
    for waiter in waiters {
        serving.spawn(async move { waiter.await.unwrap().release().await.unwrap() });
    }
    in_time(serving.join_all()).await;
}

fn wait(provider: &LockProvider, name: &str) -> JoinHandle<LockGuard> {
    let lock = provider.lock(name).acquire_timeout(AMPLE);
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

/// The number of rounds in which three processes wait.
const ROUNDS: usize = 12;

/// The order is a hint, which a slow machine may break. By chance most of the rounds are in one of six orders once in
/// a thousand runs.
#[tokio::test]
async fn waiters_are_served_in_the_order_of_their_line() {
    let fixture = Fixture::mongodb().await;
    let owners = ["first", "second", "third"];
    let processes = owners.map(|owner| fixture.process(owner));
    let mut in_order = 0;
    for _ in 0..ROUNDS {
        let held = fixture.provider.lock("line").await.unwrap();
        let mut served = JoinSet::new();
        for (place, process) in processes.iter().enumerate() {
            let waiter = wait(process, "line");
            until_line_is(&fixture, "line", &owners[..=place]).await;
            served.spawn(async move {
                let guard = waiter.await.unwrap();
                let token = guard.fencing_token();
                sleep(SECTION).await;
                guard.release().await.unwrap();
                (token, place)
            });
        }
        held.release().await.unwrap();
        let mut served = served.join_all().await;
        served.sort_unstable();
        in_order += usize::from(served.into_iter().map(|(_, place)| place).eq(0..3));
        // They leave the line a tenth of a second after their last use.
        sleep(Duration::from_millis(300)).await;
    }
    assert!(in_order > ROUNDS / 2, "{in_order} of {ROUNDS} rounds");
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_the_line() {
    let fixture = Fixture::mongodb().await;
    let held = fixture.provider.lock("left").await.unwrap();
    let limited = fixture.process("limited").lock("left");
    let limited = limited.acquire_timeout(Duration::from_secs(2));
    let limited = tokio::spawn(async move { limited.acquire().await });
    until_line_is(&fixture, "left", &["limited"]).await;
    let error = limited.await.unwrap().unwrap_err();
    assert!(matches!(error, LockError::Timeout { .. }), "{error}");
    until_line_is(&fixture, "left", &[]).await;

    let cancelled = wait(&fixture.process("cancelled"), "left");
    until_line_is(&fixture, "left", &["cancelled"]).await;
    let patient = wait(&fixture.process("patient"), "left");
    until_line_is(&fixture, "left", &["cancelled", "patient"]).await;
    cancelled.abort();
    until_line_is(&fixture, "left", &["patient"]).await;
    held.release().await.unwrap();
    until_served([patient]).await;
}

#[tokio::test]
async fn a_shutdown_leaves_the_line() {
    let fixture = Fixture::mongodb().await;
    let held = fixture.provider.lock("shut down").await.unwrap();
    let ending = fixture.process("ending");
    let lock = ending.lock("shut down");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_line_is(&fixture, "shut down", &["ending"]).await;
    ending.shutdown().await;
    assert_eq!(line(fixture.database(), "shut down").await, Vec::<String>::new());
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, LockError::ShutDown { .. }), "{error}");
    held.release().await.unwrap();
}
