use std::fmt::{self, Display, Formatter, Write};

/// A text of another program or an operator, displayed in one line. Characters are escaped if they end a line, control
/// a terminal, or change the direction of the text around it.
pub(crate) struct OneLine<'a>(pub(crate) &'a str);

impl Display for OneLine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            if is_unsafe(c) {
                c.escape_default().fmt(f)
            } else {
                f.write_char(c)
            }
        })
    }
}

/// The text; if it has more characters than this, its beginning and `…`, so that a very long one does not flood a log.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn is_unsafe(c: char) -> bool {
    let is_bidi =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_bidi || matches!(c, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_on_its_line() {
        let text = "a b\u{e4}\\\x1b[2J\n\u{61c}\u{202e}\u{2066}\u{2028}\u{9b}";
        let shown = OneLine(text).to_string();
        assert_eq!(
            shown,
            "a b\u{e4}\\\\u{1b}[2J\\n\\u{61c}\\u{202e}\\u{2066}\\u{2028}\\u{9b}"
        );
    }

    #[test]
    fn a_long_text_is_shortened() {
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened(&"ü".repeat(6), 5), "ü".repeat(5) + "…");
    }
}
