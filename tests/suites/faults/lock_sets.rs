//! Several locks at once: lost and late messages, blocked documents, killed processes, and many processes that need the
//! same locks.

use std::ops::Range;
use std::time::Duration;

use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, Actor, FailPoint, Fault, History, Purpose, eventually, must, test_db};
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::act::Act;
use crate::{
    DEFAULT_EXPIRY, LONG_EXPIRY, Proxied, actor, assert_free, claims, fail, foreign_transaction, is_released,
    until_indexed, until_none_is_held, with_expiry,
};

const ALL: [&str; 3] = ["a", "b", "c"];

/// The server's code for a command that the user may not run.
const UNAUTHORIZED: i32 = 13;

/// Makes the documents, so that a foreign transaction can change them.
async fn make_documents(provider: &LockProvider) {
    until_indexed(provider).await;
    for name in ALL {
        assert_free(provider, name).await;
    }
}

/// What hangs in the server behind a foreign transaction is granted late, to nobody, and given back again: the locks that
/// are not blocked at once, the blocked one when the server has ended the request.
#[tokio::test]
async fn a_claim_that_hung_behind_a_transaction_is_given_back_twice() {
    let db = test_db().await;
    let provider = with_expiry(db.database(), LONG_EXPIRY);
    make_documents(&provider).await;
    let mut session = foreign_transaction(&db, &["b"]).await;
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
    let provider = with_expiry(db.database(), LONG_EXPIRY);
    make_documents(&provider).await;
    let mut session = foreign_transaction(&db, &["b"]).await;
    let set = provider.lock_all(ALL).acquire_timeout(Duration::from_secs(2));
    let error = set.await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("transaction") && text.contains("`b`"), "{text}");
    for name in ["a", "c"] {
        assert_free(&provider, name).await;
    }
    session.abort_transaction().await.unwrap();
    let guard = timeout(AMPLE, provider.lock_all(ALL).acquire()).await.unwrap();
    guard.unwrap().release().await.unwrap();
    sleep(Duration::from_secs(6)).await;
    assert_eq!(claims(db.database()).await, 0);
}

/// The time is up while a claim for the next lock is under way: what is known is that the other lock was held.
#[tokio::test]
async fn a_set_whose_time_ends_during_a_claim_names_the_lock_that_was_held() {
    let it = Proxied::start(DEFAULT_EXPIRY).await;
    let held = it.rival().lock("b").await.unwrap();
    let (begun, limit) = (Instant::now(), Duration::from_secs(2));
    let set = it.provider.lock_all(["a", "b"]).acquire_timeout(limit);
    let waiting = tokio::spawn(async move { set.acquire().await });
    // The next claim is without a reply for less time than a slow server needs.
    tokio::time::sleep_until(begun + limit - Duration::from_millis(250)).await;
    let silence = Fault::swallow_request().command(Purpose::Acquire);
    it.proxy.inject(silence.times(10));
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
    let provider = with_expiry(db.database(), LONG_EXPIRY);
    make_documents(&provider).await;
    let refused = fail(&db, FailPoint::on(&["find"]).error_code(UNAUTHORIZED)).await;
    let guard = timeout(AMPLE / 2, provider.lock_all(ALL).acquire())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(must(refused.hits().await), 1);
    guard.release().await.unwrap();
    until_none_is_held(db.database(), AMPLE / 2).await;
}

/// Waits that are cancelled at any moment, while other calls take the same locks, leave nothing held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_sets_leave_no_claim() {
    let db = test_db().await;
    let provider = with_expiry(db.database(), LONG_EXPIRY);
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
    tasks.join_all().await;
    until_none_is_held(db.database(), Duration::from_secs(5)).await;
}

/// The processes that need the same locks, and the tasks and turns of each.
const PROCESSES: usize = 4;
const TASKS: usize = 6;
const TURNS: usize = 5;

/// The tokens of the locks in one turn.
type Tokens = Vec<i64>;

/// The tokens that a process has printed with its next turn; `None` when it has had all.
async fn next_turn(process: &mut Actor) -> Option<Tokens> {
    let (word, tokens) = process.next().await;
    let tokens = tokens.split(' ').map(|token| token.parse().unwrap());
    (word == "turn").then(|| tokens.collect())
}

/// Whether both tokens of each lock rise by this, or by more.
fn rise(turns: &[Tokens], by: Range<i64>) -> bool {
    turns[0]
        .iter()
        .zip(&turns[1])
        .all(|(before, after)| by.contains(&(after - before)))
}

/// The number of turns of a process that took the claims of the one before over: a new claim has tokens by the clock.
fn handed_over(turns: &mut [Tokens]) -> usize {
    turns.sort_unstable();
    turns.windows(2).filter(|turns| rise(turns, 1..2)).count()
}

/// Processes that name the same locks in opposite orders make progress, never hold them at the same time, and leave nothing
/// behind, although one of them is killed while it hands the locks over. The tokens of all locks rise from turn to turn.
#[tokio::test]
async fn processes_with_opposite_orders_do_not_deadlock() {
    let db = test_db().await;
    let environment = [
        (actor::TASKS, TASKS.to_string()),
        (actor::TURNS, TURNS.to_string()),
    ];
    let process = || actor::turns(Act::Set, &db, Duration::from_secs(2), &environment);
    let (mut processes, mut killed) = ([(); PROCESSES].map(|()| process()), process());
    let mut all = Vec::new();
    while handed_over(&mut all) == 0 {
        all.extend(next_turn(&mut killed).await);
    }
    killed.signal(Signal::KILL);
    let (mut rows, mut history) = (0, History::default());
    killed.tell(&mut history).await;
    for process in &mut processes {
        let mut turns = Vec::new();
        while let Some(turn) = next_turn(process).await {
            turns.push(turn);
        }
        assert_eq!(turns.len(), TASKS * TURNS);
        rows += handed_over(&mut turns);
        all.extend(turns);
        process.tell_so_far(&mut history);
    }
    assert!(rows > 0, "no process has handed its locks over");
    all.sort_unstable();
    assert!(all.windows(2).all(|turns| rise(turns, 1..i64::MAX)), "{all:?}");
    let verdict = history.judge();
    verdict.assert_sound();
    assert_eq!((verdict.lost.len(), verdict.failed), (0, (0, 0)));
    until_none_is_held(db.database(), AMPLE).await;
}
