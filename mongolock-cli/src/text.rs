//! Texts for people at a terminal.

use std::borrow::Cow;
use std::time::Duration;

use unicode_width::UnicodeWidthStr;

/// The sign for the part of a text that is left out.
const ELLIPSIS: char = '\u{2026}';

/// The text with its control characters escaped as in Rust: a name cannot move the cursor or end a line. Characters
/// that change the direction of the text count as well.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    with_escapes(text, |c| c.escape_default().to_string())
}

/// JSON with the characters that JSON itself does not escape, and which [`escaped`] does, in its own notation. They occur
/// in texts only, so that the result is the same value.
pub(crate) fn escaped_in_json(json: &str) -> String {
    with_escapes(json, |c| format!("\\u{:04x}", u32::from(c))).into_owned()
}

fn with_escapes(text: &str, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let escaped = |c: char| if is_unsafe(c) { escape(c) } else { c.to_string() };
    Cow::Owned(text.chars().map(escaped).collect())
}

fn is_unsafe(c: char) -> bool {
    let is_bidi =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_bidi || matches!(c, '\u{2028}' | '\u{2029}')
}

/// The command that releases a lock, with these options, each after a space.
pub(crate) fn release_command(name: &str, options: &str) -> String {
    let quoted = quoted(name);
    if name.starts_with('-') {
        format!("mongolock release{options} -- {quoted}")
    } else {
        format!("mongolock release {quoted}{options}")
    }
}

/// The text as one word for a shell.
pub(crate) fn quoted(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-+=:,./@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

/// The width of a text, in columns of a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The text in at most this number of columns of a terminal. The middle of a longer text is left out, because names and
/// owners differ at their ends.
pub(crate) fn cut(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let kept = columns.saturating_sub(1);
    let begin = fitting(text.chars(), kept.div_ceil(2));
    let end: String = fitting(text.chars().rev(), kept / 2).chars().rev().collect();
    Cow::Owned(format!("{begin}{ELLIPSIS}{end}"))
}

/// The first of these characters that fit into this number of columns.
fn fitting(all: impl Iterator<Item = char>, columns: usize) -> String {
    let mut text = String::new();
    for c in all {
        text.push(c);
        if width(&text) > columns {
            text.pop();
            break;
        }
    }
    text
}

/// A number of things: `1 lock`, `2 locks`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// A difference of times: [`short`], and in milliseconds below a second.
pub(crate) fn difference(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        return format!("{} ms", time.as_millis());
    }
    short(time)
}

/// A time with two units at most: `12.3s`, `4m10s`, `2h5m`, `3d4h`.
pub(crate) fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    let two = |big: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{small_unit}"),
    };
    match seconds {
        0..60 => format!("{seconds}.{}s", time.subsec_millis() / 100),
        60..3600 => two(seconds / 60, "m", seconds % 60, "s"),
        3600..86400 => two(seconds / 3600, "h", seconds % 3600 / 60, "m"),
        _ => two(seconds / 86400, "d", seconds % 86400 / 3600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_text_as_one_word() {
        assert_eq!(quoted("report:42/a_b"), "report:42/a_b");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn the_middle_of_a_long_text_is_left_out() {
        for (text, columns, wanted) in [
            ("report:42", 9, "report:42"),
            ("report:42", 8, "repo\u{2026}:42"),
            ("report:42", 7, "rep\u{2026}:42"),
            ("report:42", 1, "\u{2026}"),
            // Each of these characters is two columns wide.
            ("\u{65e5}\u{672c}\u{8a9e}\u{8a9e}", 6, "\u{65e5}\u{2026}\u{8a9e}"),
        ] {
            assert_eq!(cut(text, columns), wanted, "{columns}");
            assert!(width(&cut(text, columns)) <= columns);
        }
    }

    #[test]
    fn one_thing_has_no_plural() {
        let shown = [0, 1, 2].map(|number| count(number, "lock"));
        assert_eq!(shown, ["0 locks", "1 lock", "2 locks"]);
        let times = [0, 999, 1_000, 94_999].map(|millis| difference(Duration::from_millis(millis)));
        assert_eq!(times, ["0 ms", "999 ms", "1.0s", "1m34s"]);
    }

    #[test]
    fn times_have_two_units_at_most() {
        for (millis, text) in [
            (0, "0.0s"),
            (12_390, "12.3s"),
            (60_000, "1m"),
            (250_000, "4m10s"),
            (7_500_000, "2h5m"),
            (273_600_000, "3d4h"),
        ] {
            assert_eq!(short(Duration::from_millis(millis)), text);
        }
    }
}
