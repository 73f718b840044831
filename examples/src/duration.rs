//! Durations as people write and read them.

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Reads `20ms`, `2s` or `1m`, up to an hour; a number without a unit is milliseconds.
///
/// # Errors
/// The message says what to write instead.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" | "" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return Err(malformed()),
    };
    let count: u64 = digits.parse().map_err(|_| malformed())?;
    let duration = count.checked_mul(unit).map(Duration::from_millis);
    duration
        .filter(|duration| *duration <= HOUR)
        .ok_or_else(|| "write at most 60m".to_owned())
}

/// Reads a duration that mongolock accepts as an expiry: at least 100 ms.
///
/// # Errors
/// The message says what to write instead.
pub fn parse_expiry(text: &str) -> Result<Duration, String> {
    let expiry = parse(text)?;
    if expiry < Duration::from_millis(100) {
        return Err("write at least 100ms".to_owned());
    }
    Ok(expiry)
}

fn malformed() -> String {
    "write a whole number and `ms`, `s` or `m`, such as `20ms`".to_owned()
}

/// Milliseconds below ten seconds, which most durations here are; otherwise seconds.
#[must_use]
pub fn show(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match duration.as_secs() {
        0..10 => format!("{} ms", duration.as_millis()),
        10..100 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, millis) in [
            ("20ms", 20),
            ("20", 20),
            ("0", 0),
            ("2s", 2_000),
            ("60m", 3_600_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "ms",
            "-1",
            "1.5s",
            "1 s",
            "1h",
            "61m",
            "99999999999999999999",
            "5é",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse_expiry("100ms"), Ok(Duration::from_millis(100)));
        assert!(parse_expiry("99ms").is_err() && parse_expiry("soon").is_err());
    }

    #[test]
    fn short_durations_are_shown_in_milliseconds() {
        for (millis, text) in [
            (0, "0 ms"),
            (9_999, "9999 ms"),
            (12_340, "12.3 s"),
            (119_990, "120 s"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
    }
}
