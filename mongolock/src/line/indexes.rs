use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument;

use super::{Lines, LinesState};
use crate::store::IndexState;
use crate::sync::lock;
use crate::timing::{INDEX_BUILD_PAUSE, WAITERS_INDEX_CHECK};

/// What this provider knows of the indexes of the documents. They make the lines fast to read, and remove the documents of
/// processes that have died; without them the order is the same.
#[derive(Default)]
pub(super) struct Indexes {
    /// The time before which they are not checked again. They are checked again also if they exist: an operator who drops
    /// the collection drops them as well.
    next: Option<Instant>,
    check: Option<JoinHandle<()>>,
}

impl Indexes {
    fn is_check_due(&self) -> bool {
        let is_running = self.check.as_ref().is_some_and(|check| !check.is_finished());
        let is_late = self.next.is_none_or(|next| next <= Instant::now());
        !is_running && is_late
    }
}

impl Lines {
    /// Checks the indexes in the background, and has those built that are missing. The next check comes a minute or two
    /// later, and after a failure some minutes later.
    pub(super) fn ensure_indexes(self: &Arc<Self>, state: &mut LinesState) {
        if !state.indexes.is_check_due() {
            return;
        }
        let lines = Arc::clone(self);
        let checking = async move {
            let found = lines.store.ensure_waiters_indexes().await;
            let pause = if found == IndexState::Ready {
                WAITERS_INDEX_CHECK
            } else {
                INDEX_BUILD_PAUSE
            };
            let next = Instant::now() + Duration::from_secs(fastrand::u64(pause));
            lock(&lines.state).indexes.next = Some(next);
        };
        state.indexes.check = Some(crate::task::spawn(checking.in_current_span()));
    }
}
