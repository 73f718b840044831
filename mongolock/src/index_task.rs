use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;

use crate::options::TtlOptions;
use crate::store::{IndexCheck, IndexState, Store};
use crate::sync::lock;
use crate::timing::INDEX_REPLY_LIMIT;
use crate::{LockError, task, trace};

/// A check on a task of its own, which runs to its end.
type Check = JoinHandle<Result<IndexCheck, LockError>>;

/// The background task that checks the TTL index until it exists or the provider ends.
pub(crate) struct IndexTask {
    store: Arc<Store>,
    wanted: TtlOptions,
    task: Mutex<Option<JoinHandle<()>>>,
    /// The state at the last check.
    state: Arc<Mutex<Option<IndexState>>>,
}

impl IndexTask {
    pub(crate) fn new(store: Arc<Store>, wanted: TtlOptions) -> Self {
        Self {
            store,
            wanted,
            task: Mutex::new(None),
            state: Arc::default(),
        }
    }

    /// Starts the task on the caller's runtime, unless the index is known to exist or the task is running: it ends with
    /// the runtime that it was started on.
    pub(crate) fn ensure_running(&self) {
        if *lock(&self.state) == Some(IndexState::Ready) {
            return;
        }
        let mut task = lock(&self.task);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let (store, wanted) = (Arc::clone(&self.store), self.wanted);
            let state = Arc::clone(&self.state);
            *task = Some(task::spawn(async move {
                until_ready(|| begin(&store, wanted), &state).await;
            }));
        }
    }

    /// The state of the index at the last check of the task; `None` before that.
    pub(crate) fn state(&self) -> Option<IndexState> {
        lock(&self.state).clone()
    }

    pub(crate) fn stop(&self) {
        if let Some(task) = lock(&self.task).as_ref() {
            task.abort();
        }
    }
}

/// Checks the index until it exists, one check at a time: each check that hangs behind an index build keeps a connection
/// of the pool, and without a free connection locks would hang as well.
async fn until_ready(begin: impl Fn() -> Check, known: &Mutex<Option<IndexState>>) {
    let mut checking = begin();
    loop {
        let IndexCheck { state, next } = outcome(&mut checking).await;
        // Each new state is reported once, so that a missing index does not fill the log.
        let is_ready = state == IndexState::Ready;
        let before = lock(known).replace(state.clone());
        if let IndexState::Collation { locale } = &state {
            // It does not change as long as the collection exists.
            return trace::collation(locale);
        }
        if before.as_ref() != Some(&state) {
            trace::index(is_ready, &state);
        }
        if is_ready {
            return;
        }
        tokio::time::sleep(next).await;
        if checking.is_finished() {
            checking = begin();
        }
    }
}

/// Checks the index once, and creates it if it is missing.
pub(crate) async fn check(store: &Arc<Store>, wanted: TtlOptions) -> IndexState {
    outcome(begin(store, wanted)).await.state
}

fn begin(store: &Arc<Store>, wanted: TtlOptions) -> Check {
    let store = Arc::clone(store);
    task::spawn(async move { Ok(store.ensure_index(wanted).await) })
}

async fn outcome(checking: impl Future<Output = <Check as Future>::Output>) -> IndexCheck {
    let checked = task::wait_for_reply(checking, "check of the TTL index", INDEX_REPLY_LIMIT).await;
    checked.unwrap_or_else(|error| {
        let reason = error.to_string();
        IndexState::Failed { reason }.into()
    })
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::sync::lock;

    fn failed() -> IndexState {
        IndexState::Failed {
            reason: "index build in the way".to_owned(),
        }
    }

    /// The seconds at which checks begin until one finds the index. The plan has the duration in seconds and the result
    /// of each check.
    async fn checks<C: Clone + Into<IndexCheck>>(plan: &[(u64, C)]) -> Vec<u64> {
        let (start, checks) = (Instant::now(), Mutex::new(Vec::new()));
        let begin = || {
            let mut checks = lock(&checks);
            let (takes, check) = plan[checks.len()].clone();
            let check = check.into();
            checks.push(start.elapsed().as_secs());
            task::spawn(async move {
                sleep(Duration::from_secs(takes)).await;
                Ok(check)
            })
        };
        until_ready(begin, &Mutex::default()).await;
        let checks = lock(&checks);
        checks.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_the_index_is_checked_once_a_minute() {
        let plan = [
            (0, failed()),
            (0, IndexState::Capped),
            (5, failed()),
            (0, IndexState::Ready),
        ];
        assert_eq!(checks(&plan).await, [0, 60, 120, 185]);
        assert_eq!(checks(&[(0, IndexState::Ready)]).await, [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failed_build_the_next_check_comes_when_the_pause_is_over() {
        let build = IndexCheck {
            state: failed(),
            next: Duration::from_secs(432),
        };
        let plan = [(1, build), (0, failed().into()), (0, IndexState::Ready.into())];
        assert_eq!(checks(&plan).await, [0, 433, 493]);
    }

    /// The checks hang for longer than the task waits for them.
    #[tokio::test(start_paused = true)]
    async fn no_second_check_begins_while_one_hangs() {
        let plan = [(3600, failed()), (40, IndexState::Ready), (0, IndexState::Ready)];
        let checks = checks(&plan).await;
        // The task notices the end of the first check when a pause of a minute is over, so up to a minute late.
        assert!((3600..=3660).contains(&checks[1]), "{checks:?}");
        assert_eq!(
            checks[2] - checks[1],
            90,
            "an index that a hanging check has found is checked again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_hangs_is_reported_as_failed() {
        let begun = Instant::now();
        let state = outcome(task::spawn(pending())).await.state;
        assert!(
            matches!(&state, IndexState::Failed { reason } if reason.contains("check of the TTL index within 30 s")),
            "{state:?}"
        );
        assert_eq!(begun.elapsed().as_secs(), 30);
    }
}
