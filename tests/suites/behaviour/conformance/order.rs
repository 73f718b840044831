//! The order between processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use mongolock::LockProvider;
use mongolock_tests::until;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::conformance;
use crate::fixture::Fixture;

conformance!(
    // The store in memory reports releases as well.
    a_process_without_push_gets_its_turns_beside_those_with_it,
);

/// The lock for which processes compete.
pub(crate) const SHARED: &str = "shared";

/// Processes that use the lock again and again, with one task each, until the value is dropped.
pub(crate) struct Competition {
    turns: Vec<Arc<AtomicUsize>>,
    _working: JoinSet<()>,
}

impl Competition {
    pub(crate) fn begin(processes: &[LockProvider]) -> Self {
        let (mut turns, mut working) = (Vec::new(), JoinSet::new());
        for process in processes {
            let (lock, had) = (process.lock(SHARED), Arc::<AtomicUsize>::default());
            turns.push(Arc::clone(&had));
            working.spawn(async move {
                loop {
                    let guard = lock.acquire().await.unwrap();
                    had.fetch_add(1, SeqCst);
                    sleep(Duration::from_millis(3)).await;
                    guard.release().await.unwrap();
                }
            });
        }
        Self {
            turns,
            _working: working,
        }
    }

    /// Waits until each of them has had so many more turns.
    pub(crate) async fn until_each_had(&self, more: usize) {
        let now = || self.turns.iter().map(|had| had.load(SeqCst));
        let goals: Vec<usize> = now().map(|had| had + more).collect();
        until("turns of all processes", async || {
            now().zip(&goals).all(|(had, goal)| had >= *goal)
        })
        .await;
    }
}

/// The others leave it turns while they remember it. When it has missed some, they forget it until it is seen again, and it finds the
/// lock free by chance: within seconds, and not never. The group `order-polling` of the benchmark measures its share.
async fn a_process_without_push_gets_its_turns_beside_those_with_it(fixture: Fixture) {
    let polling = fixture.with(|options| options.wake_up(false));
    let processes = [fixture.process("a"), fixture.process("b"), polling];
    Competition::begin(&processes).until_each_had(20).await;
}

/// Nothing in the database says who waits.
#[tokio::test]
async fn processes_that_wait_write_nothing_but_locks() {
    let fixture = Fixture::mongodb().await;
    let processes = ["a", "b", "c"].map(|owner| fixture.process(owner));
    Competition::begin(&processes).until_each_had(10).await;
    let collections = fixture.database().list_collection_names().await.unwrap();
    assert_eq!(collections, ["distributed_locks"]);
}
