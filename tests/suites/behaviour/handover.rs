//! Handing a hold over, whole, to the next waiter of the same process, and yielding it to other processes.

use std::sync::{Arc, Mutex};

use mongolock::LockContext;
use mongolock_tests::{BEFORE_EXPIRY, Purpose};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use crate::conformance::conformance_of_kinds;
use crate::conformance::kind::Kind;
use crate::conformance::subject::Subject;
use crate::conformance::target::Target;
use crate::fixture::Fixture;

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
        assert!(
            changes + looks <= most,
            "{kind:?}: {changes} and {looks} for 201 holds"
        );
    }
}
