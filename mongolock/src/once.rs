//! How often the work under a lock may succeed: once in each period, or once for as long as its mark is kept.

use std::time::Duration;

use mongodb::bson::DateTime;

use crate::LockError;
use crate::options::refused;

/// The shortest period: the clocks of servers differ by parts of it.
const MIN_PERIOD: Duration = Duration::from_secs(1);

/// The longest period: a longer one is almost certainly a mistake in the unit.
const MAX_PERIOD: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The shortest time for which a mark is kept that does not end with a period: an instance whose trigger is late must
/// still find it.
const MIN_KEPT: Duration = Duration::from_secs(60 * 60);

/// A call within this part of a period before or after a boundary is close to the boundary.
const CLOSE_PART: i64 = 100;

/// How often the work under a lock may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Once {
    /// Once in each period: the periods are multiples of this time since 1970-01-01 UTC by the server's clock.
    PerPeriod(Duration),
    /// Once until the mark ends, this time after the success.
    Kept(Duration),
}

/// Until when a mark stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkEnd {
    /// Until this time: if it has passed when the work is done, the lock is released instead.
    At(DateTime),
    /// For this time, counted from the mark.
    After(Duration),
}

/// When the work under a lease is due again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnceGrant {
    /// The time of the server at which the lock was acquired.
    pub(crate) acquired_at: DateTime,
    /// Until when the mark stands.
    pub(crate) mark_end: MarkEnd,
}

impl Once {
    /// Returns an error for a time that is out of its bounds.
    pub(crate) fn check(self) -> Result<(), LockError> {
        match self {
            Self::PerPeriod(period) if !(MIN_PERIOD..=MAX_PERIOD).contains(&period) => {
                Err(refused("once_per", period, "it must be 1 s to 366 days"))
            }
            Self::PerPeriod(period) if !period.subsec_nanos().is_multiple_of(1_000_000) => {
                Err(refused("once_per", period, "it must be whole milliseconds"))
            }
            Self::Kept(retention) if retention < MIN_KEPT => {
                let bound = "with `once` it must be at least 1 h, because marks are kept for as long";
                Err(refused("retention", retention, bound))
            }
            Self::PerPeriod(_) | Self::Kept(_) => Ok(()),
        }
    }

    /// When work is due again whose lock was acquired at this time of the server.
    pub(crate) fn grant(self, acquired_at: DateTime) -> OnceGrant {
        let mark_end = match self {
            Self::PerPeriod(period) => MarkEnd::At(end_of_period(period, acquired_at)),
            Self::Kept(retention) => MarkEnd::After(retention),
        };
        OnceGrant {
            acquired_at,
            mark_end,
        }
    }

    /// The end of the period that this time of the server belongs to; `None` if there are no periods.
    pub(crate) fn period_end(self, now: DateTime) -> Option<DateTime> {
        match self {
            Self::PerPeriod(period) => Some(end_of_period(period, now)),
            Self::Kept(_) => None,
        }
    }

    /// Whether this time of the server is within 1 % of a boundary between two periods.
    pub(crate) fn is_close_to_boundary(self, now: DateTime) -> bool {
        let Self::PerPeriod(period) = self else {
            return false;
        };
        let period = millis(period);
        let begun = now.timestamp_millis().rem_euclid(period);
        begun.min(period - begun) * CLOSE_PART < period
    }
}

fn end_of_period(period: Duration, now: DateTime) -> DateTime {
    let period = millis(period);
    let number = now.timestamp_millis().div_euclid(period);
    DateTime::from_millis(number.saturating_add(1).saturating_mul(period))
}

/// The period in milliseconds; at least one, because the bounds are checked before it is used.
fn millis(period: Duration) -> i64 {
    i64::try_from(period.as_millis()).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn end(period: Duration, now: &str) -> String {
        let now = DateTime::parse_rfc3339_str(now).unwrap();
        let end = Once::PerPeriod(period).period_end(now).unwrap();
        end.try_to_rfc3339_string().unwrap()
    }

    #[test]
    fn periods_are_multiples_since_1970() {
        assert_eq!(end(DAY, "2026-03-01T00:00:00Z"), "2026-03-02T00:00:00Z");
        assert_eq!(end(DAY, "2026-03-01T23:59:59.999Z"), "2026-03-02T00:00:00Z");
        assert_eq!(end(DAY * 7, "1970-01-05T00:00:00Z"), "1970-01-08T00:00:00Z");
        assert_eq!(end(DAY, "1969-12-31T23:00:00Z"), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn one_percent_around_a_boundary_is_close_to_it() {
        let is_close = |seconds: i64| {
            let now = DateTime::from_millis(seconds * 1000);
            Once::PerPeriod(Duration::from_secs(1000)).is_close_to_boundary(now)
        };
        for close in [0, 9, 991, 1000, 1009] {
            assert!(is_close(close), "{close}");
        }
        for far in [10, 500, 990] {
            assert!(!is_close(far), "{far}");
        }
        assert!(!Once::Kept(DAY).is_close_to_boundary(DateTime::from_millis(0)));
    }

    #[test]
    fn times_out_of_bounds_are_refused_by_name() {
        let refusal = |once: Once| match once.check() {
            Err(LockError::InvalidOption { option, .. }) => option,
            other => panic!("{once:?} is not refused: {other:?}"),
        };
        for period in [
            Duration::ZERO,
            Duration::from_millis(999),
            Duration::from_micros(1_000_500),
            DAY * 367,
        ] {
            assert_eq!(refusal(Once::PerPeriod(period)), "once_per");
        }
        assert_eq!(refusal(Once::Kept(Duration::from_secs(3599))), "retention");
        for valid in [
            Once::PerPeriod(MIN_PERIOD),
            Once::PerPeriod(DAY * 366),
            Once::Kept(MIN_KEPT),
        ] {
            valid.check().unwrap();
        }
    }
}
