//! Times on the command line and in the table of `log`. No input or output.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil;
use jiff::tz::TimeZone;
use mongodb::bson::DateTime;

use crate::duration;

/// A time as it was written. Its meaning depends on the present time and on the time zone of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrittenTime {
    /// This time before the present.
    Ago(Duration),
    /// The last time at which clocks showed this time of the day.
    Clock(civil::Time),
    /// In the terminal's zone.
    Local(civil::DateTime),
    /// With a zone of its own.
    Exact(Timestamp),
}

/// Reads a time.
pub(crate) fn parse(text: &str) -> Result<WrittenTime, String> {
    if let Ok(ago) = duration::parse(text) {
        return Ok(WrittenTime::Ago(ago));
    }
    // A text with a time zone is that time, and a date alone is its beginning.
    let read = if text.get(4..5) == Some("-") {
        let exact = text.parse().map(WrittenTime::Exact);
        exact.or_else(|_| text.parse().map(WrittenTime::Local)).ok()
    } else {
        let clock = text.contains(':').then(|| text.parse());
        clock.and_then(Result::ok).map(WrittenTime::Clock)
    };
    let forms = "a duration (`12h`), a time (`02:00`), or a date with or without one (`2025-11-21`, `2025-11-21T02:00`, \
        `2025-11-21T02:00:00Z`)";
    read.ok_or_else(|| forms.to_owned())
}

impl WrittenTime {
    /// The time that is meant.
    pub(crate) fn at(self, now: DateTime, zone: &TimeZone) -> Option<DateTime> {
        let present = Timestamp::from_millisecond(now.timestamp_millis()).ok()?;
        let time = match self {
            Self::Ago(ago) => return Some(before(now, ago)),
            Self::Exact(time) => time,
            Self::Local(time) => zone.to_timestamp(time).ok()?,
            Self::Clock(time) => {
                let today = zone.to_datetime(present).date();
                let at = |date: civil::Date| zone.to_timestamp(date.to_datetime(time)).ok();
                at(today)
                    .filter(|time| *time <= present)
                    .or_else(|| at(today.yesterday().ok()?))?
            }
        };
        Some(DateTime::from_millis(time.as_millisecond()))
    }
}

/// The time this long before another one.
fn before(time: DateTime, ago: Duration) -> DateTime {
    let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
    DateTime::from_millis(time.timestamp_millis().saturating_sub(ago))
}

/// The time in a time zone, for people.
pub(crate) fn shown(time: DateTime, zone: &TimeZone) -> String {
    match Timestamp::from_millisecond(time.timestamp_millis()) {
        Ok(time) => zone.to_datetime(time).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => crate::json::rfc3339(time),
    }
}

/// The name of a zone, or how far it is ahead of UTC at this time.
pub(crate) fn name(zone: &TimeZone, time: DateTime) -> String {
    if let Some(name) = zone.iana_name() {
        return name.to_owned();
    }
    let time = Timestamp::from_millisecond(time.timestamp_millis()).unwrap_or_default();
    let offset = zone.to_offset(time);
    if offset.seconds() == 0 {
        "UTC".to_owned()
    } else {
        format!("UTC{offset}")
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::offset;

    use super::*;

    /// Two hours ahead of UTC.
    fn zone() -> TimeZone {
        TimeZone::fixed(offset(2))
    }

    fn date(text: &str) -> DateTime {
        DateTime::parse_rfc3339_str(text).expect("it is a date")
    }

    #[test]
    fn each_form_of_a_time_is_read() {
        let now = date("2025-11-21T08:30:00Z");
        for (text, wanted) in [
            ("12h", "2025-11-20T20:30:00Z"),
            ("0s", "2025-11-21T08:30:00Z"),
            ("02:00", "2025-11-21T00:00:00Z"),
            ("10:30", "2025-11-21T08:30:00Z"),
            ("10:31", "2025-11-20T08:31:00Z"),
            ("23:59:30", "2025-11-20T21:59:30Z"),
            ("2025-11-20", "2025-11-19T22:00:00Z"),
            ("2025-11-20T02:00", "2025-11-20T00:00:00Z"),
            ("2025-11-20 02:00:01.5", "2025-11-20T00:00:01.5Z"),
            ("2025-11-20T02:00:00Z", "2025-11-20T02:00:00Z"),
            ("2025-11-20T02:00:00-01:00", "2025-11-20T03:00:00Z"),
        ] {
            let read = parse(text).expect(text);
            assert_eq!(read.at(now, &zone()), Some(date(wanted)), "{text}: {read:?}");
        }
        for wrong in "|12|25:00|2025-13-01|yesterday|2025-11-20T02:00Y|-1h".split('|') {
            assert!(parse(wrong).is_err(), "{wrong:?}: {:?}", parse(wrong));
        }
    }

    #[test]
    fn times_are_shown_in_the_zone() {
        let time = date("2025-11-21T23:05:06.789Z");
        assert_eq!(shown(time, &zone()), "2025-11-22 01:05:06");
        assert_eq!(shown(DateTime::MAX, &zone()), "9999-12-31T23:59:59.999Z");
        assert_eq!(name(&zone(), time), "UTC+02");
        assert_eq!(name(&TimeZone::UTC, time), "UTC");
    }
}
