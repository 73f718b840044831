//! How often the work under a lock may succeed: once in each period, or once for as long as its mark is kept.

use std::time::Duration;

use mongodb::bson::DateTime;

use crate::protocol::Until;

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

/// When the work under a lease is due again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnceGrant {
    /// The time of the server at which the lock was acquired.
    pub(crate) acquired_at: DateTime,
    /// The server's time of the request whose reply brought the lock. It is before `acquired_at` if that request was
    /// delayed in the server, and found the lock acquired by a later copy of it.
    pub(crate) requested_at: DateTime,
    /// Until when the mark stands.
    pub(crate) mark_end: Until,
}

impl Once {
    /// When work is due again whose lock was acquired at this time of the server, by the reply to a request of that time.
    pub(crate) fn grant(self, acquired_at: DateTime, requested_at: DateTime) -> OnceGrant {
        let mark_end = match self {
            Self::PerPeriod(period) => Until::At(end_of_period(period, acquired_at).timestamp_millis()),
            Self::Kept(retention) => Until::After(millis(retention)),
        };
        OnceGrant {
            acquired_at,
            requested_at,
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
}
