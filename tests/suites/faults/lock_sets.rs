//! Several locks at once: lost and late messages, blocked documents, killed processes, and many processes that need the
//! same locks.

use std::time::Duration;

use mongodb::Database;
use mongodb::bson::{Document, doc};
use mongolock::{FencingToken, LockError, LockGuard, LockProvider};
use mongolock_tests::{
    AMPLE, FailPoint, Fault, TestDb, eventually, lock_document, locks, must, test_db, transaction_on,
};
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::actor::{Actor, Part, say};
use crate::{
    LONG_EXPIRY, Standalone, assert_free, document, fail, is_released, patient, through_proxy, until_indexed,
    warm_up,
};

const ALL: [&str; 3] = ["a", "b", "c"];

/// The server's code for a command that the user may not run.
const UNAUTHORIZED: i32 = 13;

/// Asserts that the documents have the tokens of the hold.
async fn assert_stores_its_tokens(database: &Database, guard: &LockGuard) {
    for name in guard.names() {
        let stored = document(database, name).await.get_i64("fencingToken");
        assert_eq!(
            stored.ok(),
            guard.fencing_token_of(name).map(FencingToken::get),
            "{name}"
        );
    }
}

async fn held_names(database: &Database) -> Vec<String> {
    let mut held = Vec::new();
    for name in ALL {
        let found = lock_document(database, name).await;
        if found.is_some_and(|document| document.get_str("lockId") != Ok("")) {
            held.push(name.to_owned());
        }
    }
    held
}

/// Waits until no name has a claim, long before a lease of a minute would end.
async fn until_none_is_held(database: &Database, limit: Duration) {
    let free = async || held_names(database).await.is_empty().then_some(());
    must(eventually(limit, "no claim is left", free).await);
}

/// Makes the documents, so that a foreign transaction can change them.
async fn make_documents(provider: &LockProvider) {
    until_indexed(provider).await;
    for name in ALL {
        assert_free(provider, name).await;
    }
}

/// The reply to the update or to the query is lost: the same id finds its own claims.
#[tokio::test]
async fn a_lost_reply_is_made_up_for_by_the_same_id() {
    let db = test_db().await;
    let (proxy, database) = through_proxy(&db).await;
    let provider = LockProvider::builder(&database)
        .expiry(LONG_EXPIRY)
        .build()
        .unwrap();
    warm_up(&provider).await;
    for command in ["update", "find"] {
        let lost = proxy.inject(Fault::drop_reply().command(command));
        let guard = timeout(AMPLE, provider.lock_all(ALL).acquire())
            .await
            .unwrap()
            .unwrap();
        must(lost.happened(AMPLE).await);
        assert_stores_its_tokens(db.database(), &guard).await;
        guard.release().await.unwrap();
        assert!(held_names(db.database()).await.is_empty());
    }
}

/// On a standalone server the driver repeats nothing.
#[tokio::test]
async fn a_lost_reply_of_a_standalone_is_made_up_for() {
    let server = Standalone::start().await;
    let provider = LockProvider::builder(&server.proxied)
        .expiry(LONG_EXPIRY)
        .build()
        .unwrap();
    warm_up(&provider).await;
    for faults in [Fault::drop_reply(), Fault::drop_request()] {
        let lost = server.proxy.inject(faults.command("update").times(2));
        let guard = timeout(AMPLE, provider.lock_all(ALL).acquire())
            .await
            .unwrap()
            .unwrap();
        must(lost.happened(AMPLE).await);
        assert_stores_its_tokens(&server.direct, &guard).await;
        // A release whose reply is lost is not a loss of the locks.
        server.proxy.inject(Fault::drop_reply().command("update"));
        guard.release().await.unwrap();
        assert!(held_names(&server.direct).await.is_empty());
    }
}

/// A silent connection: a copy of the request is sent on another one, with the same id.
#[tokio::test]
async fn a_silent_connection_delays_a_set_by_two_seconds() {
    let db = test_db().await;
    let (proxy, database) = through_proxy(&db).await;
    let provider = LockProvider::builder(&database)
        .expiry(LONG_EXPIRY)
        .build()
        .unwrap();
    warm_up(&provider).await;
    let silent = proxy.inject(Fault::swallow_reply().command("update"));
    let begun = Instant::now();
    let guard = timeout(AMPLE, provider.lock_all(ALL).acquire())
        .await
        .unwrap()
        .unwrap();
    must(silent.happened(AMPLE).await);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_stores_its_tokens(db.database(), &guard).await;
    guard.release().await.unwrap();
    until_none_is_held(db.database(), AMPLE).await;
}

