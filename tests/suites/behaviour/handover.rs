//! Handing a hold over, whole, to the next waiter of the same process, and yielding it to other processes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongolock::LockContext;
use mongolock_tests::{BEFORE_EXPIRY, FailPoint, Purpose, must, stable_client};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::conformance_of_kinds;
use crate::conformance::kind::Kind;
use crate::conformance::subject::Subject;
use crate::conformance::target::Target;
use crate::fixture::{Fixture, in_time, patient};

conformance_of_kinds!(
    waiters_get_it_in_the_order_of_their_arrival_each_with_a_greater_token: CALLS,
);

/// Has so many callers wait for these targets, and returns their numbers and contexts in the order in which they had their hold.
/// Every other one drops it.
async fn noted_queue(target: impl Fn() -> Target, callers: usize) -> Vec<(usize, LockContext)> {
    let (noted, mut tasks) = (Arc::<Mutex<Vec<_>>>::default(), JoinSet::new());
    let first = target().acquire().await.unwrap();
    for number in 0..callers {
        let (target, noted) = (target(), Arc::clone(&noted));
        tasks.spawn(async move {
            let hold = target.acquire().await.unwrap();
            noted.lock().unwrap().push((number, hold.context()));
            if number.is_multiple_of(2) {
                hold.release().await.unwrap();
            }
        });
        yield_now().await;
    }
    first.release().await.unwrap();
    let all = timeout(BEFORE_EXPIRY, tasks.join_all()).await;
    all.expect("all waiters have their hold");
    std::mem::take(&mut *noted.lock().unwrap())
}

/// S1.19: the callers write the names of a set in different orders.
async fn waiters_get_it_in_the_order_of_their_arrival_each_with_a_greater_token(subject: Subject) {
    let queue = noted_queue(|| subject.ours(), 50).await;
    let (order, holds): (Vec<usize>, Vec<LockContext>) = queue.into_iter().unzip();
    assert!(order.iter().copied().eq(0..50), "{order:?}");
    for pair in holds.windows(2) {
        subject.assert_newer(&pair[1], &pair[0]);
    }
    let next = subject.theirs().acquire().await.unwrap();
    // It is greater than all reserved tokens.
    subject.assert_newer(&next.context(), &holds[49]);
}

/// A long queue inside one process costs only a few commands.
#[tokio::test]
async fn a_hand_over_costs_no_command() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    for (kind, most) in [(Kind::Lock, 40), (Kind::Set, 90)] {
        commands.clear();
        let holds = noted_queue(|| kind.of(&provider, None), 200).await.len();
        assert_eq!(holds, 200);
        let changes = commands.count(Purpose::Acquire) + commands.count(Purpose::Release);
        let looks = commands.count("find");
        let few = changes + looks <= most;
        assert!(few, "{kind:?}: {changes} and {looks} for 201 holds");
    }
}

/// While another process wants the lock, a hold is handed over for the time of three commands, and for half a second at most. A
/// process whose commands take 400 ms would serve one or two callers with each claim otherwise.
#[tokio::test]
async fn a_process_with_slow_commands_hands_over_for_longer() {
    const COMMAND: Duration = Duration::from_millis(400);
    const SECTION: Duration = Duration::from_millis(30);
    let fixture = Fixture::mongodb().await;
    let (provider, _) = fixture.recorded(|builder| builder).await;
    let slow = FailPoint::on(&["findAndModify"]).always().block(COMMAND);
    let _point = must(slow.enable_for(fixture.db()).await);
    // The fail point does not apply to this client, because its application name differs.
    let client = must(stable_client(fixture.db().uri()).await);
    let near = patient(&client.database(fixture.db().name())).lock("n");
    let rival = tokio::spawn(async move {
        loop {
            let guard = near.acquire().await.unwrap();
            sleep(SECTION).await;
            guard.release().await.unwrap();
        }
    });
    let (begun, mut tasks) = (Arc::<Mutex<Vec<Instant>>>::default(), JoinSet::new());
    for _ in 0..24 {
        let (lock, begun) = (provider.lock("n"), Arc::clone(&begun));
        tasks.spawn(async move {
            for _ in 0..3 {
                let guard = lock.acquire().await.unwrap();
                begun.lock().unwrap().push(Instant::now());
                sleep(SECTION).await;
                guard.release().await.unwrap();
            }
        });
    }
    in_time(tasks.join_all()).await;
    rival.abort();
    let begun = begun.lock().unwrap();
    // Between two turns there is a command at least.
    let turns = begun.chunk_by(|one, next| *next - *one < COMMAND / 2 + SECTION);
    let turns: Vec<Duration> = turns.map(|turn| turn[turn.len() - 1] - turn[0]).collect();
    // Without the rule a turn lasts for 20 ms, or for 160 ms while no other process is known.
    let longest = turns.iter().max().expect("there are turns");
    let range = Duration::from_millis(250)..Duration::from_millis(900);
    assert!(range.contains(longest), "{turns:?}");
}
