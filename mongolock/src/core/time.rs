//! Times and lengths of time in microseconds. The core reads no clock: each event has the present time.

use std::hash::{Hash, Hasher};
use std::ops::{Add, Sub};

use ::core::time::Duration;

/// A time of this process, in microseconds since its provider was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) i64);

/// A length of time in microseconds.
pub(crate) type Span = i64;

/// A millisecond.
pub(crate) const MS: Span = 1000;

/// A time of the whole library, in the form of the core.
#[expect(clippy::cast_possible_truncation, reason = "they are short")]
pub(crate) const fn span(time: Duration) -> Span {
    time.as_micros() as Span
}

impl Time {
    /// Earlier than every time that is compared with the present.
    pub(crate) const LONG_AGO: Self = Self(-1_000_000_000_000);

    /// Later than every time that is compared with the present.
    pub(crate) const NEVER: Self = Self(1_000_000_000_000_000);
}

impl Default for Time {
    fn default() -> Self {
        Self::LONG_AGO
    }
}

/// Times are hashed as the only numbers of 128 bits in the core, so that a hasher can convert them to times relative to
/// the present. Two states of the core that differ only in their time then have the same hash.
impl Hash for Time {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_i128(self.0.into());
    }
}

impl Add<Span> for Time {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span))
    }
}

impl Sub for Time {
    type Output = Span;

    fn sub(self, earlier: Self) -> Span {
        self.0 - earlier.0
    }
}
