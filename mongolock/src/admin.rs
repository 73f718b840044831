use std::sync::Arc;

use crate::engine::Engine;
use crate::index::{self, IndexState};

/// The view of an operator on the locks of a provider; made by [`LockProvider::admin`](crate::LockProvider::admin).
#[derive(Clone)]
pub struct LockAdmin {
    engine: Arc<Engine>,
}

impl LockAdmin {
    pub(crate) fn new(engine: &Arc<Engine>) -> Self {
        Self {
            engine: Arc::clone(engine),
        }
    }

    /// Creates the TTL index if it is missing, and says whether unused documents are tidied up.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mongolock::{IndexState, LockProvider};
    ///
    /// assert_eq!(LockProvider::in_memory().admin().index_state().await, IndexState::Ready);
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the look goes on in the background.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn index_state(&self) -> IndexState {
        index::look(&self.engine.store, self.engine.settings.retention).await
    }
}

impl std::fmt::Debug for LockAdmin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockAdmin").finish_non_exhaustive()
    }
}
