use std::sync::Arc;
use std::time::Duration;

use mongodb::error::Error;

use crate::store::Store;
use crate::{fault, task, trace};

/// How often a missing index is looked after.
const RETRY: Duration = Duration::from_secs(60);

/// How long somebody who asks for the state waits at most; the look itself goes on.
const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// Whether the documents of locks that are not used any more are tidied up.
///
/// Locks work without the index; only documents of names that are not used any more stay.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexState {
    /// The TTL index is there and works.
    Ready,
    /// Another index on `expiresAt` or of the name `expiresAt_ttl` is in the way.
    Conflict {
        /// What the server says about it.
        reason: String,
    },
    /// The collection is capped: MongoDB removes nothing from it by time.
    Capped,
    /// The user may not create the index.
    Unauthorized {
        /// What the server says about it.
        reason: String,
    },
    /// The index could not be looked at or created for another reason, which may pass.
    Failed {
        /// The error.
        reason: String,
    },
}

impl IndexState {
    pub(crate) fn from_error(error: &Error) -> Self {
        let reason = error.kind.to_string();
        match fault::code(error) {
            // IndexOptionsConflict, IndexKeySpecsConflict
            Some(85 | 86) => Self::Conflict { reason },
            Some(13) => Self::Unauthorized { reason },
            _ => Self::Failed { reason },
        }
    }
}

/// Runs beside everything else until the index is there, or for as long as the provider works.
pub(crate) async fn ensure(store: Arc<Store>, retention: Duration) {
    let mut reported = None;
    loop {
        let state = look(&store, retention).await;
        // Once for each new finding: a missing index is a nuisance, a log full of it is another.
        if reported.as_ref() != Some(&state) {
            trace::index(&state);
        }
        if state == IndexState::Ready {
            return;
        }
        reported = Some(state);
        tokio::time::sleep(RETRY).await;
    }
}

/// Creates the index if it is missing, on a task of its own: it runs to its end.
pub(crate) async fn look(store: &Arc<Store>, retention: Duration) -> IndexState {
    let store = Arc::clone(store);
    let looking = task::spawn(async move { Ok(store.ensure_index(retention).await) });
    let looked = task::answer(looking, "look at the index", LOOK_LIMIT).await;
    looked.unwrap_or_else(|error| IndexState::Failed {
        reason: error.to_string(),
    })
}