/// The request arrives after the call has ended and its claims were given back for the first time.
#[tokio::test]
async fn a_request_that_arrives_late_leaves_nothing_held() {
    let server = Standalone::start().await;
    let provider = LockProvider::builder(&server.proxied)
        .expiry(LONG_EXPIRY)
        .build()
        .unwrap();
    warm_up(&provider).await;
    let late = server
        .proxy
        .inject(Fault::late_request(Duration::from_millis(1500)).command("update"));
    let set = provider.lock_all(ALL).acquire_timeout(Duration::from_millis(1));
    assert!(set.acquire().await.is_err());
    must(late.happened(AMPLE).await);
    let granted = async || (held_names(&server.direct).await.len() == ALL.len()).then_some(());
    must(eventually(AMPLE, "the late request is granted", granted).await);
    until_none_is_held(&server.direct, Duration::from_secs(15)).await;
}

/// What hangs in the server behind a foreign transaction is granted late, to nobody, and given back again: the locks that
/// are not blocked at once, the blocked one when the server has ended the request.
#[tokio::test]
async fn a_claim_that_hung_behind_a_transaction_is_given_back_twice() {
    let db = test_db().await;
    let provider = LockProvider::builder(db.database())
        .expiry(LONG_EXPIRY)
        .build()
        .unwrap();
    make_documents(&provider).await;
    let foreign = db.connect_again().await.unwrap();
    let mut session = transaction_on(&foreign, &["b"]).await;
    let set = provider.lock_all(ALL).acquire_timeout(AMPLE);
    let cut = timeout(Duration::from_millis(300), set.acquire()).await;
    assert!(cut.is_err(), "the transaction blocks one of the documents");
    // The upserts of one command run in order, so that only the first lock was acquired by now.
    let free = async || is_released(db.database(), "a").await.then_some(());
    must(eventually(Duration::from_secs(2), "the first lock is given back", free).await);
    session.abort_transaction().await.unwrap();
    // The rest is granted late unless the give-back that hung behind it comes right after it. By now both have happened, and
    // the server has ended what it had not run.
    sleep(Duration::from_secs(6)).await;
    until_none_is_held(db.database(), Duration::from_secs(10)).await;
}

/// While a foreign transaction blocks one of the documents, the other locks are not kept from others, and the error says
/// what blocks the call.
#[tokio::test]
async fn a_blocked_document_does_not_keep_the_other_locks() {
    let db = test_db().await;
    let provider = LockProvider::builder(db.database())
        .expiry(LONG_EXPIRY)
        .build()
        .unwrap();
    make_documents(&provider).await;
    let foreign = db.connect_again().await.unwrap();
    let mut session = transaction_on(&foreign, &["b"]).await;
    let error = provider
        .lock_all(ALL)
        .acquire_timeout(Duration::from_secs(2))
        .acquire()
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("transaction") && text.contains("`b`"), "{text}");
    for name in ["a", "c"] {
        assert_free(&provider, name).await;
    }
    session.abort_transaction().await.unwrap();
    let guard = timeout(AMPLE, provider.lock_all(ALL).acquire())
        .await
        .unwrap()
        .unwrap();
    guard.release().await.unwrap();
    sleep(Duration::from_secs(6)).await;
    assert!(held_names(db.database()).await.is_empty());
}

/// The time is up while a round is under way: what is known is that the other lock was held.
#[tokio::test]
async fn a_set_whose_time_ends_in_a_round_names_the_lock_that_was_held() {
    let db = test_db().await;
    let (proxy, database) = through_proxy(&db).await;
    let provider = LockProvider::new(&database);
    warm_up(&provider).await;
    let held = LockProvider::new(db.database()).lock("b").await.unwrap();
    let (begun, limit) = (Instant::now(), Duration::from_secs(2));
    let set = provider.lock_all(["a", "b"]).acquire_timeout(limit);
    let waiting = tokio::spawn(async move { set.acquire().await });
    // The next round is without a reply for less time than a slow server needs.
    tokio::time::sleep_until(begun + limit - Duration::from_millis(250)).await;
    proxy.inject(Fault::swallow_request().command("update").times(10));
    held.release().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert!(
        matches!(&error, LockError::Timeout { name, .. } if name == "b"),
        "{error:?}"
    );
}

/// The query fails in a way that says for a single command that it was not run: the claims were made nevertheless.
#[tokio::test]
async fn claims_whose_query_was_refused_are_given_back() {
    let db = test_db().await;
    let builder = LockProvider::builder(db.database()).expiry(LONG_EXPIRY);
    let provider = builder.build().unwrap();
    make_documents(&provider).await;
    let refused = fail(&db, FailPoint::on(&["find"]).error_code(UNAUTHORIZED)).await;
    let error = timeout(AMPLE, provider.lock_all(ALL).acquire())
        .await
        .unwrap()
        .unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    drop(refused);
    until_none_is_held(db.database(), AMPLE / 2).await;
}

