//! Handing the locks of a set over, whole, to the next caller of the same process that wants the same set.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::select_all;
use mongolock::{FencingToken, LockContext, LockError, LockGuard, LockProvider, LockSet};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::conformance;
use crate::fixture::{Fixture, acquire_and_release, assert_released};
use crate::waiting::{acquired, waiter};

conformance!(
    sets_are_handed_over_in_the_order_of_arrival,
    callers_of_other_names_or_options_get_a_hold_of_their_own,
    single_locks_of_the_first_name_wait_behind_a_set,
    a_cancelled_waiter_for_a_set_keeps_no_claim,
    a_set_goes_on_to_the_next_waiter_when_one_is_cancelled,
    a_set_with_a_minimum_hold_is_not_handed_over,
    processes_that_want_the_same_set_all_get_it,
    a_set_that_is_not_awaited_is_released,
    a_shutdown_in_a_row_of_hand_overs_releases_all_names,
);

/// The same set, as two callers write it.
const ORDERS: [[&str; 2]; 2] = [["a", "b"], ["b", "a"]];

/// The tokens of one hold, for the names in their order.
type Tokens = [FencingToken; 2];

/// One hold: the caller, the name that stands for the set, and the tokens.
type Noted = Arc<Mutex<Vec<(usize, String, Tokens)>>>;

fn tokens(guard: &LockGuard) -> Tokens {
    ["a", "b"].map(|name| guard.fencing_token_of(name).expect("the name is one of the set"))
}

/// Whether the second hold has taken the claims of the first one over: then its tokens are the next ones. A new claim has
/// tokens by the server's clock, which are far apart.
fn is_handed_over(before: Tokens, after: Tokens) -> bool {
    before.map(|token| token.get() + 1) == after.map(FencingToken::get)
}

/// Asserts that the tokens of both names rise from hold to hold, and returns how many holds were handed over.
fn hand_overs(holds: &[Tokens]) -> usize {
    let pairs = holds.windows(2).inspect(|pair| {
        assert!(pair[0][0] < pair[1][0] && pair[0][1] < pair[1][1], "{pair:?}");
    });
    pairs.filter(|pair| is_handed_over(pair[0], pair[1])).count()
}

/// Asserts that both names are released in the end.
async fn assert_both_released(fixture: &Fixture) {
    for name in ["a", "b"] {
        assert_released(&fixture.rival().lock(name)).await;
    }
}

/// Has callers wait for the same set, every other one with the names in the other order, and returns what they have noted.
async fn queue_up(provider: &LockProvider, callers: usize) -> Vec<(usize, String, Tokens)> {
    let (noted, mut tasks) = (Noted::default(), JoinSet::new());
    let first = provider.lock_all(ORDERS[0]).await.unwrap();
    for index in 0..callers {
        let (set, noted) = (provider.lock_all(ORDERS[index % 2]), Arc::clone(&noted));
        tasks.spawn(async move {
            let guard = set.acquire().await.unwrap();
            let hold = (index, guard.context().name().to_owned(), tokens(&guard));
            noted.lock().unwrap().push(hold);
            if index % 4 < 2 {
                guard.release().await.unwrap();
            }
        });
        tokio::task::yield_now().await;
    }
    first.release().await.unwrap();
    let all = timeout(BEFORE_EXPIRY, tasks.join_all()).await;
    all.expect("all callers get the set");
    std::mem::take(&mut *noted.lock().unwrap())
}

async fn sets_are_handed_over_in_the_order_of_arrival(fixture: Fixture) {
    let noted = queue_up(&fixture.provider, 40).await;
    let order: Vec<usize> = noted.iter().map(|(index, ..)| *index).collect();
    assert_eq!(order, (0..40).collect::<Vec<_>>());
    let written_first = |index: usize| ORDERS[index % 2][0];
    assert!(noted.iter().all(|(index, name, _)| name == written_first(*index)));
    let holds: Vec<Tokens> = noted.into_iter().map(|(.., tokens)| tokens).collect();
    hand_overs(&holds);
    for (name, last) in ["a", "b"].into_iter().zip(holds[39]) {
        let next = fixture.rival().lock(name).await.unwrap();
        assert!(next.fencing_token() > last, "greater than all reserved tokens");
        next.release().await.unwrap();
    }
}

/// A long queue for a set costs a few commands, not three for each hold.
#[tokio::test]
async fn a_hand_over_of_a_set_costs_no_command() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    assert_eq!(queue_up(&provider, 200).await.len(), 200);
    let sent = commands.count("update") + commands.count("find") + commands.count("findAndModify");
    assert!(sent <= 90, "{sent} commands for 201 holds");
}

