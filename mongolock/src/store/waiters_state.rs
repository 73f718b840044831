use serde::Serialize;

use super::IndexState;
use crate::LockError;

/// Whether a provider can use the collection of the waiters; see
/// [`LockAdmin::waiters_state`](crate::LockAdmin::waiters_state).
///
/// It implements [`Serialize`] with the name of the variant in `state`, such as `{"state":"ready"}` or
/// `{"state":"unauthorized","reason":"..."}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitersState {
    /// The documents can be read and written, and the indexes exist.
    Ready,
    /// The user lacks a privilege on the collection.
    Unauthorized {
        /// The server's message, which names the command.
        reason: String,
    },
    /// The collection could not be checked for another, possibly transient reason.
    Failed {
        /// The error.
        reason: String,
    },
}

impl WaitersState {
    /// The state after a command that failed.
    pub(crate) fn after(error: &LockError) -> Self {
        IndexState::unknown(error).into()
    }
}

impl From<IndexState> for WaitersState {
    fn from(state: IndexState) -> Self {
        match state {
            // The waiters are found by their names as they are.
            IndexState::Ready | IndexState::Collation { .. } => Self::Ready,
            IndexState::Unauthorized { reason } => Self::Unauthorized { reason },
            IndexState::Conflict { reason, .. } | IndexState::Failed { reason } => Self::Failed { reason },
            IndexState::Capped => Self::Failed {
                reason: "the collection is capped".to_owned(),
            },
            IndexState::Missing | IndexState::NoCollection => Self::Failed {
                reason: "the indexes are missing".to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_names_state_and_reason() {
        let json = |state: WaitersState| serde_json::to_string(&state).unwrap();
        let reason = || "why".to_owned();
        assert_eq!(json(WaitersState::Ready), r#"{"state":"ready"}"#);
        assert_eq!(
            json(WaitersState::Unauthorized { reason: reason() }),
            r#"{"state":"unauthorized","reason":"why"}"#
        );
        assert_eq!(
            json(WaitersState::Failed { reason: reason() }),
            r#"{"state":"failed","reason":"why"}"#
        );
    }
}
