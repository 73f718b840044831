//! The text of a handle: `mlh1.`, and a JSON document in base64.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::duration::in_millis;
use crate::name::RenderedName;
use crate::options::{self, MOST_NAMES, Once};
use crate::{FencingToken, LockError, permit_id};

/// The beginning of every text. If the form of the document changes, the number changes.
const PREFIX: &str = "mlh1.";

/// The longest time in a handle: that of the longest retention. A much longer one could not be added to a date.
const LONGEST: Duration = Duration::from_secs(i32::MAX as u64);

/// The longest text of a handle in bytes: a set with the longest names needs less.
const MAX_TEXT: usize = 2 * 1024 * 1024;

/// The longest name of a collection with its database in bytes: MongoDB allows 255.
const MAX_HOME: usize = 512;

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

/// The text of a handle.
pub(super) fn written(lease: &Detached) -> String {
    match serde_json::to_vec(lease) {
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
pub(super) fn read(text: &str) -> Result<Detached, String> {
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
        let (names, ids) = (self.ids.iter().map(|id| permit_id::shown(id)), &self.ids);
        let are_ordered = (1..=MOST_NAMES).contains(&ids.len()) && ids.is_sorted_by(|id, next| id < next);
        let are_locks = ids.len() == 1 || ids.iter().all(|id| permit_id::number(id).is_none());
        let is_complete = self.tokens.len() == ids.len() && self.title < ids.len();
        if !are_ordered || !are_locks || !is_complete {
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
        let times = [Some(self.min_hold), self.once.map(Once::time)];
        if times.into_iter().flatten().any(|time| time > LONGEST) {
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
