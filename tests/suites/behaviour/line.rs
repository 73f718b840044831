//! The documents of the line in which processes wait: what is sent for them, and what their loss or damage costs.

use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongolock::LockProvider;
use mongolock_tests::{AMPLE, FailPoint, eventually, must, recorded};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::competition::{Competition, SECTION, SHARED, compete};
use crate::fixture::{Fixture, acquire_and_release, patient};
use crate::interop_dotnet::DotnetLock;
use crate::servers::{WITHOUT_WAITERS, guarded};
use crate::waiter_documents::{count, on_waiters, until_empty, waiters};

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

/// The .NET library sees the lock free now and then, and knows nothing of the line.
#[tokio::test]
async fn processes_in_line_share_with_dotnet() {
    let fixture = Fixture::mongodb().await;
    let locks = fixture.locks();
    let competition = Competition::begin(&[fixture.process("a"), fixture.process("b")]);
    let dotnet = tokio::spawn(async move {
        let mut turns = 0;
        while turns < 3 {
            if let Some(lock) = DotnetLock::acquire(&locks, SHARED).await {
                turns += 1;
                sleep(SECTION).await;
                assert_eq!(lock.release(SHARED).await, 1, "nobody else has taken it");
            }
            // Its pauses while the lock is held.
            sleep(Duration::from_millis(fastrand::u64(10..=800))).await;
        }
    });
    competition.until_each_had(20).await;
    let ended = timeout(AMPLE, dotnet).await;
    ended.expect(".NET has its turns").unwrap();
    competition.until_each_had(20).await;
    competition.end().await;
    until_empty(&waiters(fixture.database())).await;
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
