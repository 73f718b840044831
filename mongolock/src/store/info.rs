use std::time::Duration;

use mongodb::bson::DateTime;

use crate::FencingToken;

/// What the document of a lock says, at one moment of the server's clock; see [`LockAdmin`](crate::LockAdmin).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The lock's name.
    pub name: String,
    /// Who holds the lock, or held it when its lease ran out; `None` once it is released, and for holders that are not
    /// mongolock's and give no owner (DistributedLock.MongoDB).
    pub owner: Option<String>,
    /// Whether it is held.
    pub state: LockState,
    /// The token of the latest hold. A claim that is handed over within a process reserves the tokens of all its holds
    /// at once: then it is the last of these, and the present holder's may be smaller.
    pub fencing_token: FencingToken,
    /// When the lock was last acquired from the server.
    pub acquired_at: DateTime,
    /// When the lease ends if it is not renewed, or ended.
    pub expires_at: DateTime,
    /// How long the lock stays closed to others if nothing happens; zero when it is free.
    pub remaining: Duration,
}

/// What has become of the latest hold of a lock, by the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockState {
    /// The holder's lease runs.
    Held,
    /// The lease ran out without a release: its holder has crashed or lost the lock. The lock is free.
    Expired,
    /// The lock was given back. It is free; or, if some time remains, it stays closed until its minimum hold is over.
    Released,
}

/// The fields of a document for the view of an operator, and the server's time at which they were read.
pub(crate) struct Seen<'a> {
    pub(crate) name: &'a str,
    pub(crate) lock_id: &'a str,
    pub(crate) acquired_at: DateTime,
    pub(crate) expires_at: DateTime,
    pub(crate) token: i64,
    pub(crate) now: DateTime,
}

impl From<Seen<'_>> for LockInfo {
    fn from(seen: Seen<'_>) -> Self {
        let left = seen
            .expires_at
            .timestamp_millis()
            .saturating_sub(seen.now.timestamp_millis());
        let left = u64::try_from(left).unwrap_or_default();
        Self {
            name: seen.name.to_owned(),
            owner: owner(seen.lock_id).map(str::to_owned),
            state: match (seen.lock_id, left) {
                ("", _) => LockState::Released,
                (_, 0) => LockState::Expired,
                _ => LockState::Held,
            },
            fencing_token: FencingToken::new(seen.token),
            acquired_at: seen.acquired_at,
            expires_at: seen.expires_at,
            remaining: Duration::from_millis(left),
        }
    }
}

/// The owner in the id of a claim, which is the part before the last `#`: an owner may contain one, the id after it does
/// not. `None` after a release, and for a claim of another program.
pub(crate) fn owner(lock_id: &str) -> Option<&str> {
    lock_id.rsplit_once('#').map(|(owner, _)| owner)
}
