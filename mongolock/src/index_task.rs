//! The background task that checks the TTL index.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::backoff::spread;
use crate::store::{IndexState, Store};
use crate::sync::lock;
use crate::timing::{INDEX_AFTER_END, INDEX_RECHECK, INDEX_RETRY};
use crate::{LockError, task, trace};

/// The task that checks the index: once an hour, and when a stream has told that the collection was dropped or renamed.
pub(crate) struct IndexTask {
    store: Arc<Store>,
    retention: Duration,
    task: Mutex<Option<JoinHandle<()>>>,
    /// What the last check has found; a stream that tells the end of the collection sets it to `None`.
    state: watch::Sender<Option<IndexState>>,
}

impl IndexTask {
    pub(crate) fn new(store: Arc<Store>, retention: Duration) -> Self {
        Self {
            state: store.index_watch(),
            store,
            retention,
            task: Mutex::new(None),
        }
    }

    /// Starts the task on the caller's runtime, unless it is running: it ends with the runtime on which it was started.
    pub(crate) fn ensure_running(&self) {
        let mut task = lock(&self.task);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let (store, retention, state) = (Arc::clone(&self.store), self.retention, self.state.clone());
            *task = Some(task::spawn(async move {
                check_again(|| store.index(retention, true), &state).await;
            }));
        }
    }

    /// The state of the index at the last check; `None` before that, and if the collection was dropped or renamed since then.
    pub(crate) fn state(&self) -> Option<IndexState> {
        self.state.borrow().clone()
    }

    /// Waits until the index is checked, if a task does that: a process that ends soon after its start makes the index as well.
    pub(crate) async fn until_checked(&self) {
        if lock(&self.task).as_ref().is_some_and(|task| !task.is_finished()) {
            // The sender lives as long as this.
            let _ = self.state.subscribe().wait_for(Option::is_some).await;
        }
    }

    pub(crate) fn stop(&self) {
        if let Some(task) = lock(&self.task).as_ref() {
            task.abort();
        }
    }
}

/// Checks the index repeatedly, and reports each new state once, so that a missing index does not fill the log.
async fn check_again<F: Future<Output = Result<IndexState, LockError>>>(
    check: impl Fn() -> F,
    state: &watch::Sender<Option<IndexState>>,
) {
    let mut reported = None;
    loop {
        let mut ended = state.subscribe();
        let found = check().await;
        let pause = if found.is_ok() {
            spread(INDEX_RECHECK)
        } else {
            INDEX_RETRY
        };
        let found = found.unwrap_or_else(|error| IndexState::unknown(&error));
        // What was found before the end of the collection counts no more.
        if !ended.has_changed().is_ok_and(|has_ended| has_ended) {
            state.send_replace(Some(found.clone()));
        }
        if reported.as_ref() != Some(&found) {
            match &found {
                IndexState::Collation { locale } => trace::collation(locale),
                found => trace::index(*found == IndexState::Ready, found),
            }
            reported = Some(found);
        }
        // The sender lives as long as this.
        if timeout(pause, ended.wait_for(Option::is_none)).await.is_ok() {
            sleep(INDEX_AFTER_END).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, sleep_until};

    use super::*;
    use crate::store::MemoryStore;

    /// What a check finds, and the seconds that it takes.
    type Plan = [(u64, Result<IndexState, LockError>)];

    fn failed() -> Result<IndexState, LockError> {
        Err(LockError::NoProvider)
    }

    /// The seconds at which checks begin, up to the end of the plan. The collection is dropped at these seconds.
    async fn checks(plan: &Plan, drops: &[u64]) -> Vec<u64> {
        let (start, checks) = (Instant::now(), Mutex::new(Vec::new()));
        let state = watch::Sender::new(None);
        let check = async || {
            let begun = lock(&checks).len();
            let Some((takes, found)) = plan.get(begun) else {
                return pending().await;
            };
            lock(&checks).push(start.elapsed().as_secs());
            sleep(Duration::from_secs(*takes)).await;
            found.clone()
        };
        let dropping = async {
            for second in drops {
                sleep_until(start + Duration::from_secs(*second)).await;
                state.send_replace(None);
            }
            pending::<()>().await;
        };
        let day = Duration::from_secs(86_400);
        let _ = timeout(day, async { tokio::join!(check_again(check, &state), dropping) }).await;
        checks.into_inner().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_error_the_index_is_checked_once_a_minute() {
        let plan = [(0, failed()), (5, failed()), (0, Ok(IndexState::Ready))];
        assert_eq!(checks(&plan, &[]).await, [0, 60, 125]);
    }

    /// Also after a build that reached its time limit: the report has the command that creates the index.
    #[tokio::test(start_paused = true)]
    async fn what_a_check_has_found_is_checked_once_an_hour() {
        let (locale, reason) = ("en".to_owned(), "a transaction is open".to_owned());
        for found in [
            Ok(IndexState::Ready),
            Ok(IndexState::Collation { locale }),
            Ok(IndexState::Capped),
            Ok(IndexState::Failed { reason }),
        ] {
            let checks = checks(&[(0, found.clone()), (0, found.clone()), (0, found)], &[]).await;
            for hour in checks.windows(2) {
                assert!((2880..=4320).contains(&(hour[1] - hour[0])), "{checks:?}");
            }
            assert_eq!(checks.len(), 3);
        }
    }

    /// The second drop comes while a check runs, whose result is then outdated.
    #[tokio::test(start_paused = true)]
    async fn the_index_is_checked_when_its_collection_was_dropped() {
        let plan = [
            (0, Ok(IndexState::Ready)),
            (5, failed()),
            (0, Ok(IndexState::Ready)),
        ];
        assert_eq!(checks(&plan, &[100, 103]).await, [0, 101, 107]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_from_before_a_drop_is_not_told() {
        let task = IndexTask::new(
            Arc::new(Store::Memory(Arc::new(MemoryStore::new()))),
            Duration::from_secs(86_400),
        );
        task.ensure_running();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(task.state(), Some(IndexState::Ready));
        task.state.send_replace(None);
        assert_eq!(task.state(), None);
        sleep(INDEX_AFTER_END * 2).await;
        assert_eq!(task.state(), Some(IndexState::Ready));
    }
}
