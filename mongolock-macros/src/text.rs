//! A string literal of the attribute, and the places of its parts in the source.

use std::ops::Range;

use proc_macro2::{Literal, Span};
use syn::LitStr;

/// A string literal: what it says, and where each byte of that stands.
#[derive(Debug)]
pub(crate) struct Text {
    value: String,
    token: Literal,
    /// Where the value begins inside the literal's source, if the two agree byte for byte.
    offset: Option<usize>,
}

impl Text {
    pub(crate) fn new(literal: &LitStr) -> Self {
        let value = literal.value();
        let token = literal.token();
        let offset = verbatim_offset(&token.to_string(), &value);
        Self { value, token, offset }
    }

    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    pub(crate) fn span(&self) -> Span {
        self.token.span()
    }

    /// The place of these bytes of the value: exact where the compiler can tell (nightly, and no escapes
    /// in the literal), the whole literal elsewhere.
    pub(crate) fn at(&self, part: Range<usize>) -> Span {
        self.offset
            .and_then(|offset| self.token.subspan(part.start + offset..part.end + offset))
            .unwrap_or_else(|| self.span())
    }
}

/// Where `value` begins in `source`; escapes move the bytes, so with one of them there is no answer.
fn verbatim_offset(source: &str, value: &str) -> Option<usize> {
    let open = source.find('"')? + 1;
    let close = source.rfind('"')?;
    (source.get(open..close)? == value).then_some(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(source: &str) -> Option<usize> {
        Text::new(&syn::parse_str(source).unwrap()).offset
    }

    #[test]
    fn finds_the_value_inside_the_literal() {
        assert_eq!(offset(r#""report:<id>""#), Some(1));
        assert_eq!(offset(r#"r"report""#), Some(2));
        assert_eq!(offset(r##"r#"a"b"#"##), Some(3));
        assert_eq!(offset(r#""""#), Some(1));
    }

    #[test]
    fn gives_up_where_an_escape_moves_the_bytes() {
        assert_eq!(offset(r#""a\tb""#), None);
        assert_eq!(offset(r#""\u{e9}""#), None);
    }
}
