//! `"30s"` to milliseconds: a pure function on text.

/// The units, longest suffix first where one ends with another (`ms` before `s`).
const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", SECOND),
    ("m", MINUTE),
    ("h", 60 * MINUTE),
    ("d", DAY),
];
const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
pub(crate) const DAY: u64 = 24 * 60 * MINUTE;

/// Units that people write elsewhere, and ours.
const FOREIGN: [(&str, &str); 18] = [
    ("msec", "ms"),
    ("msecs", "ms"),
    ("millis", "ms"),
    ("millisecond", "ms"),
    ("milliseconds", "ms"),
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("min", "m"),
    ("mins", "m"),
    ("minute", "m"),
    ("minutes", "m"),
    ("hr", "h"),
    ("hour", "h"),
    ("hours", "h"),
    ("day", "d"),
    ("days", "d"),
];

/// Why a text is not a duration; what to write instead, where that can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DurationMistake {
    Empty,
    NoUnit { write: String },
    Negative,
    TooLong,
    Malformed { write: Option<String> },
}

/// The milliseconds of a whole number directly followed by one unit.
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
        None => Err(DurationMistake::Malformed { write: repair(text) }),
    }
}

/// How a duration is written with the largest unit that keeps it whole.
pub(crate) fn write(millis: u64) -> String {
    let (unit, size) = UNITS
        .iter()
        .rev()
        .find(|(_, size)| millis != 0 && millis.is_multiple_of(*size))
        .unwrap_or(&("s", SECOND));
    format!("{}{unit}", millis / size)
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn milliseconds(digits: &str, unit: u64) -> Option<u64> {
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// What was probably meant: white space, upper case, other units, several units and fractions.
fn repair(text: &str) -> Option<String> {
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

fn known_unit(written: &str) -> Option<u64> {
    let lower = written.to_lowercase();
    let own = FOREIGN
        .iter()
        .find(|(foreign, _)| *foreign == lower)
        .map_or(lower.as_str(), |(_, own)| own);
    UNITS
        .iter()
        .find(|(suffix, _)| *suffix == own)
        .map(|(_, millis)| *millis)
}

#[cfg(test)]
mod tests;
