use std::sync::Arc;
use std::time::Duration;

use mongodb::error::Error;
use tokio::task::JoinHandle;

use crate::store::Store;
use crate::store::driver_error;
use crate::{LockError, task, trace};

/// The time until the next check of an index that is missing, if the build did not fail.
const RETRY: Duration = Duration::from_secs(60);

/// How long somebody who asks for the state waits at most; the look itself goes on.
const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// Whether the documents of locks that are not used any more are tidied up.
///
/// Locks work without the index; only documents of names that are not used any more stay.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexState {
    /// The TTL index is there: it works, or is still being built.
    Ready,
    /// Another index on `expiresAt` or of the name `expiresAt_ttl` is in the way.
    Conflict {
        /// The index that is in the way, or what the server says about it.
        reason: String,
    },
    /// The collection is capped: MongoDB removes nothing from it by time.
    Capped,
    /// The user may not create the index.
    Unauthorized {
        /// What the server says about it.
        reason: String,
    },
    /// The index could not be checked or created for another reason, which may pass. A build that needs more than 1 s
    /// on a collection with documents is one of them; [`index_state`](crate::LockAdmin::index_state) says more.
    Failed {
        /// The error, or what keeps the index from being created.
        reason: String,
    },
}

impl IndexState {
    pub(crate) fn from_error(error: &Error) -> Self {
        let reason = error.kind.to_string();
        match driver_error::code(error) {
            // IndexOptionsConflict, IndexKeySpecsConflict
            Some(85 | 86) => Self::Conflict { reason },
            Some(13) => Self::Unauthorized { reason },
            _ => Self::Failed { reason },
        }
    }

    /// The state that an error of the library leaves open.
    pub(crate) fn unknown(error: &LockError) -> Self {
        match error {
            LockError::Mongo(error) => Self::from_error(error),
            other => Self::Failed {
                reason: other.to_string(),
            },
        }
    }
}

/// What one check of the index has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexCheck {
    pub(crate) state: IndexState,
    /// The time until the next check if the index is not there: minutes after a failed build, because each build on a
    /// filled collection can delay every acquire.
    pub(crate) next: Duration,
}

impl From<IndexState> for IndexCheck {
    fn from(state: IndexState) -> Self {
        Self { state, next: RETRY }
    }
}

/// A look on a task of its own: it runs to its end.
type Look = JoinHandle<Result<IndexCheck, LockError>>;

/// Runs beside everything else until the index is there, or for as long as the provider works.
pub(crate) async fn ensure(store: Arc<Store>, retention: Duration) {
    until_ready(|| begin(&store, retention)).await;
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
            trace::index(&state);
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
    let looked = task::answer(looking, "look at the index", LOOK_LIMIT).await;
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
