use std::time::Duration;

use mongodb::error::Error;

use super::driver_error;
use crate::LockError;
use crate::timing::INDEX_RETRY;

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

    /// The state after an error that leaves open whether the index exists.
    pub(crate) fn unknown(error: &LockError) -> Self {
        match error {
            LockError::Mongo(error) => Self::from_error(error),
            other => Self::Failed {
                reason: other.to_string(),
            },
        }
    }
}

/// The result of one check of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexCheck {
    pub(crate) state: IndexState,
    /// The time until the next check if the index is not there: minutes after a failed build, because each build on a
    /// filled collection can delay every acquire.
    pub(crate) next: Duration,
}

impl From<IndexState> for IndexCheck {
    fn from(state: IndexState) -> Self {
        Self {
            state,
            next: INDEX_RETRY,
        }
    }
}
