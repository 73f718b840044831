//! The fingerprint of a situation. Two situations that differ only in their time are the same one.

use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::quality::{FixedState, FoldHasher};

use crate::core::{MS, Time};
use crate::protocol::{Document, Ms, News, Reply, Sight, Value};

/// Times that are farther back are alike.
const LONG_AGO: i64 = -100_000 * MS;

/// A hasher that takes times relative to the present. Only times write numbers of 128 bits.
pub(crate) struct Relative {
    hasher: FoldHasher<'static>,
    now: Time,
}

impl Relative {
    pub(crate) fn new(now: Time) -> Self {
        let hasher = FixedState::default().build_hasher();
        Self { hasher, now }
    }
}

impl Hasher for Relative {
    fn finish(&self) -> u64 {
        self.hasher.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
    }

    fn write_u8(&mut self, number: u8) {
        self.hasher.write_u8(number);
    }

    fn write_u32(&mut self, number: u32) {
        self.hasher.write_u32(number);
    }

    fn write_u64(&mut self, number: u64) {
        self.hasher.write_u64(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.hasher.write_usize(number);
    }

    fn write_i64(&mut self, number: i64) {
        self.hasher.write_i64(number);
    }

    fn write_i128(&mut self, time: i128) {
        let time = i64::try_from(time).unwrap_or(i64::MAX);
        self.hasher.write_i64((time - self.now.0).max(LONG_AGO));
    }
}

/// A time of the server's clock.
pub(crate) fn date(ms: Ms) -> Time {
    Time(ms * MS)
}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Self::Long(number) => number.hash(state),
            Self::Text(text) => text.hash(state),
            Self::Date(ms) => date(*ms).hash(state),
            // No document here has any other value.
            _ => {}
        }
    }
}

impl Hash for Document {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lock_id.hash(state);
        self.acquired_at.hash(state);
        self.expires_at.hash(state);
        match &self.token {
            // Of a released lock it only counts whether the next token is greater than the clock says, so it is hashed as a time.
            Value::Long(token) if self.lock_id.text().is_some_and(|id| id.is_empty()) => {
                Time(*token).hash(state);
            }
            token => token.hash(state),
        }
    }
}

impl Hash for Sight {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.document, self.now.map(date)).hash(state);
    }
}

impl Hash for Reply {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.is_applied, &self.sight).hash(state);
    }
}

impl Hash for News {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, &self.sight).hash(state);
    }
}
