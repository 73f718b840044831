//! Times and lengths of time in microseconds. The core reads no clock: the present comes with each event.

use std::hash::{Hash, Hasher};
use std::ops::{Add, Sub};

/// A time of this process, in microseconds since its provider was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) i64);

/// A length of time in microseconds.
pub(crate) type Span = i64;

/// A millisecond.
pub(crate) const MS: Span = 1000;

impl Time {
    /// Before everything that is compared with a present time.
    pub(crate) const LONG_AGO: Self = Self(-1_000_000_000_000);

    /// After everything that is compared with a present time.
    pub(crate) const NEVER: Self = Self(1_000_000_000_000_000);
}

impl Default for Time {
    fn default() -> Self {
        Self::LONG_AGO
    }
}

/// As the only number of 128 bits in the core, so that a hasher can take times relative to the present: two situations that differ
/// only in their time are then the same one.
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
