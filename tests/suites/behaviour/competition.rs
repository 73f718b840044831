//! Processes that compete for one lock, and the turns that they have.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongolock::{FencingToken, LockProvider};
use mongolock_tests::{AMPLE, eventually, must};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The length of a section under the lock.
pub(crate) const SECTION: Duration = Duration::from_millis(3);

/// The lock for which they compete.
pub(crate) const SHARED: &str = "shared";

/// Processes that use the lock again and again, with one task each, until the value is dropped or they are stopped.
pub(crate) struct Competition {
    noted: Arc<Noted>,
    working: JoinSet<()>,
    processes: usize,
}

#[derive(Default)]
struct Noted {
    turns: Mutex<Vec<(FencingToken, usize)>>,
    is_over: AtomicBool,
}

impl Noted {
    async fn take_part(self: Arc<Self>, provider: LockProvider, process: usize) {
        while !self.is_over.load(SeqCst) {
            let guard = provider.lock(SHARED).acquire().await.unwrap();
            let token = guard.fencing_token();
            self.turns.lock().unwrap().push((token, process));
            sleep(SECTION).await;
            guard.release().await.unwrap();
        }
    }
}

impl Competition {
    /// Has these processes begin.
    pub(crate) fn begin(processes: &[LockProvider]) -> Self {
        let (noted, mut working) = (Arc::<Noted>::default(), JoinSet::new());
        for (number, process) in processes.iter().enumerate() {
            working.spawn(Arc::clone(&noted).take_part(process.clone(), number));
        }
        Self {
            noted,
            working,
            processes: processes.len(),
        }
    }

    /// The processes in the order of their turns so far.
    pub(crate) fn turns(&self) -> Vec<usize> {
        let mut turns = self.noted.turns.lock().unwrap().clone();
        turns.sort_unstable();
        assert!(
            turns.is_sorted_by(|(earlier, _), (later, _)| earlier < later),
            "each hold has a token of its own"
        );
        turns.into_iter().map(|(_, process)| process).collect()
    }

    /// Waits until each of them has had so many more turns.
    pub(crate) async fn until_each_had(&self, more: usize) {
        let count = |process: usize| self.turns().iter().filter(|turn| **turn == process).count();
        let goals: Vec<usize> = (0..self.processes).map(|process| count(process) + more).collect();
        let reached = || async {
            let all = (0..self.processes).all(|process| count(process) >= goals[process]);
            all.then_some(())
        };
        must(eventually(AMPLE, "turns of all processes", reached).await);
    }

    /// Waits until three processes have had their turns in rotation for a while. The order is a hint, which a slow machine may
    /// break for a while; without it there is no such time.
    pub(crate) async fn until_in_rotation(&self) {
        let begun = Instant::now();
        loop {
            let before = self.turns().len();
            self.until_each_had(12).await;
            let turns = &self.turns()[before..];
            let all_differ =
                |three: &&[usize]| three[0] != three[1] && three[1] != three[2] && three[0] != three[2];
            let in_turn = turns.windows(3).filter(all_differ).count();
            if in_turn * 3 > turns.len() * 2 {
                return;
            }
            assert!(begun.elapsed() < AMPLE, "{in_turn} in rotation of {turns:?}");
        }
    }

    /// Ends it after the present turns, and returns the processes in the order of their turns.
    pub(crate) async fn end(mut self) -> Vec<usize> {
        self.noted.is_over.store(true, SeqCst);
        while let Some(ended) = self.working.join_next().await {
            ended.unwrap();
        }
        self.turns()
    }
}

/// Has processes compete until each of them has had so many turns, and returns them in the order of their turns. What
/// comes before the second turn of each is left out: a process that begins alone has not heard of the others.
pub(crate) async fn compete(processes: &[LockProvider], each: usize) -> Vec<usize> {
    let competition = Competition::begin(processes);
    competition.until_each_had(2).await;
    let begin = competition.turns().len();
    competition.until_each_had(each).await;
    let end = competition.turns().len();
    competition.end().await[begin..end].to_vec()
}
