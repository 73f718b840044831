//! Durations such as `"30s"`, parsed to milliseconds.

/// The accepted units with their milliseconds, from the smallest to the largest.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", SECOND),
    ("m", MINUTE),
    ("h", 60 * MINUTE),
    ("d", DAY),
];
/// One second, in milliseconds.
const SECOND: u64 = 1_000;
/// One minute, in milliseconds.
const MINUTE: u64 = 60 * SECOND;
/// One day, in milliseconds.
pub(crate) const DAY: u64 = 24 * 60 * MINUTE;

/// Why a text is not a duration; `write` is the suggested duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DurationMistake {
    Empty,
    NoUnit { write: String },
    Negative,
    TooLong,
    Malformed { write: Option<String> },
}

/// Parses a whole number directly followed by one unit to milliseconds.
pub(crate) fn parse(text: &str) -> Result<u64, DurationMistake> {
    if text.trim().is_empty() {
        return Err(DurationMistake::Empty);
    }
    let (digits, unit) = split(text);
    if digits.is_empty() {
        return Err(match text.trim_start().strip_prefix(['-', '\u{2212}']) {
            Some(_) => DurationMistake::Negative,
            None => DurationMistake::Malformed { write: None },
        });
    }
    if unit.is_empty() {
        return Err(DurationMistake::NoUnit {
            write: format!("{digits}s"),
        });
    }
    match UNITS.iter().find(|(suffix, _)| *suffix == unit) {
        Some((_, millis)) => milliseconds(digits, *millis).ok_or(DurationMistake::TooLong),
        None => Err(DurationMistake::Malformed { write: suggest(text) }),
    }
}

/// Formats milliseconds as a whole number of the largest unit that fits.
pub(crate) fn write(millis: u64) -> String {
    let (unit, size) = UNITS
        .iter()
        .rev()
        .find(|(_, size)| millis != 0 && millis.is_multiple_of(*size))
        .unwrap_or(&("s", SECOND));
    format!("{}{unit}", millis / size)
}

/// Splits a text after its leading digits.
fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// The product of a number and a unit, in milliseconds; nothing if it does not fit into 64 bits.
fn milliseconds(digits: &str, unit: u64) -> Option<u64> {
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// The duration that a text probably means: white space, upper case, other unit names, several units and fractions
/// are understood.
fn suggest(text: &str) -> Option<String> {
    let dense: String = text.chars().filter(|c| !c.is_whitespace() && *c != '_').collect();
    let mut rest = dense.as_str();
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (digits, after) = split(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), split);
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let unit = known_unit(&after[..end])?;
        total = total.checked_add(milliseconds(digits, unit)?)?;
        if !fraction.is_empty() {
            let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
            total = total.checked_add(milliseconds(fraction, unit)? / scale)?;
        }
        rest = &after[end..];
    }
    Some(write(total))
}

/// The milliseconds of a unit by any of its names, in any case.
fn known_unit(written: &str) -> Option<u64> {
    Some(match written.to_lowercase().as_str() {
        "ms" | "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => 1,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => MINUTE,
        "h" | "hr" | "hour" | "hours" => 60 * MINUTE,
        "d" | "day" | "days" => DAY,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
