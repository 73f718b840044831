//! The texts of a `lockId`, and the meaning of their uuids.

use crate::protocol::Id;
pub(crate) use crate::protocol::text::*;

/// Whether an id is that of claims on several locks.
pub(crate) fn is_set(id: &str) -> bool {
    Id::parse(id).is_some_and(Id::is_of_set)
}

/// Whether an id is that of a detached lease, which no process renews.
pub(crate) fn is_detached(id: &str) -> bool {
    Id::parse(id).is_some_and(Id::is_detached)
}
