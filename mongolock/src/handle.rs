use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::duration::in_millis;
use crate::name::RenderedName;
use crate::options::{self, MOST_NAMES, Once};
use crate::permit_id::{self, MOST_PERMITS};
use crate::protocol::Id;
use crate::{FencingToken, LockError};

/// The beginning of every text. If the form of the document changes, the number changes.
const PREFIX: &str = "mlh1.";

/// The longest time in a handle: that of the longest retention. A much longer one could not be added to a date.
const LONGEST: Duration = Duration::from_secs(i32::MAX as u64);

/// The longest text of a handle in bytes: a set with the longest names needs less.
const MAX_TEXT: usize = 2 * 1024 * 1024;

/// The longest name of a collection with its database in bytes: MongoDB allows 255.
const MAX_HOME: usize = 512;

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
#[derive(Clone, PartialEq, Eq)]
pub struct LeaseHandle(Arc<Inner>);

/// The text of a handle, and what it says.
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
        Self::of(written(&lease), lease)
    }

    fn of(text: String, lease: Detached) -> Self {
        Self(Arc::new(Inner {
            lock_id: Id::of_handle(&text, lease.ids.len() > 1).text(&lease.owner),
            text,
            lease,
        }))
    }

    /// The text of the handle: `mlh1.` and letters, digits, `-` and `_`, about 220 of them for one lock, and more for
    /// long names. Every program that has it can use the lock. It is not encrypted: the names, the owner and the
    /// collection can be read from it.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The names of the locks in their order, or the name of the semaphore.
    pub fn names(&self) -> impl Iterator<Item = &str> + Send {
        self.0.lease.ids.iter().map(|id| permit_id::name(id))
    }

    /// The number of the permit, if it is the handle of a [`Permit`](crate::Permit), which
    /// [`LockProvider::resume_permit`](crate::LockProvider::resume_permit) takes.
    pub fn permit(&self) -> Option<u32> {
        permit_id::number(&self.0.lease.ids[0])
    }

    /// The owner of the lease, as operators see it. It stays the same when another process resumes the lease and detaches it again.
    pub fn owner(&self) -> &str {
        &self.0.lease.owner
    }

    /// The fencing token of the hold that was detached; for a set, the token of the name that its caller wrote first.
    /// It may be less than the one in the document, which [`ForceRelease::only_if`](crate::ForceRelease::only_if)
    /// takes. A permit has none: its value is `i64::MIN`.
    pub fn fencing_token(&self) -> FencingToken {
        match self.permit() {
            Some(_) => FencingToken::NONE,
            None => self.0.lease.tokens[self.0.lease.title],
        }
    }

    /// What the handle says of its lease.
    pub(crate) fn lease(&self) -> &Detached {
        &self.0.lease
    }

    /// The id of the detached lease in the documents of its locks.
    pub(crate) fn lock_id(&self) -> &Arc<str> {
        &self.0.lock_id
    }

    /// The name that represents the lease in errors.
    pub(crate) fn name(&self) -> &str {
        permit_id::name(&self.0.lease.ids[self.0.lease.title])
    }

    /// Returns an error if the locks are in another collection.
    pub(crate) fn check_home(&self, home: &str) -> Result<(), LockError> {
        let own = &self.0.lease.home;
        if own == home {
            return Ok(());
        }
        let reason = format!("its locks are in `{own}`, and those of this provider in `{home}`");
        Err(invalid(reason))
    }
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
        let lease = read(text).map_err(invalid)?;
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

