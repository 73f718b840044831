//! A string literal of the attribute, and the source positions of its parts.

use std::ops::Range;

use proc_macro2::{Literal, Span};
use syn::LitStr;

/// A string literal that knows the source position of every byte of its value.
#[derive(Debug)]
pub(crate) struct StringLiteral {
    /// The value of the literal, with its escapes resolved.
    value: String,
    /// The literal as written, which has the source positions.
    token: Literal,
    /// The number of bytes from the start of the literal's source to its value; nothing if an escape makes the two
    /// differ, because positions in the value are then no positions in the source.
    offset: Option<usize>,
}

impl StringLiteral {
    pub(crate) fn new(literal: &LitStr) -> Self {
        let value = literal.value();
        let token = literal.token();
        let offset = verbatim_offset(&token.to_string(), &value);
        Self { value, token, offset }
    }

    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    /// The source position of the whole literal.
    pub(crate) fn span(&self) -> Span {
        self.token.span()
    }

    /// The source position of these bytes of the value: exact on a nightly compiler if the literal has no escapes,
    /// otherwise that of the whole literal.
    pub(crate) fn span_of(&self, part: Range<usize>) -> Span {
        self.offset
            .and_then(|offset| self.token.subspan(part.start + offset..part.end + offset))
            .unwrap_or_else(|| self.span())
    }
}

/// The number of bytes from the start of `source` to `value`; nothing if an escape makes the two differ.
fn verbatim_offset(source: &str, value: &str) -> Option<usize> {
    let open = source.find('"')? + 1;
    let close = source.rfind('"')?;
    (source.get(open..close)? == value).then_some(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An escape leaves no offset.
    #[test]
    fn finds_the_value_inside_the_literal() {
        for (source, offset) in [
            (r#""report:<id>""#, Some(1)),
            (r#"r"report""#, Some(2)),
            (r##"r#"a"b"#"##, Some(3)),
            (r#""""#, Some(1)),
            (r#""a\tb""#, None),
            (r#""\u{e9}""#, None),
        ] {
            let literal = StringLiteral::new(&syn::parse_str(source).unwrap());
            assert_eq!(literal.offset, offset, "{source}");
        }
    }
}
