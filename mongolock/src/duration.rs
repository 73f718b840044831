//! Durations in messages and reports.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The length of this number of milliseconds; zero if it is negative.
pub(crate) fn from_millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}

/// A duration as a number of seconds, or nothing.
pub(crate) fn as_seconds<S: Serializer>(
    duration: &(impl Into<Option<Duration>> + Copy),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let duration: Option<Duration> = (*duration).into();
    duration
        .map(|duration| duration.as_secs_f64())
        .serialize(serializer)
}

/// A duration in a handle, in milliseconds.
pub(crate) mod in_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// The units from the smallest to the largest: the seconds of one of them, its symbol, and the seconds from which on the
/// next unit is used.
const UNITS: [(f64, &str, f64); 5] = [
    (0.001, "ms", 0.9995),
    (1.0, "s", 119.5),
    (60.0, "min", 119.5 * 60.0),
    (3_600.0, "h", 47.5 * 3_600.0),
    (86_400.0, "days", f64::INFINITY),
];

/// A duration for a reader: two digits at least, and one decimal at most (`2.0 s`, `27 s`, `45 min`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounded(pub(crate) Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() {
            return f.write_str("0 s");
        }
        let seconds = self.0.as_secs_f64();
        let unit = UNITS.iter().find(|(_, _, end)| seconds < *end);
        let (size, symbol, _) = unit.unwrap_or(&UNITS[UNITS.len() - 1]);
        let value = seconds / size;
        let decimals = usize::from(value < 9.95);
        write!(f, "{value:.decimals$} {symbol}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_for_a_reader() {
        let cases = [
            (0.0, "0 s"),
            (0.000_25, "0.2 ms"),
            (0.002_4, "2.4 ms"),
            (0.25, "250 ms"),
            (0.999_6, "1.0 s"),
            (2.0, "2.0 s"),
            (9.96, "10 s"),
            (10.001_242_173, "10 s"),
            (27.4, "27 s"),
            (119.6, "2.0 min"),
            (2_700.0, "45 min"),
            (7_200.0, "2.0 h"),
            (86_400.0, "24 h"),
            (604_800.0, "7.0 days"),
            (1e9, "11574 days"),
        ];
        for (seconds, text) in cases {
            let shown = Rounded(Duration::from_secs_f64(seconds)).to_string();
            assert_eq!(shown, text, "{seconds} s");
        }
        assert!(Rounded(Duration::MAX).to_string().ends_with(" days"));
    }
}