/// What a handle says of a lease. The names of the fields are short, because a cookie has little room.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Detached {
    /// The collection of the locks with its database.
    #[serde(rename = "c")]
    pub(crate) home: String,
    /// The ids of the documents of the locks, in their order.
    #[serde(rename = "n")]
    pub(crate) ids: Vec<Arc<str>>,
    /// The place of the name that stands for a set.
    #[serde(rename = "i")]
    pub(crate) title: usize,
    #[serde(rename = "o")]
    pub(crate) owner: String,
    /// The fencing token of the hold for each name.
    #[serde(rename = "t")]
    pub(crate) tokens: Vec<FencingToken>,
    /// For how long the lease lasts after it was detached.
    #[serde(rename = "l", with = "in_millis")]
    pub(crate) ttl: Duration,
    /// The shortest time for which the locks stay taken, counted from their acquisition.
    #[serde(rename = "m", with = "in_millis")]
    pub(crate) min_hold: Duration,
    /// How often the work under the lock may succeed.
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    pub(crate) once: Option<Once>,
    /// 128 random bits: the id of the lease cannot be guessed, and from the id the handle cannot.
    #[serde(rename = "s")]
    pub(crate) secret: [u64; 2],
}

/// The text of a handle: the prefix, and the document as JSON in base64.
fn written(lease: &Detached) -> String {
    let json = serde_json::to_vec(lease);
    encoded(json.expect("numbers and strings have a JSON form"))
}

/// The text of a handle with this document.
fn encoded(json: impl AsRef<[u8]>) -> String {
    let mut text = PREFIX.to_owned();
    BASE64_URL_SAFE_NO_PAD.encode_string(json, &mut text);
    text
}

/// Reads the text of a handle; the error says what is wrong, and does not repeat the text.
fn read(text: &str) -> Result<Detached, String> {
    if text.len() > MAX_TEXT {
        return Err("its text is too long".to_owned());
    }
    let encoded = text
        .strip_prefix(PREFIX)
        .ok_or_else(|| format!("its text does not begin with `{PREFIX}`"))?;
    let json = BASE64_URL_SAFE_NO_PAD
        .decode(encoded)
        .map_err(|_| "its text is not base64".to_owned())?;
    let lease: Detached =
        serde_json::from_slice(&json).map_err(|_| "its text does not describe a lease".to_owned())?;
    lease.check()?;
    Ok(lease)
}

impl Detached {
    fn check(&self) -> Result<(), String> {
        let (names, ids) = (self.ids.iter().map(|id| permit_id::name(id)), &self.ids);
        let are_ordered = (1..=MOST_NAMES).contains(&ids.len()) && ids.is_sorted_by(|id, next| id < next);
        let most = if ids.len() == 1 { MOST_PERMITS } else { 0 };
        let are_of_kind = ids
            .iter()
            .all(|id| permit_id::number(id).is_none_or(|number| number < most));
        let is_complete = self.tokens.len() == ids.len() && self.title < ids.len();
        if !are_ordered || !are_of_kind || !is_complete {
            return Err("its names are not those of a lease".to_owned());
        }
        // The text is a part of errors, so it must not have control characters.
        if self.home.len() > MAX_HOME || self.home.chars().any(char::is_control) {
            return Err("its collection cannot exist".to_owned());
        }
        let said = |error: LockError| error.to_string();
        for name in names {
            RenderedName::new(name).check().map_err(said)?;
        }
        options::check_owner(&self.owner).map_err(|_| "its owner breaks a rule".to_owned())?;
        options::check_ttl(self.ttl).map_err(said)?;
        let once = self.once.map(|(Once::PerPeriod(time) | Once::Kept(time))| time);
        if once.is_some_and(|time| time > LONGEST) || self.min_hold > LONGEST {
            return Err("one of its times is too long".to_owned());
        }
        Ok(())
    }
}

/// 128 random bits. A random UUID has six fixed bits; of two of them, one turned by half its length, no bit is fixed in both.
pub(crate) fn secret() -> [u64; 2] {
    let [one, other] = [Uuid::new_v4(), Uuid::new_v4()];
    let bits = one.as_u128() ^ other.as_u128().rotate_left(64);
    Uuid::from_u128(bits).as_u64_pair().into()
}

#[cfg(test)]
mod tests;
