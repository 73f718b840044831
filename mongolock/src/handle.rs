mod text;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) use self::text::{Detached, secret};
use crate::once::Once;
use crate::{FencingToken, LockError, lock_id, permit_id};

/// What a detached lease is resumed, extended and released with, in any process: the result of
/// [`LockGuard::detach`](crate::LockGuard::detach).
///
/// It is one text, which [`text`](Self::text) returns and `FromStr` reads. **A program that has the text has the lock**: keep it as
/// a password, for instance in an `HttpOnly` cookie or in a file that only its owner can read. The documents of the locks, their
/// change streams and the events of this library do not have it, and it cannot be made from what they have. For that reason the
/// handle has no `Display`, and its `Debug` form is without the text; [`Serialize`] writes the text.
///
/// A handle is used up when its lease is resumed: detaching it again makes another one.
///
/// ```
/// use std::time::Duration;
///
/// use mongolock::{LeaseHandle, LockError, LockProvider};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// # let provider = LockProvider::in_memory();
/// let guard = provider.lock("document:42").await?;
/// let handle = guard.detach(Duration::from_secs(30 * 60)).await?;
/// let cookie: String = handle.text().to_owned();
///
/// // Another request, in another process.
/// let handle: LeaseHandle = cookie.parse()?;
/// let guard = provider.resume(&handle).await?;
/// assert!(guard.fencing_token() > handle.fencing_token());
/// guard.release().await
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct LeaseHandle(Arc<Inner>);

#[derive(PartialEq, Eq)]
struct Inner {
    text: String,
    lease: Detached,
    /// The id of the detached lease in the documents of its locks.
    lock_id: Arc<str>,
}

impl LeaseHandle {
    /// Makes the handle of a lease that is to be detached. No two handles are alike.
    pub(crate) fn new(lease: Detached) -> Self {
        Self::of(text::written(&lease), lease)
    }

    fn of(text: String, lease: Detached) -> Self {
        Self(Arc::new(Inner {
            lock_id: lock_id::detached(&lease.owner, &text, lease.ids.len() > 1),
            text,
            lease,
        }))
    }

    /// The text of the handle: `mlh1.` and letters, digits, `-` and `_`, about 220 of them for one lock, and more for long names.
    /// A program that has it has the lock. It is not encrypted: who has it can read the names, the owner and the collection.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The names of the locks in their order, or the name of the semaphore.
    pub fn names(&self) -> impl Iterator<Item = &str> + Send {
        self.0.lease.ids.iter().map(|id| permit_id::shown(id))
    }

    /// The number of the permit, if it is the handle of a [`Permit`](crate::Permit), which
    /// [`LockProvider::resume_permit`](crate::LockProvider::resume_permit) takes.
    #[must_use]
    pub fn permit(&self) -> Option<u32> {
        permit_id::number(&self.0.lease.ids[0])
    }

    /// The owner of the lease, as operators see it. It stays the same when another process resumes the lease and detaches it again.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.0.lease.owner
    }

    /// The fencing token of the hold that was detached; of a set that of the name which its caller had written first. It may be
    /// less than the one in the document, which [`ForceRelease::only_if`](crate::ForceRelease::only_if) takes. A permit has none: its
    /// value is `i64::MIN`.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        match self.permit() {
            Some(_) => FencingToken::NONE,
            None => self.0.lease.tokens[self.title()],
        }
    }

    /// The id of the detached lease in the documents of its locks.
    pub(crate) fn lock_id(&self) -> &Arc<str> {
        &self.0.lock_id
    }

    /// The ids of these documents, in their order.
    pub(crate) fn ids(&self) -> &[Arc<str>] {
        &self.0.lease.ids
    }

    /// The place of the name that stands for a set.
    pub(crate) fn title(&self) -> usize {
        self.0.lease.title
    }

    /// The name that stands for the lease in errors.
    pub(crate) fn name(&self) -> &str {
        permit_id::shown(&self.0.lease.ids[self.title()])
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.0.lease.ttl
    }

    pub(crate) fn min_hold(&self) -> Duration {
        self.0.lease.min_hold
    }

    pub(crate) fn once(&self) -> Option<Once> {
        self.0.lease.once
    }

    /// Returns an error if the locks are in another place.
    pub(crate) fn check_home(&self, home: &str) -> Result<(), LockError> {
        let own = &self.0.lease.home;
        if own == home {
            return Ok(());
        }
        let reason = format!("its locks are in `{own}`, and those of this provider in `{home}`");
        Err(invalid(reason))
    }
}

/// The text of a handle with this document.
#[cfg(fuzzing)]
pub(crate) fn encoded(document: &str) -> String {
    text::encoded(document)
}

/// The error for a handle that cannot be used; the reason does not repeat its text.
pub(crate) fn invalid(reason: impl Into<String>) -> LockError {
    LockError::InvalidHandle {
        reason: reason.into(),
    }
}

/// Reads the text of a handle; white space around it is ignored, such as the end of a line in a file. That the text can be read does
/// not say that its lease runs, or that it is unchanged: a changed text is the handle of no lease.
///
/// # Errors
///
/// [`LockError::InvalidHandle`] if it is not the text of a handle.
impl FromStr for LeaseHandle {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        let text = text.trim();
        let lease = text::read(text).map_err(invalid)?;
        Ok(Self::of(text.to_owned(), lease))
    }
}

impl Serialize for LeaseHandle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

impl<'de> Deserialize<'de> for LeaseHandle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Debug for LeaseHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHandle")
            .field("names", &self.names().collect::<Vec<_>>())
            .field("permit", &self.permit())
            .field("owner", &self.owner())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
