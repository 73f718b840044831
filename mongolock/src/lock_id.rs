//! The texts of a `lockId`, and the meaning of their uuids.

use std::sync::Arc;

use crate::protocol::Id;
pub(crate) use crate::protocol::text::*;

/// The id of a detached lease with this owner whose handle has this text.
pub(crate) fn detached(owner: &str, text: &str, is_set: bool) -> Arc<str> {
    Id::of_handle(text, is_set).text(owner)
}

/// Whether an id is that of claims on several locks.
pub(crate) fn is_set(id: &str) -> bool {
    Id::parse(id).is_some_and(Id::is_of_set)
}

/// Whether an id is that of a detached lease, which no process renews.
pub(crate) fn is_detached(id: &str) -> bool {
    Id::parse(id).is_some_and(Id::is_detached)
}

/// Whether an id is that of a claim that has resumed a detached lease.
pub(crate) fn is_resumed(id: &str) -> bool {
    Id::parse(id).is_some_and(Id::is_resumed)
}
