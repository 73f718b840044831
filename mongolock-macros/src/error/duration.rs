//! Sentences about durations and about the rules between them and other arguments.

use crate::duration::DurationMistake;

/// A duration that cannot be read, with the option and the text as written.
pub(crate) fn unreadable_duration(option: &str, text: &str, mistake: &DurationMistake) -> String {
    let example = "write a whole number and one of `ms`, `s`, `m`, `h`, `d`, such as `30s`";
    match mistake {
        DurationMistake::Empty => format!("`{option}` is empty: {example}"),
        DurationMistake::NoUnit { write } => format!("`{text}` has no unit: write `{write}`"),
        DurationMistake::Negative => format!("`{text}` is negative: {example}"),
        DurationMistake::TooLong => format!("`{text}` is longer than `{option}` can be: write at most `7d`"),
        DurationMistake::Malformed { write: Some(write) } => {
            format!("`{text}` is not a duration: write `{write}`")
        }
        DurationMistake::Malformed { write: None } => format!("`{text}` is not a duration: {example}"),
    }
}

/// A duration outside its bounds.
pub(crate) fn out_of_bounds(option: &str, text: &str, bounds: &str) -> String {
    format!("`{option}` must be {bounds}, not `{text}`")
}

pub(crate) const EXPIRY_BOUNDS: &str = "between `100ms` and `7d`";
pub(crate) const RENEW_BOUNDS: &str = "above `0s` and below `expiry` (at most `7d`)";
pub(crate) const OTHER_BOUNDS: &str = "between `0s` and `7d`";

pub(crate) const TIMEOUT_BOUNDS: &str = "between `0s` and `7d`, or `none` to wait for ever";

pub(crate) fn renews_too_late(renew: &str, expiry: &str) -> String {
    format!(
        "`renew_interval` (`{renew}`) must be shorter than `expiry` (`{expiry}`), or the lock runs out before its \
         renewal: write about a third of `expiry`"
    )
}

pub(crate) fn timeout_with_fail() -> &'static str {
    "`acquire_timeout` has no effect with `on_busy = \"fail\"`, which makes one attempt: remove one of the two"
}

pub(crate) fn endless_skip() -> &'static str {
    "`acquire_timeout = \"none\"` waits for ever, so `on_busy = \"skip\"` would never skip: remove one of the two"
}
