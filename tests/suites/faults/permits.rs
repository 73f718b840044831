//! Permits of semaphores: lost and late messages, and processes that are killed or stopped.

use std::time::Duration;

use mongodb::Database;
use mongodb::bson::{Document, doc};
use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, Fault, eventually, must, test_db, transaction_on};
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::actor::{Actor, Part, say};
use crate::{LONG_EXPIRY, Standalone, through_proxy, until_indexed, warm_up};

/// The permits of the semaphore of these tests.
const PERMITS: u32 = 3;

/// The number of permits that have a claim, whoever has made it.
async fn claims(database: &Database) -> u64 {
    let held = doc! { "_id": { "$gte": "s\u{1f}", "$lt": "s " }, "lockId": { "$ne": "" } };
    let locks = database.collection::<Document>("distributed_locks");
    locks.count_documents(held).await.unwrap()
}

fn long(database: &Database) -> LockProvider {
    let builder = LockProvider::builder(database).expiry(LONG_EXPIRY);
    builder.build().unwrap()
}

/// A repetition over "any free permit" would take a second one.
#[tokio::test]
async fn a_lost_reply_takes_no_second_permit() {
    let server = Standalone::start().await;
    let provider = long(&server.proxied);
    warm_up(&provider).await;
    for fault in [Fault::drop_reply, Fault::drop_request, Fault::swallow_reply] {
        let lost = server.proxy.inject(fault().command("findAndModify"));
        let acquiring = provider.semaphore("s", PERMITS).acquire_timeout(AMPLE).acquire();
        let permit = timeout(AMPLE, acquiring).await.unwrap().unwrap();
        must(lost.happened(AMPLE).await);
        assert_eq!(claims(&server.direct).await, 1);
        // A claim that was repeated for another permit, and then given back, would leave a second document.
        let locks = server.direct.collection::<Document>("distributed_locks");
        let of_permits = doc! { "_id": { "$gte": "s\u{1f}", "$lt": "s " } };
        assert_eq!(locks.count_documents(of_permits.clone()).await.unwrap(), 1);
        // The claim that was repeated belongs to the permit: nothing releases it later.
        sleep(Duration::from_millis(300)).await;
        assert!(!permit.is_lost());
        permit.release().await.unwrap();
        assert_eq!(claims(&server.direct).await, 0);
        locks.delete_many(of_permits).await.unwrap();
    }
}

/// The claim arrives after its call has ended, and is released again.
#[tokio::test]
async fn a_claim_that_arrives_late_is_given_back() {
    let server = Standalone::start().await;
    let provider = long(&server.proxied);
    warm_up(&provider).await;
    let fault = Fault::late_request(Duration::from_millis(1500)).command("findAndModify");
    let late = server.proxy.inject(fault);
    let semaphore = provider
        .semaphore("s", PERMITS)
        .acquire_timeout(Duration::from_millis(300));
    assert!(semaphore.acquire().await.is_err());
    must(late.happened(AMPLE).await);
    let granted = async || (claims(&server.direct).await == 1).then_some(());
    must(eventually(AMPLE, "the late claim is granted", granted).await);
    let free = async || (claims(&server.direct).await == 0).then_some(());
    must(eventually(Duration::from_secs(15), "it is given back", free).await);
}

/// A query whose reply is lost is sent again, and the call goes on.
#[tokio::test]
async fn a_lost_query_does_not_end_a_try() {
    let db = test_db().await;
    let (proxy, database) = through_proxy(&db).await;
    let rival = long(db.database());
    let provider = long(&database);
    warm_up(&provider).await;
    let semaphore = rival.semaphore("s", 1);
    let held = semaphore.acquire().await.unwrap();
    let lost = proxy.inject(Fault::drop_reply().command("find"));
    let none = timeout(AMPLE, provider.semaphore("s", 1).try_acquire())
        .await
        .unwrap();
    must(lost.happened(AMPLE).await);
    assert!(none.unwrap().is_none());
    held.release().await.unwrap();
    assert!(provider.semaphore("s", 1).try_acquire().await.unwrap().is_some());
}

/// The claim has found a holder, and the time is up before the query has a reply.
#[tokio::test]
async fn a_call_whose_time_ends_in_a_query_names_the_holder_that_it_has_met() {
    let db = test_db().await;
    let (proxy, database) = through_proxy(&db).await;
    let provider = long(&database);
    warm_up(&provider).await;
    let held = long(db.database()).semaphore("s", 1).acquire().await.unwrap();
    proxy.inject(Fault::swallow_request().command("find").times(10));
    let short = Duration::from_millis(300);
    let error = provider
        .semaphore("s", 1)
        .acquire_timeout(short)
        .acquire()
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Timeout { .. }), "{error:?}");
    held.release().await.unwrap();
}

/// A foreign transaction blocks the document of one permit: a call that has drawn it takes another one.
#[tokio::test]
async fn a_blocked_permit_does_not_keep_the_others() {
    let db = test_db().await;
    let provider = long(db.database());
    let semaphore = provider.semaphore("s", 2).acquire_timeout(Duration::from_secs(5));
    let (first, second) = (
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
    );
    first.release().await.unwrap();
    second.release().await.unwrap();
    // A build of the index would wait for the transaction, and every claim behind it.
    until_indexed(&provider).await;
    let foreign = db.connect_again().await.unwrap();
    let mut session = transaction_on(&foreign, &["s\u{1f}0"]).await;
    for _ in 0..4 {
        let permit = timeout(AMPLE, semaphore.acquire()).await.unwrap().unwrap();
        assert_eq!(permit.number(), 1);
        permit.release().await.unwrap();
    }
    session.abort_transaction().await.unwrap();
    let free = async || (claims(db.database()).await == 0).then_some(());
    must(eventually(AMPLE, "no claim is left", free).await);
}

