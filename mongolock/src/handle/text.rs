//! The text of a handle: `mlh1.`, and a JSON document in base64.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::name::RenderedName;
use crate::once::Once;
use crate::options::{self, MOST_NAMES};
use crate::{FencingToken, LockError};

/// The beginning of every text. If the form of the document changes, the number changes.
const PREFIX: &str = "mlh1.";

/// The longest time in a handle, in milliseconds: that of the longest retention. A much longer one could not be added to a date.
const LONGEST: u64 = i32::MAX as u64 * 1000;

/// The longest text of a handle in bytes: a set with the longest names needs less.
const MAX_TEXT: usize = 2 * 1024 * 1024;

/// The longest name of a collection with its database in bytes: MongoDB allows 255.
const MAX_HOME: usize = 512;

/// The content of a handle. The names of the fields are short, because a cookie has little space.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Content {
    #[serde(rename = "k")]
    pub(super) kind: Kind,
    /// The collection of the locks with its database.
    #[serde(rename = "c")]
    pub(super) home: String,
    /// The names of the locks in their order, or that of the semaphore.
    #[serde(rename = "n")]
    pub(super) names: Vec<String>,
    /// The index of the name that represents a set.
    #[serde(rename = "i")]
    pub(super) title: usize,
    #[serde(rename = "o")]
    pub(super) owner: String,
    /// The fencing token of the hold for each name.
    #[serde(rename = "t")]
    pub(super) tokens: Vec<FencingToken>,
    /// The time for which the lease lasts after it was detached, in milliseconds.
    #[serde(rename = "l")]
    pub(super) ttl: u64,
    /// The minimum hold in milliseconds.
    #[serde(rename = "m")]
    pub(super) min_hold: u64,
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    pub(super) once: Option<StoredOnce>,
    /// 128 random bits, so that the id of the lease cannot be guessed, and the handle cannot be computed from the id.
    #[serde(rename = "s")]
    pub(super) secret: [u64; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    #[serde(rename = "lock")]
    Lock,
    #[serde(rename = "set")]
    Set,
    /// The permit with this number.
    #[serde(rename = "permit")]
    Permit(u32),
}

/// How often the work under a lock may succeed; the times are in milliseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum StoredOnce {
    #[serde(rename = "per")]
    PerPeriod(u64),
    #[serde(rename = "kept")]
    Kept(u64),
}

/// The text of a handle.
pub(super) fn written(content: &Content) -> String {
    match serde_json::to_vec(content) {
        Ok(json) => encoded(json),
        Err(error) => unreachable!("numbers and strings have a JSON form: {error}"),
    }
}

/// The text of a handle with this document.
pub(super) fn encoded(json: impl AsRef<[u8]>) -> String {
    let mut text = PREFIX.to_owned();
    BASE64_URL_SAFE_NO_PAD.encode_string(json, &mut text);
    text
}

/// Reads the text of a handle; the error says what is wrong, and does not repeat the text.
pub(super) fn read(text: &str) -> Result<Content, String> {
    if text.len() > MAX_TEXT {
        return Err("its text is too long".to_owned());
    }
    let encoded = text
        .strip_prefix(PREFIX)
        .ok_or_else(|| format!("its text does not begin with `{PREFIX}`"))?;
    let json = BASE64_URL_SAFE_NO_PAD
        .decode(encoded)
        .map_err(|_| "its text is not base64".to_owned())?;
    let content: Content =
        serde_json::from_slice(&json).map_err(|_| "its text does not describe a lease".to_owned())?;
    content.check()?;
    Ok(content)
}

impl Content {
    fn check(&self) -> Result<(), String> {
        let are_as_many = match self.kind {
            Kind::Lock | Kind::Permit(_) => self.names.len() == 1,
            Kind::Set => (2..=MOST_NAMES).contains(&self.names.len()),
        };
        let are_ordered = self.names.is_sorted_by(|name, next| name < next);
        let is_complete = self.tokens.len() == self.names.len() && self.title < self.names.len();
        if !are_as_many || !are_ordered || !is_complete {
            return Err("its names are not those of a lease".to_owned());
        }
        // The text is a part of errors, so it must not have control characters.
        if self.home.len() > MAX_HOME || self.home.chars().any(char::is_control) {
            return Err("its collection cannot exist".to_owned());
        }
        for name in &self.names {
            RenderedName::new(name).check().map_err(|error| said(&error))?;
        }
        options::check_owner(&self.owner).map_err(|_| "its owner breaks a rule".to_owned())?;
        options::check_ttl(Duration::from_millis(self.ttl)).map_err(|error| said(&error))?;
        let times = [Some(self.min_hold), self.once.map(StoredOnce::millis)];
        if times.into_iter().flatten().any(|time| time > LONGEST) {
            return Err("one of its times is too long".to_owned());
        }
        Ok(())
    }
}

/// The text of an error about a handle.
fn said(error: &LockError) -> String {
    error.to_string()
}

impl StoredOnce {
    fn millis(self) -> u64 {
        match self {
            Self::PerPeriod(time) | Self::Kept(time) => time,
        }
    }
}

impl From<Once> for StoredOnce {
    fn from(once: Once) -> Self {
        match once {
            Once::PerPeriod(period) => Self::PerPeriod(millis(period)),
            Once::Kept(kept) => Self::Kept(millis(kept)),
        }
    }
}

impl From<StoredOnce> for Once {
    fn from(once: StoredOnce) -> Self {
        match once {
            StoredOnce::PerPeriod(period) => Self::PerPeriod(Duration::from_millis(period)),
            StoredOnce::Kept(kept) => Self::Kept(Duration::from_millis(kept)),
        }
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// 128 random bits. A random UUID has six fixed bits. Two UUIDs are combined, one of them rotated by half its length,
/// so that no fixed bits coincide.
pub(super) fn secret() -> [u64; 2] {
    let [one, other] = [Uuid::new_v4(), Uuid::new_v4()];
    let bits = one.as_u128() ^ other.as_u128().rotate_left(64);
    Uuid::from_u128(bits).as_u64_pair().into()
}
