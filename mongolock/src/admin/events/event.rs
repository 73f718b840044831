use mongodb::bson::DateTime;
use serde::Serialize;

use crate::FencingToken;
use crate::store::as_rfc3339;

/// Something that has happened to a lock or to a permit; returned by [`LockEvents`](crate::LockEvents).
///
/// It implements [`Serialize`] for reports and logs: `kind` is `event` there, fields without a value are left out, and dates
/// are RFC 3339 strings in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockEvent {
    /// The time of the event by the server's clock. Before MongoDB 6.0 it is a whole second.
    ///
    /// For the result of a query (`Held`, `Expired`, `Gap`, and all events without a change stream) it is the time of
    /// that query.
    #[serde(serialize_with = "as_rfc3339")]
    pub at: DateTime,
    /// What has happened.
    #[serde(rename = "event")]
    pub kind: LockEventKind,
    /// The lock's name; for a permit that of its semaphore. Empty for a gap, and if the collection was dropped or renamed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The number of the permit, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit: Option<u32>,
    /// The owner that has the lock now, or had it last. `None` if it is not known: the end of a hold that
    /// began before the events does not name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The owner whose hold a takeover has replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_owner: Option<String>,
    /// The fencing token of the hold, as the document has it; see [`LockInfo::fencing_token`](crate::LockInfo::fencing_token).
    /// `None` for a permit, and if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<FencingToken>,
    /// The field `lockId` of the hold in the document, which identifies the hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_id: Option<String>,
    /// The time at which the lock was acquired, if it is known.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_rfc3339")]
    pub acquired_at: Option<DateTime>,
    /// The end of the lease, if the event has it. Renewals change it without an event.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_rfc3339")]
    pub expires_at: Option<DateTime>,
    /// For a gap, the last time before which no event was missed.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_rfc3339")]
    pub since: Option<DateTime>,
}

/// What has happened to a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LockEventKind {
    /// The lock was held when the events began.
    Held,
    /// A process has acquired the lock.
    Acquired,
    /// The lease was detached: no process renews it, and a [handle](crate::LeaseHandle) owns it.
    Detached,
    /// A process has resumed a detached lease.
    Resumed,
    /// The lock was released, by its holder or by force.
    Released,
    /// The work under the lock is done and marked.
    Done,
    /// The lease has ended without a release. The server has no event for an expiry: a query finds it, so it is
    /// reported only while the events are read live.
    Expired,
    /// A process has acquired the lock, and the hold before it has not been released: its lease had expired.
    TakenOver,
    /// The document was deleted. If the collection was dropped or renamed, there is an event for each hold that is known, and one
    /// without a name for all others.
    Deleted,
    /// The document can no longer be read as a lock. A change by hand that leaves the field `lockId` as it was is an event
    /// once a query finds it when the lease ends.
    Damaged,
    /// Events were missed, because the server no longer has them. The locks were read again, and the events that follow are
    /// the differences.
    Gap,
}

impl LockEventKind {
    /// The kind as `LockEvent` serializes it, such as `taken_over`.
    ///
    /// ```
    /// assert_eq!(mongolock::LockEventKind::TakenOver.as_str(), "taken_over");
    /// ```
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Acquired => "acquired",
            Self::Detached => "detached",
            Self::Resumed => "resumed",
            Self::Released => "released",
            Self::Done => "done",
            Self::Expired => "expired",
            Self::TakenOver => "taken_over",
            Self::Deleted => "deleted",
            Self::Damaged => "damaged",
            Self::Gap => "gap",
        }
    }

    /// Whether a process or a handle has the lock after the event.
    pub const fn is_held(self) -> bool {
        matches!(
            self,
            Self::Held | Self::Acquired | Self::Detached | Self::Resumed | Self::TakenOver
        )
    }
}