/// The permit of a process that was killed is free when its lease has expired, for a waiter that polls nothing else.
#[tokio::test]
async fn the_permit_of_a_dead_process_comes_back() {
    let db = test_db().await;
    let expiry = Duration::from_secs(3);
    let mut holder = Actor::start("permits::hold_all", &db, expiry, &[]);
    holder.until("held").await;
    let provider = long(db.database());
    let semaphore = provider.semaphore("s", PERMITS).acquire_timeout(AMPLE);
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(async move { semaphore.acquire().await });
    sleep(Duration::from_millis(500)).await;
    holder.signal(Signal::KILL);
    let killed = Instant::now();
    let permit = timeout(AMPLE, waiting).await.unwrap().unwrap().unwrap();
    let waited = killed.elapsed();
    // Without the end of the lease in the query the waiter would look again up to 30 s later.
    assert!(waited < expiry + Duration::from_secs(1), "{waited:?}");
    let semaphore = provider.semaphore("s", PERMITS);
    let others_free = async || (semaphore.available().await.unwrap() + 1 == PERMITS).then_some(());
    must(eventually(AMPLE, "its other permits are free", others_free).await);
    permit.release().await.unwrap();
}

/// A part: a process that holds all permits until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_all() {
    let Some(Part { database, expiry }) = Part::given().await else {
        return;
    };
    let provider = LockProvider::builder(&database).expiry(expiry).build().unwrap();
    let mut held = Vec::new();
    for _ in 0..PERMITS {
        held.push(provider.semaphore("s", PERMITS).acquire().await.unwrap());
    }
    say("held");
    std::future::pending::<()>().await;
}

/// The tasks of each process, and the turns of each task.
const TASKS: i64 = 4;
const TURNS: i64 = 12;

/// One process is killed and another one stopped for longer than its leases: no two callers are ever inside with the same
/// permit, none has a permit that does not exist, and the others go on.
#[tokio::test]
async fn no_permit_is_held_twice_while_processes_are_killed_and_stopped() {
    let db = test_db().await;
    let expiry = Duration::from_secs(2);
    let part = || Actor::start("permits::take_turns", &db, expiry, &[]);
    let (mut steady, mut stopped, mut killed) = (part(), part(), part());
    for process in [&mut stopped, &mut killed] {
        process.until("turn").await;
    }
    stopped.signal(Signal::STOP);
    killed.signal(Signal::KILL);
    steady.until("done").await;
    // By now the leases of the stopped process have expired, and others had its permits.
    sleep(expiry * 2).await;
    stopped.signal(Signal::CONT);
    stopped.until("done").await;
    let overlaps = db.database().collection::<Document>("overlaps");
    assert_eq!(overlaps.count_documents(doc! {}).await.unwrap(), 0);
    let provider = long(db.database());
    let semaphore = provider.semaphore("s", PERMITS);
    let all_free = async || (semaphore.available().await.unwrap() == PERMITS).then_some(());
    must(eventually(AMPLE, "all permits are free", all_free).await);
}

/// A part: tasks that take turns with a permit. Inside, each reads the counter of its permit, waits, and raises it only if
/// nobody else has: otherwise two callers were inside with one permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn take_turns() {
    let Some(Part { database, expiry }) = Part::given().await else {
        return;
    };
    let builder = LockProvider::builder(&database)
        .expiry(expiry)
        .acquire_timeout(AMPLE);
    let provider = builder.build().unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (provider, database) = (provider.clone(), database.clone());
        tasks.spawn(async move {
            let mut turns = 0;
            while turns < TURNS {
                // A turn that is lost, because the process was stopped, does not count.
                if take_turn(&provider, &database).await.is_ok() {
                    turns += 1;
                    say("turn");
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    provider.shutdown().await;
    say("done");
}

async fn take_turn(provider: &LockProvider, database: &Database) -> Result<(), LockError> {
    let counters = database.collection::<Document>("counters");
    let permit = provider.semaphore("s", PERMITS).acquire().await?;
    let number = i64::from(permit.number());
    let of_permit = doc! { "_id": number };
    let read = counters.find_one(of_permit.clone()).await?;
    let value = read.as_ref().and_then(|read| read.get_i64("value").ok());
    sleep(Duration::from_millis(fastrand::u64(1..20))).await;
    permit.ensure_held()?;
    let raised = match value {
        None => {
            let first = doc! { "_id": number, "value": 1_i64 };
            counters.insert_one(first).await.is_ok()
        }
        Some(value) => {
            let seen = doc! { "_id": number, "value": value };
            let raise = doc! { "$inc": { "value": 1_i64 } };
            counters.update_one(seen, raise).await?.matched_count == 1
        }
    };
    // Whoever was stopped meanwhile has lost its permit, and may find the work of its successor.
    permit.ensure_held()?;
    if !raised || number >= i64::from(PERMITS) {
        let overlap = doc! { "permit": number };
        database.collection("overlaps").insert_one(overlap).await?;
    }
    permit.release().await
}
