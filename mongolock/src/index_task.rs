use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::store::{IndexCheck, IndexState, Store};
use crate::sync::lock;
use crate::timing::INDEX_REPLY_LIMIT;
use crate::{LockError, task, trace};

/// A look on a task of its own: it runs to its end.
type Look = JoinHandle<Result<IndexCheck, LockError>>;

/// Checks the index beside everything else until it is there, or for as long as the provider works.
pub(crate) struct IndexTask {
    store: Arc<Store>,
    retention: Duration,
    task: Mutex<Option<JoinHandle<()>>>,
    is_ready: Arc<AtomicBool>,
}

impl IndexTask {
    pub(crate) fn new(store: Arc<Store>, retention: Duration) -> Self {
        Self {
            store,
            retention,
            task: Mutex::new(None),
            is_ready: Arc::default(),
        }
    }

    /// Starts the task on the caller's runtime if the index is not known to be there and the task does not run, or ended
    /// with the runtime it was started on.
    pub(crate) fn ensure_running(&self) {
        if self.is_ready.load(Ordering::Relaxed) {
            return;
        }
        let mut task = lock(&self.task);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let (store, retention) = (Arc::clone(&self.store), self.retention);
            let is_ready = Arc::clone(&self.is_ready);
            *task = Some(task::spawn(async move {
                until_ready(|| begin(&store, retention)).await;
                is_ready.store(true, Ordering::Relaxed);
            }));
        }
    }

    pub(crate) fn stop(&self) {
        if let Some(task) = lock(&self.task).as_ref() {
            task.abort();
        }
    }
}

/// Never looks twice at once: each look that hangs, behind an index build that does not end, keeps a connection of the
/// pool, and with the last of them locks would hang as well.
async fn until_ready(begin: impl Fn() -> Look) {
    let mut reported = None;
    let mut looking = begin();
    loop {
        let IndexCheck { state, next } = outcome(&mut looking).await;
        // Once for each new finding: a missing index is a nuisance, a log full of it is another.
        if reported.as_ref() != Some(&state) {
            trace::index(state == IndexState::Ready, &state);
        }
        if state == IndexState::Ready {
            return;
        }
        reported = Some(state);
        tokio::time::sleep(next).await;
        if looking.is_finished() {
            looking = begin();
        }
    }
}

/// Creates the index if it is missing.
pub(crate) async fn look(store: &Arc<Store>, retention: Duration) -> IndexState {
    outcome(begin(store, retention)).await.state
}

fn begin(store: &Arc<Store>, retention: Duration) -> Look {
    let store = Arc::clone(store);
    task::spawn(async move { Ok(store.ensure_index(retention).await) })
}

async fn outcome(looking: impl Future<Output = <Look as Future>::Output>) -> IndexCheck {
    let looked = task::wait_for_reply(looking, "look at the index", INDEX_REPLY_LIMIT).await;
    looked.unwrap_or_else(|error| {
        let reason = error.to_string();
        IndexState::Failed { reason }.into()
    })
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Mutex;

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::sync::lock;

    fn failed() -> IndexState {
        IndexState::Failed {
            reason: "index build in the way".to_owned(),
        }
    }

    /// The seconds at which looks begin until one finds the index, if each of them takes so long and ends so.
    async fn looks<C: Clone + Into<IndexCheck>>(plan: &[(u64, C)]) -> Vec<u64> {
        let (start, looks) = (Instant::now(), Mutex::new(Vec::new()));
        let begin = || {
            let mut looks = lock(&looks);
            let (takes, check) = plan[looks.len()].clone();
            let check = check.into();
            looks.push(start.elapsed().as_secs());
            task::spawn(async move {
                sleep(Duration::from_secs(takes)).await;
                Ok(check)
            })
        };
        until_ready(begin).await;
        let looks = lock(&looks);
        looks.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_it_is_looked_for_once_a_minute() {
        let plan = [
            (0, failed()),
            (0, IndexState::Capped),
            (5, failed()),
            (0, IndexState::Ready),
        ];
        assert_eq!(looks(&plan).await, [0, 60, 120, 185]);
        assert_eq!(looks(&[(0, IndexState::Ready)]).await, [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failed_build_the_next_check_comes_when_the_pause_is_over() {
        let build = IndexCheck {
            state: failed(),
            next: Duration::from_secs(432),
        };
        let plan = [(1, build), (0, failed().into()), (0, IndexState::Ready.into())];
        assert_eq!(looks(&plan).await, [0, 433, 493]);
    }

    /// Those that hang for longer than they are waited for.
    #[tokio::test(start_paused = true)]
    async fn no_second_look_begins_beside_one_that_hangs() {
        let plan = [(3600, failed()), (40, IndexState::Ready), (0, IndexState::Ready)];
        let looks = looks(&plan).await;
        // The end of the first is noticed with the next wait for it, 30 s and a minute each, or a minute after it.
        assert!((3600..=3660).contains(&looks[1]), "{looks:?}");
        assert_eq!(looks[2] - looks[1], 90, "what it found is looked at again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_is_a_failure_to_the_one_who_asks() {
        let begun = Instant::now();
        let state = outcome(task::spawn(pending())).await.state;
        assert!(
            matches!(&state, IndexState::Failed { reason } if reason.contains("look at the index within 30s")),
            "{state:?}"
        );
        assert_eq!(begun.elapsed().as_secs(), 30);
    }
}
