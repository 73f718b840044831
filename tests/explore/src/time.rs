//! The clock of a modelled run. It has the path and the operations of tokio's `Instant`, so that the files of the library compile
//! with it.

use std::cell::Cell;
use std::fmt::{self, Debug, Formatter};
use std::hash::{Hash, Hasher};
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

thread_local! {
    static PRESENT: Cell<u64> = const { Cell::new(0) };
    static LUCK: Cell<f64> = const { Cell::new(0.5) };
}

/// A time in nanoseconds. Its hash and its text are relative to the present, so that a situation is the same one at any time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

impl Instant {
    /// The time at which each run begins. It is so late that a time before it can be computed.
    pub(crate) const BEGINNING: Self = Self(1_000_000_000_000);

    /// The present time of the run.
    #[must_use]
    pub fn now() -> Self {
        Self(PRESENT.get())
    }

    /// Makes this time the present.
    pub(crate) fn set_present(self) {
        PRESENT.set(self.0);
    }

    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn checked_sub(self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(nanos(duration)).map(Self)
    }

    /// The time since the beginning of the run.
    pub(crate) fn since_beginning(self) -> Duration {
        self - Self::BEGINNING
    }

    fn relative(self) -> u64 {
        self.0.wrapping_sub(PRESENT.get())
    }
}

impl Hash for Instant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.relative());
    }
}

impl Debug for Instant {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.relative().cast_signed().fmt(formatter)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Sets the number that the next decisions draw.
pub(crate) fn set_luck(luck: f64) {
    LUCK.set(luck);
}

pub(crate) fn luck() -> f64 {
    LUCK.get()
}