/// A caller of another set, with the same first name or not, or with another lease, gets a hold of its own.
async fn callers_of_other_names_or_options_get_a_hold_of_their_own(fixture: Fixture) {
    let provider = &fixture.provider;
    let long = Duration::from_secs(60);
    for _ in 0..5 {
        // The request of the first caller reserves tokens, because others wait when it is sent.
        let blocker = fixture.rival().lock_all(ORDERS[0]).await.unwrap();
        let (holding, mut waiting) = (queue_one(provider.lock_all(ORDERS[0])).await, JoinSet::new());
        let others: [(LockSet, &[&str]); 4] = [
            (provider.lock_all(["c", "a", "b"]), &["a", "b", "c"]),
            (provider.lock_all(["a", "c"]), &["a", "c"]),
            (provider.lock_all(ORDERS[1]).expiry(long), &["a", "b"]),
            (provider.lock_all(["b", "c"]), &["b", "c"]),
        ];
        for (set, names) in others {
            waiting.spawn(async move {
                let guard = set.acquire().await.unwrap();
                assert!(guard.names().eq(names.iter().copied()));
                assert!(!guard.is_lost());
                let remaining = guard.remaining();
                guard.release().await.unwrap();
                remaining
            });
            tokio::task::yield_now().await;
        }
        blocker.release().await.unwrap();
        acquired(holding, AMPLE).await.release().await.unwrap();
        let remaining = timeout(AMPLE, waiting.join_all()).await;
        let remaining = remaining.expect("all get their sets");
        let long_leases = remaining.iter().filter(|remaining| **remaining > long / 2);
        assert_eq!(long_leases.count(), 1, "{remaining:?}");
    }
}

/// Starts a task that acquires the set, and has it begin to wait. The test has the limits: a busy machine may stop for longer
/// than a call usually waits.
async fn queue_one(set: LockSet) -> JoinHandle<LockGuard> {
    let waiting = waiter(set.acquire_timeout(AMPLE));
    tokio::task::yield_now().await;
    waiting
}

async fn single_locks_of_the_first_name_wait_behind_a_set(fixture: Fixture) {
    for _ in 0..10 {
        let first = fixture.provider.lock_all(ORDERS[0]).await.unwrap();
        let mut waiting = JoinSet::new();
        for number in 0..6 {
            let provider = fixture.provider.clone();
            waiting.spawn(async move {
                let guard = match number % 3 {
                    0 => provider.lock("a").await,
                    1 => provider.lock("b").await,
                    _ => provider.lock_all(ORDERS[0]).await,
                };
                guard.unwrap().release().await.unwrap();
            });
            tokio::task::yield_now().await;
        }
        first.release().await.unwrap();
        let all = timeout(AMPLE, waiting.join_all()).await;
        all.expect("all have their turn");
    }
    assert_both_released(&fixture).await;
}

/// The waiter is cancelled before, while or after the set is handed over to it.
async fn a_cancelled_waiter_for_a_set_keeps_no_claim(fixture: Fixture) {
    for micros in (0..2000).step_by(50) {
        // The request of the first caller reserves tokens, because others wait when it is sent.
        let blocker = fixture.rival().lock_all(ORDERS[0]).await.unwrap();
        let first = queue_one(fixture.provider.lock_all(ORDERS[0])).await;
        let leaving = fixture.provider.lock_all(ORDERS[1]);
        let (leave, left) = tokio::sync::oneshot::channel::<()>();
        let waiter = tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = left => {}
                guard = leaving.acquire() => drop(guard.unwrap()),
            }
        });
        tokio::task::yield_now().await;
        blocker.release().await.unwrap();
        let first = acquired(first, AMPLE).await;
        let cancelling = tokio::spawn(async move {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(micros) {
                tokio::task::yield_now().await;
            }
            let _ = leave.send(());
        });
        first.release().await.unwrap();
        cancelling.await.unwrap();
        waiter.await.unwrap();
    }
    assert_both_released(&fixture).await;
}

/// On a busy machine most releases come too late for a hand-over, so the rounds go on until there was one.
async fn a_set_goes_on_to_the_next_waiter_when_one_is_cancelled(fixture: Fixture) {
    let (begun, mut rounds, mut went_on) = (Instant::now(), 0, 0);
    while rounds < 20 || went_on == 0 {
        assert!(begun.elapsed() < AMPLE, "the set was released each time");
        rounds += 1;
        let blocker = fixture.rival().lock_all(ORDERS[0]).await.unwrap();
        let mut waiters = Vec::new();
        for _ in 0..3 {
            waiters.push(queue_one(fixture.provider.lock_all(ORDERS[0])).await);
        }
        blocker.release().await.unwrap();
        // Another caller may come first: one that gets only some of the names gives them back.
        let first = timeout(AMPLE, select_all(waiters)).await;
        let (first, _, waiting) = first.expect("one of them has the set");
        let (first, [second, third]) = (first.unwrap(), <[_; 2]>::try_from(waiting).unwrap());
        let before = tokens(&first);
        // The set is handed over by the poll of this future, before the waiter runs.
        let releasing = first.release();
        let released = tokio::spawn(releasing);
        second.abort();
        released.await.unwrap().unwrap();
        let third = acquired(third, BEFORE_EXPIRY).await;
        let after = tokens(&third);
        assert!(before[0] < after[0] && before[1] < after[1]);
        went_on += u32::from(is_handed_over(before, after));
        third.release().await.unwrap();
        if let Ok(second) = second.await {
            drop(second);
        }
    }
    assert_both_released(&fixture).await;
}