/// Each round has an id of its own: a copy of the first round's give-back that arrives late does not end the lease that the
/// second round has got.
#[tokio::test]
async fn a_late_give_back_does_not_end_the_next_rounds_lease() {
    let db = test_db().await;
    let (proxy, database) = through_proxy(&db).await;
    let provider = LockProvider::builder(&database)
        .expiry(LONG_EXPIRY)
        .renew_interval(Duration::from_millis(200))
        .acquire_timeout(AMPLE)
        .build()
        .unwrap();
    warm_up(&provider).await;
    let rival = LockProvider::new(db.database());
    let held = rival.lock("b").await.unwrap();
    // The first update is the claim of the first round, and the second one gives back what it has got.
    proxy.inject(Fault::delay_request(Duration::from_millis(1)).command("update"));
    let late = proxy.inject(Fault::late_request(Duration::from_millis(1500)).command("update"));
    let set = provider.lock_all(ALL);
    let waiting = tokio::spawn(async move { set.acquire().await });
    must(late.happened(AMPLE).await);
    let given_back = async || (held_names(db.database()).await == ["b"]).then_some(());
    must(eventually(AMPLE, "the first round is given back", given_back).await);
    held.release().await.unwrap();
    let guard = timeout(AMPLE, waiting).await.unwrap().unwrap().unwrap();
    sleep(Duration::from_secs(2)).await;
    assert!(!guard.is_lost());
    assert_stores_its_tokens(db.database(), &guard).await;
    guard.release().await.unwrap();
}

