use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::backoff::spread;
use crate::options::TtlOptions;
use crate::store::{IndexCheck, IndexState, Store};
use crate::sync::lock;
use crate::timing::{INDEX_AFTER_END, INDEX_RECHECK, INDEX_REPLY_LIMIT};
use crate::{LockError, task, trace};

/// A check on a task of its own, which runs to its end.
type Check = JoinHandle<Result<IndexCheck, LockError>>;

/// The background task that checks the TTL index: until it exists, then from time to time, and when a stream has told that the
/// collection was dropped or renamed.
pub(crate) struct IndexTask {
    store: Arc<Store>,
    wanted: TtlOptions,
    task: Mutex<Option<JoinHandle<()>>>,
    /// How often the collection was dropped or renamed.
    ends: watch::Sender<u64>,
    checked: Arc<watch::Sender<Option<Checked>>>,
}

/// What the last check has found.
struct Checked {
    state: IndexState,
    /// How often the collection had been dropped or renamed before the check.
    ends: u64,
    /// The time of the next check.
    next: Instant,
}

impl IndexTask {
    pub(crate) fn new(store: Arc<Store>, wanted: TtlOptions) -> Self {
        Self {
            ends: store.collection_ends(),
            store,
            wanted,
            task: Mutex::new(None),
            checked: Arc::default(),
        }
    }

    /// Starts the task on the caller's runtime, unless it is running: it ends with the runtime that it was started on.
    pub(crate) fn ensure_running(&self) {
        let mut task = lock(&self.task);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let (store, wanted) = (Arc::clone(&self.store), self.wanted);
            let (ends, checked) = (self.ends.clone(), Arc::clone(&self.checked));
            *task = Some(task::spawn(async move {
                check_again(|| begin(&store, wanted), &ends, &checked).await;
            }));
        }
    }

    /// The state of the index at the last check of the task; `None` before that, and if the collection was dropped or renamed
    /// since then.
    pub(crate) fn state(&self) -> Option<IndexState> {
        let checked = self.checked.borrow();
        let current = checked.as_ref().filter(|it| it.ends == *self.ends.borrow());
        current.map(|it| it.state.clone())
    }

    /// Waits until the first check has ended, if one is under way: a process that ends soon after its start makes the index as well.
    pub(crate) async fn until_checked(&self) {
        if lock(&self.task).as_ref().is_some_and(|task| !task.is_finished()) {
            let mut checked = self.checked.subscribe();
            // The sender lives as long as this.
            let _ = checked.wait_for(Option::is_some).await;
        }
    }

    pub(crate) fn stop(&self) {
        if let Some(task) = lock(&self.task).as_ref() {
            task.abort();
        }
    }
}

/// Checks the index again and again, one check at a time: each check that hangs behind an index build keeps a connection
/// of the pool, and without a free connection locks would hang as well.
async fn check_again(
    begin: impl Fn() -> Check,
    ends: &watch::Sender<u64>,
    checked: &watch::Sender<Option<Checked>>,
) {
    let mut told = ends.subscribe();
    let mut checking: Option<(Check, u64)> = None;
    loop {
        let last = checked.borrow().as_ref().map(|it| (it.ends, it.next));
        if let Some((seen, next)) = last {
            let has_ended = timeout_at(next, told.wait_for(|ends| *ends != seen))
                .await
                .is_ok();
            if has_ended {
                sleep(INDEX_AFTER_END).await;
            }
        }
        // A check that hangs may have begun before the collection was dropped.
        let (checking, ended) = match &mut checking {
            Some((hanging, ended)) if !hanging.is_finished() => (hanging, *ended),
            _ => {
                let (check, ended) = checking.insert((begin(), *ends.borrow()));
                (check, *ended)
            }
        };
        let IndexCheck { state, next } = outcome(checking).await;
        let is_ready = state == IndexState::Ready;
        let pause = match &state {
            IndexState::Ready | IndexState::Collation { .. } => spread(INDEX_RECHECK),
            _ => next,
        };
        let found = Checked {
            state: state.clone(),
            ends: ended,
            next: Instant::now() + pause,
        };
        // Each new state is reported once, so that a missing index does not fill the log.
        let before = checked.send_replace(Some(found));
        if before.is_none_or(|before| before.state != state) {
            match &state {
                IndexState::Collation { locale } => trace::collation(locale),
                state => trace::index(is_ready, state),
            }
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
    use std::time::Duration;

    use tokio::time::{sleep_until, timeout};

    use super::*;
    use crate::options::Config;
    use crate::store::MemoryStore;

    fn failed() -> IndexState {
        IndexState::Failed {
            reason: "index build in the way".to_owned(),
        }
    }

    /// The seconds at which checks begin, up to the end of the plan: the duration in seconds and the result of each check. The
    /// collection is dropped at these seconds.
    async fn checks_with<C: Clone + Into<IndexCheck>>(plan: &[(u64, C)], drops: &[u64]) -> Vec<u64> {
        let (start, checks) = (Instant::now(), Mutex::new(Vec::new()));
        let (ends, checked) = (watch::Sender::new(0), watch::Sender::new(None));
        let begin = || {
            let mut checks = lock(&checks);
            let Some((takes, check)) = plan.get(checks.len()).cloned() else {
                return task::spawn(pending());
            };
            let check = check.into();
            checks.push(start.elapsed().as_secs());
            task::spawn(async move {
                sleep(Duration::from_secs(takes)).await;
                Ok(check)
            })
        };
        let dropping = async {
            for second in drops {
                sleep_until(start + Duration::from_secs(*second)).await;
                ends.send_modify(|ends| *ends += 1);
            }
            pending::<()>().await;
        };
        let day = Duration::from_secs(86_400);
        let checking = check_again(begin, &ends, &checked);
        let _ = timeout(day, async { tokio::join!(checking, dropping) }).await;
        let checks = lock(&checks);
        checks.clone()
    }

    async fn checks<C: Clone + Into<IndexCheck>>(plan: &[(u64, C)]) -> Vec<u64> {
        checks_with(plan, &[]).await
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
    }

    #[tokio::test(start_paused = true)]
    async fn an_index_that_exists_is_checked_once_an_hour() {
        let locale = "en".to_owned();
        for state in [IndexState::Ready, IndexState::Collation { locale }] {
            let checks = checks(&[(0, state.clone()), (0, state.clone()), (0, state)]).await;
            for hour in checks.windows(2) {
                assert!((2880..=4320).contains(&(hour[1] - hour[0])), "{checks:?}");
            }
            assert_eq!(checks.len(), 3);
        }
    }

    /// The second drop comes while a check runs, whose result counts no more.
    #[tokio::test(start_paused = true)]
    async fn the_index_is_checked_when_its_collection_was_dropped() {
        let plan = [(0, IndexState::Ready), (5, failed()), (0, IndexState::Ready)];
        assert_eq!(checks_with(&plan, &[100, 103]).await, [0, 101, 107]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_from_before_a_drop_is_not_told() {
        let task = IndexTask::new(
            Arc::new(Store::Memory(Arc::new(MemoryStore::new()))),
            Config::default().ttl_options(),
        );
        task.ensure_running();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(task.state(), Some(IndexState::Ready));
        task.ends.send_modify(|ends| *ends += 1);
        assert_eq!(task.state(), None);
        sleep(INDEX_AFTER_END * 2).await;
        assert_eq!(task.state(), Some(IndexState::Ready));
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