async fn a_set_with_a_minimum_hold_is_not_handed_over(fixture: Fixture) {
    let provider = fixture.with(|builder| builder.min_hold(Duration::from_millis(100)));
    let begun = Instant::now();
    let noted = queue_up(&provider, 4).await;
    let holds: Vec<Tokens> = noted.into_iter().map(|(.., tokens)| tokens).collect();
    assert_eq!(hand_overs(&holds), 0);
    assert!(begun.elapsed() >= Duration::from_millis(400));
}

/// What the holders of a competition have seen.
#[derive(Default)]
struct Seen {
    /// Whether a hold of each name is under way.
    is_held: [AtomicBool; 2],
    /// The process and the tokens of each hold, in their order.
    holds: Mutex<Vec<(usize, Tokens)>>,
}

impl Seen {
    async fn section(&self, process: usize, guard: &LockGuard) {
        for is_held in &self.is_held {
            assert!(!is_held.swap(true, SeqCst), "two holders at the same time");
        }
        self.holds.lock().unwrap().push((process, tokens(guard)));
        sleep(Duration::from_millis(2)).await;
        for is_held in &self.is_held {
            is_held.store(false, SeqCst);
        }
    }
}

const PROCESSES: usize = 4;

/// Four tasks of each of four processes ask for the set again and again: nobody is left out, and rows are handed over.
async fn processes_that_want_the_same_set_all_get_it(fixture: Fixture) {
    let (seen, mut working) = (Arc::<Seen>::default(), JoinSet::new());
    for process in 0..PROCESSES {
        let provider = fixture.process(&format!("p{process}"));
        for task in 0..4 {
            let (seen, set) = (Arc::clone(&seen), provider.lock_all(ORDERS[task % 2]));
            working.spawn(async move {
                for _ in 0..6 {
                    let guard = set.acquire().await.unwrap();
                    seen.section(process, &guard).await;
                    guard.release().await.unwrap();
                }
            });
        }
    }
    let all = timeout(AMPLE * 2, working.join_all()).await;
    all.expect("all get their turns");
    let noted = std::mem::take(&mut *seen.holds.lock().unwrap());
    let holds: Vec<Tokens> = noted.iter().map(|(_, tokens)| *tokens).collect();
    hand_overs(&holds);
    for process in 0..PROCESSES {
        let rows = noted.windows(2).filter(|pair| {
            pair[0].0 == process && pair[1].0 == process && is_handed_over(pair[0].1, pair[1].1)
        });
        assert!(rows.count() > 0, "{process} has handed no set over");
    }
    assert_both_released(&fixture).await;
}

/// Calls in a row that do not wait for their releases: the next caller gets the set, also one of another set.
async fn a_set_that_is_not_awaited_is_released(fixture: Fixture) {
    let set = fixture.provider.lock_all(ORDERS[0]).await_release(false);
    let mut holds: Vec<Tokens> = Vec::new();
    for round in 0..50 {
        let tokens = |lock: LockContext| ["a", "b"].map(|name| lock.fencing_token_of(name).unwrap());
        let ran = set.run(async |lock| Ok::<_, LockError>(tokens(lock)));
        holds.push(ran.await.unwrap());
        if round % 10 == 9 {
            let other = waiter(fixture.provider.lock_all(["a", "c"]));
            let other = acquired(other, BEFORE_EXPIRY).await;
            assert!(other.fencing_token_of("a").unwrap() > holds[round][0]);
            other.release().await.unwrap();
            acquire_and_release(&fixture.provider.lock("b")).await;
        }
    }
    hand_overs(&holds);
    assert_both_released(&fixture).await;
}

async fn a_shutdown_in_a_row_of_hand_overs_releases_all_names(fixture: Fixture) {
    let provider = fixture.process("stopped");
    let mut working = JoinSet::new();
    for task in 0..4 {
        let set = provider.lock_all(ORDERS[task % 2]);
        working.spawn(async move {
            loop {
                match set.acquire().await {
                    Ok(guard) => {
                        tokio::task::yield_now().await;
                        drop(guard.release().await);
                    }
                    Err(LockError::ShutDown { .. }) => return,
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    sleep(Duration::from_millis(100)).await;
    let ended = timeout(AMPLE, provider.shutdown()).await;
    ended.expect("the shutdown ends");
    timeout(AMPLE, working.join_all()).await.expect("all calls end");
    assert!(fixture.is_free("a").await && fixture.is_free("b").await);
}