/// Waits that are cancelled at any moment, while other calls take the same locks, leave nothing held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_sets_leave_no_claim() {
    let db = test_db().await;
    let provider = LockProvider::builder(db.database())
        .expiry(LONG_EXPIRY)
        .build()
        .unwrap();
    until_indexed(&provider).await;
    let mut tasks = JoinSet::new();
    for index in 0..300_u64 {
        let names = [ALL[(index % 3) as usize], ALL[((index / 3) % 3) as usize]];
        let set = provider.lock_all(names);
        tasks.spawn(async move {
            let micros = index * 7919 % 15_000;
            drop(timeout(Duration::from_micros(micros), set.acquire()).await);
        });
        if index % 10 == 0 {
            sleep(Duration::from_millis(2)).await;
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let held = doc! { "lockId": { "$ne": "" } };
    let locks = locks(db.database());
    let none = async || (locks.count_documents(held.clone()).await.ok()? == 0).then_some(());
    must(eventually(Duration::from_secs(5), "no claim is left", none).await);
}

/// The locks of a killed process are free after its expiry, all of them.
#[tokio::test]
async fn a_killed_holders_locks_are_free_after_its_expiry() {
    let db = test_db().await;
    let expiry = Duration::from_millis(1500);
    let mut holder = Actor::start("lock_sets::hold", &db, expiry, &[]);
    holder.until("held").await;
    sleep(expiry * 2).await;
    holder.signal(Signal::KILL);
    let begun = Instant::now();
    let guard = patient(db.database()).lock_all(ALL).await.unwrap();
    assert!(
        begun.elapsed() <= expiry + Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    assert!(begun.elapsed() > expiry / 4, "the process had renewed its lease");
    guard.release().await.unwrap();
}

/// A part: holds the locks until the process is killed.
#[tokio::test]
async fn hold() {
    let Some(Part { database, expiry }) = Part::given().await else {
        return;
    };
    let set = LockProvider::new(&database).lock_all(ALL).expiry(expiry);
    let ended: Result<(), LockError> = set
        .run(async |context| {
            say(format_args!("held {}", context.fencing_token()));
            std::future::pending().await
        })
        .await;
    say(format_args!("ended {ended:?}"));
}

/// The processes that need the same locks, and the tasks and turns of each.
const PROCESSES: usize = 4;
const TASKS: i64 = 6;
const TURNS: i64 = 5;

/// The tokens of one turn, of the locks in their order.
type Tokens = [i64; 2];

/// The tokens that a process has printed with its turn.
fn tokens(printed: &str) -> Tokens {
    let mut tokens = printed.split(' ').map(|token| token.parse().unwrap());
    [tokens.next().unwrap(), tokens.next().unwrap()]
}

/// Whether the second turn has taken the claims of the first one over in its process: a new claim has tokens by the clock.
fn is_handed_over(before: Tokens, after: Tokens) -> bool {
    before.map(|token| token + 1) == after
}

/// Reads the turns of a process until it has handed its locks over: then it is in the middle of a row.
async fn until_in_a_row(process: &mut Actor) -> Vec<Tokens> {
    let mut turns = vec![tokens(&process.until("turn").await)];
    while !turns.windows(2).any(|pair| is_handed_over(pair[0], pair[1])) {
        turns.push(tokens(&process.until("turn").await));
    }
    turns
}

/// Processes that name two locks in opposite orders make progress, never hold them at the same time, and leave nothing
/// behind, although one of them is killed while it hands the locks over. The tokens of both locks rise from turn to turn.
#[tokio::test]
async fn processes_with_opposite_orders_do_not_deadlock() {
    let db = test_db().await;
    counter(db.database()).await;
    let expiry = Duration::from_secs(2);
    let mut processes: Vec<Actor> = (0..PROCESSES)
        .map(|_| Actor::start("lock_sets::contend", &db, expiry, &[]))
        .collect();
    let mut killed = Actor::start("lock_sets::contend", &db, expiry, &[]);
    let mut all = until_in_a_row(&mut killed).await;
    killed.signal(Signal::KILL);
    let mut handed_over = 0;
    for process in &mut processes {
        let mut turns = Vec::new();
        loop {
            let (word, rest) = process.next().await;
            match &*word {
                "turn" => turns.push(tokens(&rest)),
                "done" => break,
                // What has failed is counted as lost.
                _ => {}
            }
        }
        handed_over += turns
            .windows(2)
            .filter(|pair| is_handed_over(pair[0], pair[1]))
            .count();
        all.extend(turns);
    }
    assert!(handed_over > 0, "no process has handed its locks over");
    all.sort_unstable();
    let rise = |pair: &[Tokens]| pair[0][0] < pair[1][0] && pair[0][1] < pair[1][1];
    assert!(all.windows(2).all(rise), "{all:?}");
    let counted = counter(db.database()).await;
    let done = i64::try_from(PROCESSES).unwrap() * TASKS * TURNS;
    assert!(
        counted >= done && counted <= done + TASKS * TURNS,
        "{counted} of {done} turns"
    );
    let (written, lost) = (document_of(&db, "written").await, document_of(&db, "lost").await);
    assert_eq!(written, counted, "turns were overwritten");
    assert_eq!(lost, 0);
    until_none_is_held(db.database(), AMPLE).await;
}

/// The value of the counter, which is made if it is missing.
async fn counter(database: &Database) -> i64 {
    let counters = database.collection::<Document>("counters");
    let filter = doc! { "_id": "turns" };
    let found = counters.find_one(filter.clone()).await.unwrap();
    if found.is_none() {
        for name in ["turns", "lost"] {
            counters
                .insert_one(doc! { "_id": name, "value": 0_i64, "written": 0_i64 })
                .await
                .unwrap();
        }
    }
    found.map_or(0, |found| found.get_i64("value").unwrap())
}

/// How often the counter was written, or how many turns have failed.
async fn document_of(db: &TestDb, what: &str) -> i64 {
    let (id, field) = if what == "lost" {
        ("lost", "value")
    } else {
        ("turns", what)
    };
    let counters = db.database().collection::<Document>("counters");
    let found = counters.find_one(doc! { "_id": id }).await.unwrap().unwrap();
    found.get_i64(field).unwrap()
}

/// A part: tasks that name two locks in opposite orders. Under the locks each reads a counter and writes it back plus one,
/// which loses a turn if two of them do it at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contend() {
    let Some(Part { database, expiry }) = Part::given().await else {
        return;
    };
    let builder = LockProvider::builder(&database)
        .expiry(expiry)
        .acquire_timeout(AMPLE);
    let provider = builder.build().unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let set = provider.lock_all(if task % 2 == 0 { ["a", "b"] } else { ["b", "a"] });
        let counters = database.collection::<Document>("counters");
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let ended = set
                    .run(async |lock| {
                        let read = counters.find_one(doc! { "_id": "turns" }).await?;
                        let next = read.and_then(|read| read.get_i64("value").ok()).unwrap() + 1;
                        let write = doc! { "$set": { "value": next }, "$inc": { "written": 1_i64 } };
                        counters.update_one(doc! { "_id": "turns" }, write).await?;
                        let [a, b] = ["a", "b"].map(|name| lock.fencing_token_of(name).unwrap());
                        say(format_args!("turn {a} {b}"));
                        Ok::<_, LockError>(())
                    })
                    .await;
                if ended.is_err() {
                    say(format_args!("failed {ended:?}"));
                    let lost = doc! { "$inc": { "value": 1_i64 } };
                    counters.update_one(doc! { "_id": "lost" }, lost).await.unwrap();
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
