//! The order between processes: those that wait stand in a line, and operators see it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use mongolock::{FencingToken, LockError, LockGuard, LockProvider};
use mongolock_tests::{AMPLE, eventually, must};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::conformance;
use crate::fixture::Fixture;

conformance!(
    waiters_are_served_in_the_order_of_their_line,
    processes_that_ask_again_at_once_take_turns,
    a_process_without_push_gets_its_turns_beside_those_with_it,
    an_operator_sees_who_waits_in_order,
    who_is_not_fair_stands_in_no_line,
    a_waiter_that_gives_up_leaves_the_line,
    a_shutdown_leaves_the_line,
);

/// The length of a section.
const SECTION: Duration = Duration::from_millis(3);

/// The owners of the waiters for a lock, in their order.
async fn line(fixture: &Fixture, name: &str) -> Vec<String> {
    let info = fixture.provider.admin().get(name).await.unwrap();
    let waiters = info.map_or_else(Vec::new, |info| info.waiters);
    waiters.into_iter().map(|waiter| waiter.owner).collect()
}

async fn until_line_is(fixture: &Fixture, name: &str, owners: &[&str]) {
    let reached = || async { (line(fixture, name).await == owners).then_some(()) };
    must(eventually(AMPLE, "the line of these owners", reached).await);
}

/// Has these waiters release the lock as soon as they have it.
async fn until_served(waiters: impl IntoIterator<Item = JoinHandle<LockGuard>>) {
    let mut serving = JoinSet::new();
    for waiter in waiters {
        serving.spawn(async move { waiter.await.unwrap().release().await.unwrap() });
    }
    timeout(AMPLE, serving.join_all()).await.expect("all are served");
}

