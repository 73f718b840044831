//! Durations on the command line, in the notation of the attribute: `500ms`, `30s`, `2m`, `1h`; and `1d`.

use std::time::Duration;

/// Reads a duration.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let form = || "a number and a unit: `500ms`, `30s`, `2m`, `1h` or `1d`".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(form)?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| form())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return Err(form()),
    };
    let millis = number
        .checked_mul(millis)
        .ok_or("the duration is too long".to_owned())?;
    Ok(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("1d"), Ok(Duration::from_secs(86_400)));
        let wrong = "|10|s|1.5s|-1s|1 s|1w|1s |99999999999999999999s|18446744073709551615d";
        for wrong in wrong.split('|') {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
