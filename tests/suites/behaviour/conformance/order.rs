//! The order between processes: those that wait stand in a line, and operators see it.

use std::time::{Duration, SystemTime};

use mongolock::{LockError, LockGuard, LockProvider};
use mongolock_tests::{AMPLE, eventually, must};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::conformance;
use crate::competition::{Competition, SECTION, compete};
use crate::fixture::{Fixture, in_time};

conformance!(
    waiters_are_served_in_the_order_of_their_line,
    processes_that_ask_again_at_once_take_turns,
    a_process_without_push_gets_its_turns_beside_those_with_it,
    an_operator_sees_the_waiters_in_order,
    the_holder_is_not_among_the_waiters,
    a_releaser_that_asks_again_at_once_and_waits_long_is_seen,
    a_waiter_that_gives_up_leaves_the_line,
    a_shutdown_leaves_the_line,
);

/// The owners of the waiters for a lock, in their order.
async fn line(fixture: &Fixture, name: &str) -> Vec<String> {
    let waiters = fixture.info(name).await.waiters;
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
    in_time(serving.join_all()).await;
}

fn wait(provider: &LockProvider, name: &str) -> JoinHandle<LockGuard> {
    let lock = provider.lock(name).acquire_timeout(AMPLE);
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

/// The order is a hint, which a slow machine may break. By chance most of the rounds are in one of six orders once in
/// a thousand runs.
async fn waiters_are_served_in_the_order_of_their_line(fixture: Fixture) {
    const ROUNDS: usize = 12;
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

/// Without an order a process that asks again at once has many turns in a row.
async fn processes_that_ask_again_at_once_take_turns(fixture: Fixture) {
    let competition = Competition::begin(&["a", "b", "c"].map(|owner| fixture.process(owner)));
    competition.until_in_rotation().await;
    competition.end().await;
}

/// Without an order it starves: it finds the lock free once in some seconds.
async fn a_process_without_push_gets_its_turns_beside_those_with_it(fixture: Fixture) {
    let polling = fixture.with(|options| options.wake_up(false));
    let turns = compete(&[fixture.process("a"), fixture.process("b"), polling], 20).await;
    let own = turns.iter().filter(|process| **process == 2).count();
    assert!(own * 10 > turns.len(), "{own} of {turns:?}");
}

async fn an_operator_sees_the_waiters_in_order(fixture: Fixture) {
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
    let seen = fixture.provider.admin().get("seen").await.unwrap().unwrap();
    let owners: Vec<&str> = seen.waiters.iter().map(|waiter| &*waiter.owner).collect();
    assert_eq!(owners, ["first", "second"]);
    let since = seen.waiters.iter().map(|waiter| waiter.since.to_system_time());
    let since: Vec<SystemTime> = since.collect();
    // The dates are whole milliseconds of the server's clock, which is the clock of this machine.
    let blur = Duration::from_millis(5);
    assert!(
        since[0] >= begun - blur && since[1] <= between + blur,
        "{since:?}"
    );
    assert!(since[0] <= since[1] + blur, "{since:?}");
    held.release().await.unwrap();
    until_served([oldest, next, later]).await;
    until_line_is(&fixture, "seen", &[]).await;
}

/// Its document stays in the line, and one of its callers waits as well.
async fn the_holder_is_not_among_the_waiters(fixture: Fixture) {
    let held = fixture.provider.lock("seen").await.unwrap();
    let holder = fixture.process("holder");
    let holding = wait(&holder, "seen");
    until_line_is(&fixture, "seen", &["holder"]).await;
    held.release().await.unwrap();
    let held = in_time(holding).await.unwrap();
    let later = wait(&holder, "seen");
    let other = wait(&fixture.process("other"), "seen");
    until_line_is(&fixture, "seen", &["other"]).await;
    held.release().await.unwrap();
    until_served([later, other]).await;
    until_line_is(&fixture, "seen", &[]).await;
}

/// It stands in line already when its wait begins.
async fn a_releaser_that_asks_again_at_once_and_waits_long_is_seen(fixture: Fixture) {
    let held = fixture.process("first").lock("again").await.unwrap();
    let (eager, other) = (fixture.process("eager"), fixture.process("other"));
    let mut eager_waits = wait(&eager, "again");
    until_line_is(&fixture, "again", &["eager"]).await;
    held.release().await.unwrap();
    let held = in_time(&mut eager_waits).await.unwrap();
    let mut other_waits = wait(&other, "again");
    until_line_is(&fixture, "again", &["other"]).await;
    held.release().await.unwrap();
    // The order is a hint, so it may be the first again.
    let held = loop {
        eager_waits = wait(&eager, "again");
        tokio::select! {
            held = &mut eager_waits => held.unwrap().release().await.unwrap(),
            held = &mut other_waits => break held.unwrap(),
        }
    };
    until_line_is(&fixture, "again", &["eager"]).await;
    held.release().await.unwrap();
    until_served([eager_waits]).await;
}

async fn a_waiter_that_gives_up_leaves_the_line(fixture: Fixture) {
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
