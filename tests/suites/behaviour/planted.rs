//! Documents that another program has written.

use mongodb::bson::{Bson, DateTime, Document, doc};

/// The `lockId` of a claim of DistributedLock.MongoDB, which names no owner.
pub(crate) const GUID: &str = "0b8e3f3a-6d0c-4a53-a3a4-5f0f6a5c3c11";

/// A lease of this claim with token 17, which ends so many milliseconds from now.
pub(crate) fn claim(name: impl Into<Bson>, lock_id: impl Into<Bson>, lasts: i64) -> Document {
    let now = DateTime::now();
    let end = DateTime::from_millis(now.timestamp_millis() + lasts);
    doc! { "_id": name, "lockId": lock_id, "acquiredAt": now, "expiresAt": end, "fencingToken": 17_i64 }
}

/// A lock that DistributedLock.MongoDB holds for ten minutes.
pub(crate) fn foreign(name: impl Into<Bson>) -> Document {
    claim(name, GUID, 600_000)
}
