//! Real processes that ask for one lock for minutes while they are killed and stopped, their connections are cut, messages are late,
//! and the primary steps down: many faults at the same time.

use std::time::Duration;

use futures_util::future::join_all;
use mongolock_tests::{AMPLE, Actor, Direction, Fault, History, Proxy, Server, ServerOptions, must, rounds};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use crate::actor::{TASKS, command};

/// A short lease, so that the lock of a killed holder is free soon.
const EXPIRY: Duration = Duration::from_secs(2);

/// How late messages are, and how long a fault waits for its process to acquire the lock.
const LATE: Duration = Duration::from_secs(3);

fn seconds(least: u64, most: u64) -> Duration {
    Duration::from_millis(fastrand::u64(least * 1000..most * 1000))
}

/// Lets faults happen to a process until one of them kills it, or the time is over; then the process must still have its turns.
/// Returns whether it was killed.
async fn hit(process: &Actor, proxy: Option<&Proxy>, ends: Instant) -> bool {
    let mut acquired = process.acquired();
    loop {
        sleep(seconds(4, 30)).await;
        acquired.mark_unchanged();
        if Instant::now() >= ends {
            let acquired = timeout(AMPLE, acquired.changed()).await;
            acquired.expect("it has its turns").unwrap();
            return false;
        }
        // Most often it holds the lock then.
        if fastrand::u8(..3) > 0 {
            let _ = timeout(LATE, acquired.changed()).await;
        }
        match (fastrand::u8(..if proxy.is_some() { 5 } else { 2 }), proxy) {
            (2, Some(proxy)) => proxy.reset_connections(),
            (3, Some(proxy)) => {
                proxy.inject(Fault::delay_reply(LATE).command("getMore").times(3));
                sleep(LATE * 4).await;
                proxy.clear_faults();
            }
            (4, Some(proxy)) => {
                proxy.set_delay(Direction::ToClient, LATE);
                sleep(LATE).await;
                proxy.set_delay(Direction::ToClient, Duration::ZERO);
            }
            (0, _) => {
                process.signal(Signal::KILL);
                return true;
            }
            _ => {
                process.signal(Signal::STOP);
                sleep(seconds(0, 3)).await;
                process.signal(Signal::CONT);
            }
        }
    }
}

/// The processes of one place: another one takes the place of one that was killed.
async fn live(server: &Server, proxy: Option<&Proxy>, ends: Instant) -> Vec<Actor> {
    let (uri, mut processes) = (proxy.map_or_else(|| server.uri(), Proxy::uri), Vec::new());
    loop {
        let mut command = command("actor::take_turns", &uri, "soak", EXPIRY);
        command.env(TASKS, "3");
        let process = Actor::start(command);
        let is_killed = hit(&process, proxy, ends).await;
        processes.push(process);
        if !is_killed {
            return processes;
        }
    }
}

async fn step_down(server: &Server, ends: Instant) {
    while Instant::now() < ends {
        sleep(seconds(15, 60)).await;
        must(server.step_down().await);
    }
}

/// `MONGOLOCK_ROUNDS` is the number of seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes 20 minutes"]
async fn nothing_is_held_twice_for_minutes_of_faults() {
    let server = must(Server::start(ServerOptions::single()).await);
    let proxy = must(Proxy::start(server.node().address()).await);
    let ends = Instant::now() + Duration::from_secs(rounds(1200) as u64);
    let places = (0..6).map(|place| live(&server, (place == 0).then_some(&proxy), ends));
    let (places, ()) = tokio::join!(join_all(places), step_down(&server, ends));
    let mut history = History::default();
    for process in places.into_iter().flatten() {
        process.tell(&mut history).await;
    }
    let verdict = history.judge();
    verdict.assert_sound();
    assert!(verdict.holds > 1000, "{verdict}");
}