fn wait(provider: &LockProvider, name: &str) -> JoinHandle<LockGuard> {
    let lock = provider.lock(name).acquire_timeout(AMPLE);
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

/// The turns of processes that compete.
#[derive(Default)]
struct Competition {
    turns: Mutex<Vec<(FencingToken, usize)>>,
    is_over: AtomicBool,
}

impl Competition {
    /// Uses the lock again and again, and asks again at once.
    async fn take_part(self: Arc<Self>, provider: LockProvider, process: usize) {
        while !self.is_over.load(SeqCst) {
            let guard = provider.lock("shared").acquire().await.unwrap();
            let token = guard.fencing_token();
            self.turns.lock().unwrap().push((token, process));
            sleep(SECTION).await;
            guard.release().await.unwrap();
        }
    }

    /// The processes in the order of their turns.
    fn processes(&self) -> Vec<usize> {
        let mut turns = self.turns.lock().unwrap().clone();
        turns.sort_unstable();
        assert!(turns.is_sorted_by(|(earlier, _), (later, _)| earlier < later));
        turns.into_iter().map(|(_, process)| process).collect()
    }
}

/// Has these processes compete with one task each until each of them has had so many turns, and returns which of them had
/// each turn. What comes before the second turn of each is left out: a process that begins alone looks at the line once a
/// second only.
async fn turns(processes: &[LockProvider], each: usize) -> Vec<usize> {
    let (competition, mut working) = (Arc::new(Competition::default()), JoinSet::new());
    for (number, process) in processes.iter().enumerate() {
        working.spawn(Arc::clone(&competition).take_part(process.clone(), number));
    }
    let ends = |turns: &[usize], count: usize| {
        let nth = |process: usize| {
            let own = turns.iter().enumerate().filter(|(_, turn)| **turn == process);
            own.map(|(place, _)| place).nth(count - 1)
        };
        (0..processes.len())
            .map(nth)
            .max_by_key(|place| place.unwrap_or(usize::MAX))
            .flatten()
    };
    let all = || async { ends(&competition.processes(), each) };
    must(eventually(AMPLE, "turns of all processes", all).await);
    competition.is_over.store(true, SeqCst);
    working.join_all().await;
    let turns = competition.processes();
    let begin = ends(&turns, 2).unwrap();
    let end = ends(&turns, each).unwrap();
    turns[begin..end].to_vec()
}

/// The order is a hint, which a slow machine may break. By chance seven of ten rounds are in one of six orders once in five
/// thousand runs.
async fn waiters_are_served_in_the_order_of_their_line(fixture: Fixture) {
    let mut in_order = 0;
    for round in 0..10 {
        let name = format!("round {round}");
        let held = fixture.provider.lock(&name).await.unwrap();
        let mut waiting = Vec::new();
        for count in 1..=3 {
            let owners = &["first", "second", "third"][..count];
            waiting.push(wait(&fixture.process(owners[count - 1]), &name));
            until_line_is(&fixture, &name, owners).await;
        }
        held.release().await.unwrap();
        let mut served = JoinSet::new();
        for (place, waiter) in waiting.into_iter().enumerate() {
            served.spawn(async move {
                let guard = timeout(AMPLE, waiter).await.expect("it is served").unwrap();
                let token = guard.fencing_token();
                sleep(SECTION).await;
                guard.release().await.unwrap();
                (token, place)
            });
        }
        let mut served = served.join_all().await;
        served.sort_unstable();
        in_order += usize::from(served.into_iter().map(|(_, place)| place).eq(0..3));
    }
    assert!(in_order >= 7, "{in_order} of 10 rounds");
}

/// Without an order a process that asks again at once has many turns in a row.
async fn processes_that_ask_again_at_once_take_turns(fixture: Fixture) {
    let turns = turns(&["a", "b", "c"].map(|owner| fixture.process(owner)), 40).await;
    let all_differ = |three: &&[usize]| three[0] != three[1] && three[1] != three[2] && three[0] != three[2];
    let in_turn = turns.windows(3).filter(all_differ).count();
    assert!(in_turn * 3 > turns.len() * 2, "{in_turn} in turn of {turns:?}");
}

/// Without an order it starves: it finds the lock free once in some seconds.
async fn a_process_without_push_gets_its_turns_beside_those_with_it(fixture: Fixture) {
    let polling = fixture.provider.to_builder().wake_up(false).build().unwrap();
    let turns = turns(&[fixture.process("a"), fixture.process("b"), polling], 20).await;
    let own = turns.iter().filter(|process| **process == 2).count();
    assert!(own * 10 > turns.len(), "{own} of {turns:?}");
}

async fn an_operator_sees_who_waits_in_order(fixture: Fixture) {
    let begun = SystemTime::now();
    let held = fixture.process("holder").lock("seen").await.unwrap();
    assert_eq!(line(&fixture, "seen").await, Vec::<String>::new());
    let (first, second) = (fixture.process("first"), fixture.process("second"));
    let oldest = wait(&first, "seen");
    until_line_is(&fixture, "seen", &["first"]).await;
    let next = wait(&second, "seen");
    until_line_is(&fixture, "seen", &["first", "second"]).await;
    let between = SystemTime::now();
    // A later caller of a process that waits changes nothing.
    let later = wait(&first, "seen");
    sleep(Duration::from_millis(100)).await;
    let waiters = fixture
        .provider
        .admin()
        .get("seen")
        .await
        .unwrap()
        .unwrap()
        .waiters;
    let owners: Vec<&str> = waiters.iter().map(|waiter| &*waiter.owner).collect();
    assert_eq!(owners, ["first", "second"]);
    let since = waiters.iter().map(|waiter| waiter.since.to_system_time());
    let since: Vec<SystemTime> = since.collect();
    // The dates are whole milliseconds of the server's clock, which is the clock of this machine.
    let blur = Duration::from_millis(5);
    assert!(
        since[0] >= begun - blur && since[1] <= between + blur,
        "{since:?}"
    );
    assert!(since[0] <= since[1] + blur, "{since:?}");

    held.release().await.unwrap();
    let oldest = timeout(AMPLE, oldest).await.unwrap().unwrap();
    // The holder is no waiter, although a later caller of its process waits.
    until_line_is(&fixture, "seen", &["second"]).await;
    oldest.release().await.unwrap();
    until_served([next, later]).await;
    until_line_is(&fixture, "seen", &[]).await;
}

async fn who_is_not_fair_stands_in_no_line(fixture: Fixture) {
    let held = fixture.provider.lock("unfair").await.unwrap();
    let hasty = fixture.process("hasty").to_builder().fair(false).build().unwrap();
    let unfair = wait(&hasty, "unfair");
    let fair = wait(&fixture.process("fair"), "unfair");
    until_line_is(&fixture, "unfair", &["fair"]).await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(line(&fixture, "unfair").await, ["fair"]);
    held.release().await.unwrap();
    until_served([unfair, fair]).await;
}

async fn a_waiter_that_gives_up_leaves_the_line(fixture: Fixture) {
    let held = fixture.provider.lock("left").await.unwrap();
    let (patient, hasty) = (fixture.process("patient"), fixture.process("hasty"));
    let limited = hasty.lock("left").acquire_timeout(Duration::from_millis(400));
    let limited = tokio::spawn(async move { limited.acquire().await });
    until_line_is(&fixture, "left", &["hasty"]).await;
    let cancelled = wait(&fixture.process("cancelled"), "left");
    until_line_is(&fixture, "left", &["hasty", "cancelled"]).await;
    let waiting = wait(&patient, "left");
    let error = limited.await.unwrap().unwrap_err();
    assert!(matches!(error, LockError::Timeout { .. }), "{error}");
    cancelled.abort();
    until_line_is(&fixture, "left", &["patient"]).await;
    held.release().await.unwrap();
    until_served([waiting]).await;
}

async fn a_shutdown_leaves_the_line(fixture: Fixture) {
    let held = fixture.provider.lock("shut down").await.unwrap();
    let ending = fixture.process("ending");
    let lock = ending.lock("shut down");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_line_is(&fixture, "shut down", &["ending"]).await;
    ending.shutdown().await;
    assert_eq!(line(&fixture, "shut down").await, Vec::<String>::new());
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, LockError::ShutDown { .. }), "{error}");
    held.release().await.unwrap();
}
