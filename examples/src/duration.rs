//! Durations as people write and read them.

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// `20ms`, `2s`, `1m`; a bare number is milliseconds.
///
/// # Errors
/// What to write instead.
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

/// A duration that mongolock takes as an expiry.
///
/// # Errors
/// What to write instead.
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

/// In milliseconds up to ten seconds, which is what most numbers here are.
#[must_use]
pub fn show(duration: Duration) -> String {
    if duration < Duration::from_secs(10) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_units_and_bare_milliseconds() {
        assert_eq!(parse("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(parse("20"), Ok(Duration::from_millis(20)));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!(parse("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse("60m"), Ok(HOUR));
    }

    #[test]
    fn refuses_what_it_cannot_read() {
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
    }

    #[test]
    fn a_lease_lasts_a_tenth_of_a_second_at_the_least() {
        assert_eq!(parse_expiry("100ms"), Ok(Duration::from_millis(100)));
        assert!(parse_expiry("99ms").is_err() && parse_expiry("soon").is_err());
    }
}
