//! Documents that another program has written.

use mongodb::bson::{Bson, Document};
use mongolock_tests::claim;

/// The `lockId` of a claim of DistributedLock.MongoDB, which names no owner.
pub(crate) const GUID: &str = "0b8e3f3a-6d0c-4a53-a3a4-5f0f6a5c3c11";

/// A lock that DistributedLock.MongoDB holds for ten minutes.
pub(crate) fn foreign(name: impl Into<Bson>) -> Document {
    claim(name, GUID, 600_000)
}
