mod text;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use self::text::{Content, Kind, StoredOnce};
use crate::once::Once;
use crate::{FencingToken, LockError, lock_id, permit_id};

/// The handle with which any process resumes, extends or releases a detached lease; returned by
/// [`LockGuard::detach`](crate::LockGuard::detach).
///
/// It is one text, which [`text`](Self::text) returns and `FromStr` reads. **Every program that has the text can use
/// the lock**: protect it like a password, for instance in an `HttpOnly` cookie or in a file that only its owner can
/// read. The documents of the locks, their change streams and the events of this library do not contain it, and it
/// cannot be computed from them. For that reason the handle has no `Display`, and its `Debug` form is without the text;
/// [`Serialize`] writes the text.
///
/// A handle is no longer valid when its lease was resumed: detaching it again creates another handle.
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
#[derive(Clone)]
pub struct LeaseHandle(Arc<Inner>);

struct Inner {
    text: String,
    content: Content,
    /// The id of the detached lease in the documents of its locks.
    lock_id: Arc<str>,
    /// The ids of these documents, in their order.
    ids: Vec<Arc<str>>,
}

/// The data of a lease in its handle.
pub(crate) struct Detached<'a> {
    /// The collection of its locks.
    pub(crate) home: String,
    /// The ids of their documents, in their order.
    pub(crate) ids: Vec<&'a str>,
    /// The index of the name that represents a set.
    pub(crate) title: usize,
    pub(crate) owner: &'a str,
    pub(crate) tokens: Vec<FencingToken>,
    /// How long the lease lasts.
    pub(crate) ttl: Duration,
    /// The shortest time for which the locks stay taken, counted from their acquisition.
    pub(crate) min_hold: Duration,
    /// How often the work under the lock may succeed.
    pub(crate) once: Option<Once>,
}

impl LeaseHandle {
    /// Creates the handle of a lease that is to be detached. Each handle is different.
    pub(crate) fn new(of: Detached<'_>) -> Self {
        let (kind, names) = match of.ids[..] {
            [id] => match permit_id::parts(id) {
                Some((semaphore, number)) => (Kind::Permit(number), vec![semaphore.to_owned()]),
                None => (Kind::Lock, vec![id.to_owned()]),
            },
            _ => (Kind::Set, of.ids.iter().map(|id| (*id).to_owned()).collect()),
        };
        let content = Content {
            kind,
            home: of.home,
            names,
            title: of.title,
            owner: of.owner.to_owned(),
            tokens: of.tokens,
            ttl: text::millis(of.ttl),
            min_hold: text::millis(of.min_hold),
            once: of.once.map(StoredOnce::from),
            secret: text::secret(),
        };
        Self::of(text::written(&content), content)
    }

    fn of(text: String, content: Content) -> Self {
        let ids = content.names.iter().map(|name| match content.kind {
            Kind::Permit(number) => permit_id::new(name, number),
            Kind::Lock | Kind::Set => Arc::from(name.as_str()),
        });
        Self(Arc::new(Inner {
            ids: ids.collect(),
            lock_id: lock_id::detached(&content.owner, &text, content.kind == Kind::Set),
            text,
            content,
        }))
    }

    /// The text of the handle: `mlh1.` and letters, digits, `-` and `_`, about 220 of them for one lock, and more for
    /// long names. Every program that has it can use the lock. It is not encrypted: the names, the owner and the
    /// collection can be read from it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The names of the locks in their order, or the name of the semaphore.
    pub fn names(&self) -> impl Iterator<Item = &str> + Send {
        self.0.content.names.iter().map(String::as_str)
    }

    /// The number of the permit, if it is the handle of a [`Permit`](crate::Permit), which
    /// [`LockProvider::resume_permit`](crate::LockProvider::resume_permit) takes.
    #[must_use]
    pub fn permit(&self) -> Option<u32> {
        match self.0.content.kind {
            Kind::Permit(number) => Some(number),
            Kind::Lock | Kind::Set => None,
        }
    }

    /// The owner of the lease, as operators see it. It stays the same when another process resumes the lease and detaches it again.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.0.content.owner
    }

    /// The fencing token of the hold that was detached; for a set, the token of the name that its caller wrote first.
    /// It may be less than the one in the document, which [`ForceRelease::only_if`](crate::ForceRelease::only_if)
    /// takes. A permit has none: its value is `i64::MIN`.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        if self.permit().is_some() {
            return FencingToken::NONE;
        }
        self.0.content.tokens[self.title()]
    }

    /// The id of the detached lease in the documents of its locks.
    pub(crate) fn lock_id(&self) -> &Arc<str> {
        &self.0.lock_id
    }

    /// The ids of these documents, in their order.
    pub(crate) fn ids(&self) -> &[Arc<str>] {
        &self.0.ids
    }

    /// The index of the name that represents a set.
    pub(crate) fn title(&self) -> usize {
        self.0.content.title
    }

    /// The name that represents the lease in errors.
    pub(crate) fn name(&self) -> &str {
        &self.0.content.names[self.title()]
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.0.content.ttl)
    }

    pub(crate) fn min_hold(&self) -> Duration {
        Duration::from_millis(self.0.content.min_hold)
    }

    pub(crate) fn once(&self) -> Option<Once> {
        self.0.content.once.map(Once::from)
    }

    /// Returns an error if the locks are in another collection.
    pub(crate) fn check_home(&self, home: &str) -> Result<(), LockError> {
        if self.0.content.home == home {
            return Ok(());
        }
        Err(invalid(format!(
            "its locks are in `{}`, and those of this provider in `{home}`",
            self.0.content.home
        )))
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

/// Reads the text of a handle; white space around it is ignored, such as the end of a line in a file. A text that can
/// be read may still belong to a lease that has ended, and a changed text is the handle of no lease.
///
/// # Errors
///
/// [`LockError::InvalidHandle`] if it is not the text of a handle.
impl FromStr for LeaseHandle {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        let text = text.trim();
        let content = text::read(text).map_err(invalid)?;
        Ok(Self::of(text.to_owned(), content))
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

impl PartialEq for LeaseHandle {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for LeaseHandle {}

impl fmt::Debug for LeaseHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHandle")
            .field("names", &self.0.content.names)
            .field("permit", &self.permit())
            .field("owner", &self.owner())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
