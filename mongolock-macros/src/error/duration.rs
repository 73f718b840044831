//! Messages about durations and about the rules between them and other arguments.

use crate::duration::DurationMistake;

/// The message about an argument whose value `text` is not a duration.
pub(crate) fn unreadable(argument: &str, text: &str, mistake: &DurationMistake) -> String {
    let example = "write a whole number and one of `ms`, `s`, `m`, `h`, `d`, such as `30s`";
    match mistake {
        DurationMistake::Empty => format!("`{argument}` is empty: {example}"),
        DurationMistake::NoUnit { write } => format!("`{text}` has no unit: write `{write}`"),
        DurationMistake::Negative => format!("`{text}` is negative: {example}"),
        DurationMistake::TooLong => {
            let most = if argument == "once_per" { "366d" } else { "7d" };
            format!("`{text}` is too long for `{argument}`: write at most `{most}`")
        }
        DurationMistake::Malformed { write: Some(write) } => {
            format!("`{text}` is not a duration: write `{write}`")
        }
        DurationMistake::Malformed { write: None } => format!("`{text}` is not a duration: {example}"),
    }
}

/// The message about a duration that is shorter or longer than its argument accepts.
pub(crate) fn out_of_bounds(argument: &str, text: &str, bounds: &str) -> String {
    format!("`{argument}` must be {bounds}, not `{text}`")
}

/// The accepted values of `expiry`, as the message states them.
pub(crate) const EXPIRY_BOUNDS: &str = "between `100ms` and `7d`";
/// The accepted values of `min_hold` and `max_hold`, as the message states them.
pub(crate) const HOLD_BOUNDS: &str = "between `0s` and `7d`";
/// The accepted values of `once_per`, as the message states them.
pub(crate) const PERIOD_BOUNDS: &str = "between `1s` and `366d`";
/// The accepted values of `acquire_timeout`, as the message states them.
pub(crate) const TIMEOUT_BOUNDS: &str = "between `0s` and `7d`, or `none` to wait without a limit";

/// The message about a lease whose renewals would end before its minimum hold.
pub(crate) fn lost_within_min_hold(min: &str, max: &str) -> String {
    format!(
        "`max_hold` (`{max}`) must not be shorter than `min_hold` (`{min}`), otherwise the lock can be lost within its \
         minimum hold: raise `max_hold` or lower `min_hold`"
    )
}

pub(crate) fn timeout_with_fail() -> &'static str {
    "`acquire_timeout` has no effect with `on_busy = \"fail\"`, which tries only once: remove one of the two"
}

pub(crate) fn endless_skip() -> &'static str {
    "`acquire_timeout = \"none\"` waits without a limit, so `on_busy` would have no effect: remove one of the two"
}
