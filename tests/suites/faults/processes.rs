//! Real processes that are killed or stopped, and whose clocks are wrong. One checker judges what they did.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use mongolock_tests::{AMPLE, Actor, FailPoint, History, Hold, must, test_db, until, wrong_clock};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use crate::act::{Act, TASKS_OF_PERMIT};
use crate::actor::{NAME, TASKS, TURNS, start, wrong};
use crate::{claims, document, fail, patient, until_none_is_held};

/// A lease that ends in the test.
const EXPIRY: Duration = Duration::from_secs(3);

/// What is held, the number of its claims, and by how many seconds the clocks of its holders are wrong.
const SCENES: [(Act, u64, [i64; 3]); 3] = [
    (Act::Lock, 1, [-3600, 0, 3600]),
    (Act::Set, 3, [3600, -3600, 0]),
    (Act::Permit(1), 1, [0, 3600, -3600]),
];

/// B8, S0.13, S0.14, S1.26, S3.3, S4.9: one of three processes works at a time, by the server's clock alone. What it holds is
/// free after its expiry if it is stopped or killed, without the TTL index and without an operator, for those that wait
/// already.
#[tokio::test]
async fn what_a_stopped_or_killed_holder_held_is_free_after_its_expiry() {
    join_all(SCENES.map(|(act, count, clocks)| hold_in_turn(act, count, clocks))).await;
}

async fn hold_in_turn(act: Act, count: u64, clocks: [i64; 3]) {
    let db = test_db().await;
    let directory = tempfile::tempdir().unwrap();
    let shim = wrong_clock(directory.path()).await;
    let mut waiting = Vec::new();
    for shift in clocks {
        let mut process = start("actor::hold", act, &db, EXPIRY, &wrong(&shim, shift));
        let clock: i64 = process.until("clock").await.parse().unwrap();
        let here = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let off = clock - here.cast_signed();
        let shifted = (off - shift).abs() < 60;
        assert!(shifted, "the clock of the process is {off} s off");
        waiting.push(process);
    }
    let (mut stopped, first) = next_to_hold(&mut waiting).await;
    let renewed = timeout(EXPIRY * 2, waiting[0].next()).await;
    // Only one works at a time, as long as it renews its lease.
    assert!(renewed.is_err(), "{renewed:?}");
    stopped.signal(Signal::STOP);
    let (killed, second) = in_time(&mut waiting).await;
    killed.signal(Signal::KILL);
    let (mut last, third) = in_time(&mut waiting).await;
    assert!(matches!(act, Act::Permit(_)) || first < second && second < third);

    // The lines that the stopped process printed before.
    while let Ok((word, _)) = timeout(Duration::from_millis(100), stopped.next()).await {
        assert_eq!(word, "step");
    }
    stopped.signal(Signal::CONT);
    let said = stopped.next().await;
    let loss = ("lost".to_owned(), first.to_string());
    assert_eq!(said, loss, "the body runs no further step");
    sleep(Duration::from_millis(300)).await;
    last.until("step").await;
    let claims = claims(db.database()).await;
    assert_eq!(claims, count, "its late commands change nothing");
    if let Act::Lock = act {
        let document = document(db.database(), NAME).await;
        assert_eq!(document.get_i64("fencingToken"), Ok(third));
    }
    let mut history = History::default();
    for process in [stopped, killed, last] {
        process.tell(&mut history).await;
    }
    let verdict = history.judge();
    verdict.assert_sound();
    // No lock can end a section while its process is stopped: here until two others have begun.
    let counted = (verdict.holds, verdict.lost, verdict.late_sections.len());
    assert_eq!(counted, (3, 1, 2));
}

/// The process that holds next, with its token.
async fn next_to_hold(waiting: &mut Vec<Actor>) -> (Actor, i64) {
    let begun = Instant::now();
    while begun.elapsed() < AMPLE {
        for index in 0..waiting.len() {
            if let Ok((word, token)) = timeout(Duration::from_millis(20), waiting[index].next()).await {
                assert_eq!(word, "held");
                return (waiting.swap_remove(index), token.parse().unwrap());
            }
        }
    }
    panic!("no process takes over");
}

async fn in_time(waiting: &mut Vec<Actor>) -> (Actor, i64) {
    let begun = Instant::now();
    let next = next_to_hold(waiting).await;
    // A waiter that did not know the end of the lease would look again up to 30 s later.
    let took = begun.elapsed();
    assert!(took <= EXPIRY + Duration::from_secs(3), "{took:?}");
    next
}

/// Processes with several callers each, of which one is killed and one is stopped for longer than its leases, while change
/// streams break: no two callers ever hold the same lock, set or permit, all others have their turns, and nothing is left. The
/// sets are named in either order.
#[tokio::test]
async fn nothing_is_held_twice_while_processes_are_killed_and_stopped() {
    join_all([Act::Lock, Act::Set, Act::Permit(3)].map(take_turns_in_trouble)).await;
}

async fn take_turns_in_trouble(act: Act) {
    let db = test_db().await;
    // 280: the stream cannot be resumed. It is set before the processes start, because it waits for the faults of other tests.
    let broken = FailPoint::on(&["getMore", "aggregate"]).part(0.5).error_code(280);
    let broken = fail(&db, broken).await;
    let process = |turns: usize| {
        let environment = [(TASKS, "4".to_owned()), (TURNS, turns.to_string())];
        start("actor::take_turns", act, &db, EXPIRY, &environment)
    };
    let (mut stopped, mut killed) = (process(300), process(300));
    for process in [&mut stopped, &mut killed] {
        process.until("turn").await;
    }
    // The others still take turns, so that this one waits and opens a stream.
    let mut steady = process(10);
    steady.until("turn").await;
    must(broken.until_hit().await);
    stopped.signal(Signal::STOP);
    killed.signal(Signal::KILL);
    steady.until("done").await;
    must(broken.clear().await);
    // By now the leases of the stopped process have expired, and others had what it held.
    sleep(EXPIRY * 2).await;
    stopped.signal(Signal::CONT);
    stopped.until("done").await;
    let mut history = History::default();
    for process in [steady, stopped, killed] {
        process.tell(&mut history).await;
    }
    let number = |hold: &Hold| hold.task / TASKS_OF_PERMIT;
    let numbers: BTreeSet<usize> = history.holds().iter().map(number).collect();
    let is_permit = matches!(act, Act::Permit(_));
    let expected = if is_permit { vec![1, 2, 3] } else { vec![0] };
    assert!(numbers.iter().eq(&expected), "{numbers:?}");
    for number in numbers {
        let of_one = history.of_tasks(|task| task / TASKS_OF_PERMIT == number);
        of_one.judge().assert_sound();
    }
    if let Act::Permit(permits) = act {
        let semaphore = patient(db.database()).semaphore(NAME, permits);
        until("all permits are free", async || {
            semaphore.available().await.unwrap() == permits
        })
        .await;
    } else {
        // What the killed process held has not been taken over if nobody wanted it any more.
        let held = act.acquire(&patient(db.database()), NAME).await.unwrap();
        held.release().await.unwrap();
        until_none_is_held(db.database(), AMPLE).await;
    }
}
