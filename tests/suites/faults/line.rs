//! Processes that wait and are killed or stopped, and change streams that break, lag or lose events.

use std::time::Duration;

use futures_util::future::join_all;
use mongolock::LockGuard;
use mongolock_tests::{
    AMPLE, Actor, BEFORE_EXPIRY, Fault, History, Proxy, TestDb, eventually, must, test_db, until,
};
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::act::Act;
use crate::actor::{NAME, command, start};
use crate::cancellation::take_turns;
use crate::{acquire_soon, patient, through_proxy};

/// The number of turns in which the tests look at the time between a release and the next acquisition.
const TURNS: usize = 20;

/// The time in which a living waiter acquires a lock that others before it do not take: the rule is 50 ms after it has
/// heard of it, and 1 s if it has not. The rest is for a slow machine; a lease would last a minute.
const TAKEN: Duration = Duration::from_secs(4);

/// A process that waits for its first turn. It is behind a proxy of its own, which has seen its change stream.
async fn waiting_process(db: &TestDb) -> (Actor, Proxy) {
    let proxy = must(db.proxy().await);
    let command = command("actor::take_turns", &proxy.uri(), db.name(), AMPLE);
    let process = Actor::start(command);
    until_listening(&proxy, [0, 0]).await;
    (process, proxy)
}

/// The commands of change streams that this proxy has seen.
fn of_streams(proxy: &Proxy) -> [u64; 2] {
    ["aggregate", "getMore"].map(|command| proxy.seen(command))
}

/// Waits until a process behind this proxy has opened a change stream after these commands: a call of it has found the lock held.
async fn until_listening(proxy: &Proxy, before: [u64; 2]) {
    let is_open = || async {
        let now = of_streams(proxy);
        (now[0] > before[0] && now[1] > before[1]).then_some(())
    };
    must(eventually(AMPLE, "a change stream", is_open).await);
}

async fn token_of_next_turn(process: &mut Actor) -> i64 {
    let (word, rest) = process.next().await;
    assert_eq!(word, "turn", "{rest}");
    rest.parse().unwrap()
}

/// Reads so many turns of each process after one with this token, and returns the numbers of the processes in the order of all
/// these turns. The token is then that of the last one: a process that was alone for a while has turns before it.
async fn turns(processes: &mut [Actor], each: usize, after: &mut i64) -> Vec<usize> {
    let mut turns = Vec::new();
    for (number, process) in processes.iter_mut().enumerate() {
        let mut left = each;
        while left > 0 {
            let token = token_of_next_turn(process).await;
            if token > *after {
                turns.push((token, number));
                left -= 1;
            }
        }
    }
    turns.sort_unstable();
    *after = turns.last().expect("there are turns").0;
    turns.into_iter().map(|(_, process)| process).collect()
}

/// Three real processes take turns: among three turns in a row there is one of each.
#[tokio::test]
async fn processes_take_turns_in_rotation() {
    let db = test_db().await;
    let mut processes: Vec<Actor> = (0..3)
        .map(|_| start("actor::take_turns", Act::Lock, &db, AMPLE, &[]))
        .collect();
    let mut after = 0;
    for process in &mut processes {
        after = after.max(token_of_next_turn(process).await);
    }
    // The order is a hint, which a slow machine breaks for a while; without it there is no such time.
    let begun = Instant::now();
    loop {
        let turns = turns(&mut processes, 15, &mut after).await;
        let all_differ =
            |three: &&[usize]| three[0] != three[1] && three[1] != three[2] && three[0] != three[2];
        let in_turn = turns.windows(3).filter(all_differ).count();
        if in_turn * 2 > turns.len() {
            break;
        }
        assert!(begun.elapsed() < AMPLE, "{in_turn} in rotation of {turns:?}");
    }
    let mut history = History::default();
    for process in processes {
        process.tell(&mut history).await;
    }
    history.judge().assert_sound();
}

/// Two processes go on at once whatever stands before them, and nobody waits for an expiry.
async fn goes_on(db: &TestDb, held: LockGuard) {
    let living = [
        patient(db.database()),
        patient(&db.connect_again().await.unwrap()),
    ];
    let mut working = JoinSet::new();
    for provider in &living {
        working.spawn(take_turns(Act::Lock, provider.clone(), NAME.to_owned(), TURNS));
        until("a call that waits", async || provider.health().await.waiting > 0).await;
    }
    let begun = Instant::now();
    held.release().await.unwrap();
    let ended = timeout(AMPLE, working.join_all()).await;
    ended.expect("the lock goes on");
    // Each turn may cost the time slots of those in front. It would cost a second if they were waited for: 20 s in total.
    assert!(begun.elapsed() < BEFORE_EXPIRY, "{:?}", begun.elapsed());
}

/// Killed and stopped waiters hold nobody up: the others leave them their time slots for a while. The stopped one has its turn
/// when it goes on.
#[tokio::test]
async fn a_stopped_waiter_in_front_holds_nobody_up_and_is_not_forgotten() {
    let db = test_db().await;
    let held = acquire_soon(&patient(db.database()), NAME).await;
    let mut waiters = join_all((0..3).map(|_| waiting_process(&db))).await;
    let (mut stopped, _proxy) = waiters.pop().unwrap();
    stopped.signal(Signal::STOP);
    for (waiter, _) in &waiters {
        waiter.signal(Signal::KILL);
    }
    goes_on(&db, held).await;
    let last = acquire_soon(&patient(db.database()), NAME).await;
    let token = last.fencing_token().get();
    stopped.signal(Signal::CONT);
    sleep(Duration::from_millis(300)).await;
    last.release().await.unwrap();
    let next = timeout(TAKEN, token_of_next_turn(&mut stopped)).await;
    assert!(next.expect("it is not forgotten") > token);
}

/// An event that is late or lost, and a stream that breaks, cost a second: the waiter looks by itself. A broken stream is
/// opened again, and nobody is forgotten meanwhile.
#[tokio::test]
async fn a_stream_that_lags_costs_a_second() {
    let db = test_db().await;
    let holder = patient(db.database());
    let (proxy, database) = through_proxy(&db).await;
    for breaks in [true, true, false] {
        let held = acquire_soon(&holder, NAME).await;
        let before = of_streams(&proxy);
        let lock = patient(&database).lock(NAME);
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        until_listening(&proxy, before).await;
        if breaks {
            proxy.inject(Fault::drop_reply().command("getMore"));
            proxy.inject(Fault::drop_request().command("aggregate"));
        } else {
            // No reply of the stream comes any more, for longer than the test waits.
            proxy.inject(Fault::delay_reply(AMPLE).command("getMore").times(100));
        }
        sleep(Duration::from_millis(1500)).await;
        held.release().await.unwrap();
        let begun = Instant::now();
        let guard = timeout(AMPLE, waiting).await.unwrap().unwrap();
        // Without a look of its own it would wait for 5 s and longer.
        assert!(begun.elapsed() < TAKEN, "{:?}", begun.elapsed());
        guard.release().await.unwrap();
        proxy.clear_faults();
    }
}
