use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use crate::LockError;
use crate::error::meaning::Meaning;

/// The state of the TTL index, which removes the documents of unused locks; see
/// [`LockAdmin::index_state`](crate::LockAdmin::index_state).
///
/// Locks work without the index; only the documents of unused locks then stay in the collection.
///
/// `Display` is one short fact. It implements [`Serialize`] with the name of the variant in `state`, such as
/// `{"state":"ready"}` or `{"state":"conflict","index":"...","reason":"..."}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum IndexState {
    /// The TTL index exists; its build may still be running.
    Ready,
    /// The collection has no TTL index. Only `mongolock doctor` returns it.
    Missing,
    /// There is no collection; the first acquisition creates it and its index. Only
    /// `mongolock doctor` returns it.
    NoCollection,
    /// Another index on `expiresAt`, or one with the name `expiresAt_ttl`, prevents the creation of the TTL index.
    Conflict {
        /// The name of that index; `None` if the user may not list the indexes.
        index: Option<String>,
        /// The index that prevents it, with the command for `mongosh` that removes it, or the server's message.
        reason: String,
    },
    /// The collection is capped: MongoDB removes no document from it by its age.
    Capped,
    /// The collection has a collation of its own, which ignores separators. Then the permit of a
    /// [`Semaphore`](crate::Semaphore) can be the lock of another name, and names that differ only in accents may be
    /// one lock. Create the collection without a collation. After [`index_state`](crate::LockAdmin::index_state) the
    /// TTL index exists.
    Collation {
        /// The locale of the collation.
        locale: String,
    },
    /// The user lacks the privilege to create the index. `mongolock doctor`, which creates none, also returns it without
    /// the privilege to list the indexes.
    Unauthorized {
        /// The server's message.
        reason: String,
    },
    /// The index could not be checked or created for another, possibly transient reason, for instance because the build
    /// on a collection with documents would take more than 1 s; see
    /// [`index_state`](crate::LockAdmin::index_state).
    Failed {
        /// The error, or what prevents the creation of the index, with the command for `mongosh` that creates it.
        reason: String,
    },
}

impl IndexState {
    /// The state after an error of a check, which leaves it unknown whether the index exists.
    pub(crate) fn unknown(error: &LockError) -> Self {
        let reason = error.with_cause().to_string();
        match error.meaning() {
            Meaning::IndexConflict => Self::Conflict { index: None, reason },
            Meaning::Right => Self::Unauthorized { reason },
            _ => Self::Failed { reason },
        }
    }
}

impl Display for IndexState {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "the TTL index removes the documents of unused locks",
            Self::Missing => "there is no TTL index: the documents of unused locks are not removed",
            Self::NoCollection => {
                "there is no collection yet: the first acquisition creates it and its TTL index"
            }
            Self::Capped => "the collection is capped: the documents of unused locks are not removed",
            Self::Collation { locale } => {
                return write!(
                    f,
                    "the collection has the collation `{locale}`: different names may be one lock"
                );
            }
            Self::Conflict { reason, .. } | Self::Unauthorized { reason } | Self::Failed { reason } => reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_names_state_and_reason() {
        let reason = || "why".to_owned();
        let (index, locale) = (Some("mine".to_owned()), "en".to_owned());
        let conflict = IndexState::Conflict {
            index,
            reason: reason(),
        };
        for (state, json) in [
            (IndexState::Ready, r#"{"state":"ready"}"#),
            (conflict, r#"{"state":"conflict","index":"mine","reason":"why"}"#),
            (IndexState::Missing, r#"{"state":"missing"}"#),
            (IndexState::NoCollection, r#"{"state":"no_collection"}"#),
            (IndexState::Capped, r#"{"state":"capped"}"#),
            (
                IndexState::Collation { locale },
                r#"{"state":"collation","locale":"en"}"#,
            ),
            (
                IndexState::Unauthorized { reason: reason() },
                r#"{"state":"unauthorized","reason":"why"}"#,
            ),
            (
                IndexState::Failed { reason: reason() },
                r#"{"state":"failed","reason":"why"}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&state).unwrap(), json);
        }
    }
}
