//! The time and the luck of a decision.
//!
//! What decides when the library acts has both from its caller, so that a test gives it the times and the luck that matter.
//! What waits and sends reads the clock and draws.

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;

/// The present time, and where luck comes from.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    luck: fn() -> Luck,
}

impl Moment {
    /// The present time; luck is drawn.
    pub(crate) fn present() -> Self {
        Self {
            now: Instant::now(),
            luck: Luck::draw,
        }
    }

    /// This time, with the same luck each time.
    #[cfg(test)]
    pub(crate) fn at(now: Instant) -> Self {
        Self {
            now,
            luck: || Luck(0.5),
        }
    }

    pub(crate) fn luck(self) -> Luck {
        (self.luck)()
    }
}

/// A random number for one decision: at least zero, and less than one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Luck(f64);

impl Luck {
    /// Draws a number.
    pub(crate) fn draw() -> Self {
        Self(fastrand::f64())
    }

    /// A time between these two.
    pub(crate) fn between(self, least: Duration, most: Duration) -> Duration {
        least + most.saturating_sub(least).mul_f64(self.0)
    }

    /// The same pause, longer or shorter by a fifth at most, so that many processes do not act at the same time.
    pub(crate) fn spread(self, pause: Duration) -> Duration {
        pause.mul_f64(0.8 + 0.4 * self.0)
    }

    /// One of these numbers of milliseconds.
    pub(crate) fn millis(self, range: RangeInclusive<u32>) -> Duration {
        let (first, last) = range.into_inner();
        let above = self.0 * f64::from(last - first + 1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is one of the range"
        )]
        let above = above as u64;
        Duration::from_millis(u64::from(first) + above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luck_decides_within_the_bounds() {
        let second = Duration::from_secs(1);
        let almost_one = Luck(1.0 - f64::EPSILON);
        assert_eq!(Luck(0.0).between(second, second * 3), second);
        assert_eq!(Luck(0.5).between(second, second * 3), second * 2);
        assert_eq!(Luck(0.0).spread(second), second * 4 / 5);
        assert!(almost_one.spread(second) <= second * 6 / 5);
        let millis = [0.0, 0.24, 0.25, 0.99].map(|luck| Luck(luck).millis(2..=5).as_millis());
        assert_eq!(millis, [2, 2, 3, 5]);
        assert_eq!(almost_one.millis(1..=10).as_millis(), 10);
    }

    #[test]
    fn a_drawn_number_is_below_one() {
        assert!((0..10_000).all(|_| (0.0..1.0).contains(&Luck::draw().0)));
    }
}
