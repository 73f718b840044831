//! When a lock is free: once it was released, or its time is over, after a lease that ended without a release with a margin,
//! if the provider sets one.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};

use super::mongo::millis;
use crate::lock_id::{self, KEPT_PREFIX, MARK_PREFIX};

/// The time for which the lock stays taken after the end in its document. A mark and a minimum hold have no holder that could
/// still rely on a lease.
pub(super) fn margin_after(lock_id: &str, takeover_margin: Duration) -> Duration {
    if lock_id::is_claim(lock_id) {
        takeover_margin
    } else {
        Duration::ZERO
    }
}

/// The time until the lock is free, if the end in its document is so many milliseconds ahead. A released lock is free
/// whatever that end is: the clock that has set it may have been ahead.
pub(super) fn until_free(lock_id: Option<&str>, left: i64, takeover_margin: Duration) -> Duration {
    let margin = match lock_id {
        Some("") => return Duration::ZERO,
        Some(id) => margin_after(id, takeover_margin),
        // An id that is no string belongs to no claim.
        None => Duration::ZERO,
    };
    Duration::from_millis(u64::try_from(left.saturating_add(millis(margin))).unwrap_or_default())
}

/// Whether the lock is free, as an expression of the server. A missing `expiresAt` is less than every date, so the lock
/// of a missing document is free.
pub(super) fn free(takeover_margin: Duration) -> Document {
    doc! { "$or": [{ "$eq": ["$lockId", ""] }, { "$lte": ["$expiresAt", latest_end(takeover_margin)] }] }
}

/// Whether the lock is not free, as an expression of the server.
pub(super) fn taken(takeover_margin: Duration) -> Document {
    doc! { "$and": [{ "$ne": ["$lockId", ""] }, { "$gt": ["$expiresAt", latest_end(takeover_margin)] }] }
}

/// The latest `expiresAt` of a lock that is free. The margin is subtracted from the server's time and not added to
/// `expiresAt`, which another program may have set to a value that is no date.
fn latest_end(takeover_margin: Duration) -> Bson {
    if takeover_margin.is_zero() {
        return "$$NOW".into();
    }
    let early = doc! { "$subtract": ["$$NOW", millis(takeover_margin)] };
    doc! { "$cond": [is_claimed(), early, "$$NOW"] }.into()
}

/// Whether the `lockId` is that of a claim, by the rule of [`margin_after`]. An id that is no string belongs to none.
pub(super) fn is_claimed() -> Document {
    let is_text = doc! { "$eq": [{ "$type": "$lockId" }, "string"] };
    let id = doc! { "$cond": [is_text, "$lockId", ""] };
    // The search for a text compares bytes, whatever the collation of the collection is.
    let begins = |prefix: &str| doc! { "$eq": [{ "$indexOfBytes": [&id, prefix] }, 0] };
    doc! { "$not": { "$or": [{ "$eq": [&id, ""] }, begins(MARK_PREFIX), begins(KEPT_PREFIX)] } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_applies_to_claims_only() {
        let margin = Duration::from_secs(5);
        for (lock_id, expected) in [
            ("owner#1", margin),
            ("0b3c8f6e4b7a4c0f9a5c", margin),
            ("done", margin),
            ("not-done:#1", margin),
            ("", Duration::ZERO),
            ("done:owner#1", Duration::ZERO),
            ("kept:owner#1", Duration::ZERO),
        ] {
            assert_eq!(margin_after(lock_id, margin), expected, "{lock_id:?}");
        }
    }

    /// Without a margin the commands are as short as they can be.
    #[test]
    fn without_a_margin_the_end_is_compared_with_the_time() {
        let end = |compare: &str| doc! { compare: ["$expiresAt", "$$NOW"] };
        let free = free(Duration::ZERO);
        assert_eq!(free, doc! { "$or": [{ "$eq": ["$lockId", ""] }, end("$lte")] });
        let taken = taken(Duration::ZERO);
        assert_eq!(taken, doc! { "$and": [{ "$ne": ["$lockId", ""] }, end("$gt")] });
    }
}
