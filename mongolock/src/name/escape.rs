//! Escaping, which keeps the values of a name apart.

use std::fmt::{self, Display, Write};

/// Escapes a value for a lock name that you format yourself, like a placeholder of a template that is not the last one.
///
/// `%` and the separator, which is the character that follows the value in the name, are replaced by their UTF-8 bytes,
/// each as `%` and two upper-case hexadecimal digits. All other characters stay. Two names that are made of escaped
/// values, with this separator after each of them and any value at the end, are equal only if all values are equal.
///
/// The separator must not be `%`, because a separator could then not be distinguished from an escaped one.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// use mongolock::{LockContext, LockError, distributed_lock, escape};
///
/// assert_eq!(escape("a:1", ':'), "a%3A1");
/// assert_eq!(escape("50 %", ':'), "50 %25");
///
/// #[distributed_lock(name = "doc:<tenant>:<id>")]
/// async fn edit(tenant: &str, id: &str, #[lock] lock: LockContext) -> Result<String, LockError> {
///     Ok(lock.name().to_owned())
/// }
///
/// let (tenant, id) = ("a:1", "2:3");
/// let by_hand = format!("doc:{}:{id}", escape(tenant, ':'));
/// assert_eq!(provider.scope(edit(tenant, id)).await?, by_hand);
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// If the `Display` of the value returns an error, as [`to_string`](ToString::to_string) does.
pub fn escape(value: impl Display, separator: char) -> String {
    let mut text = String::new();
    let to = &mut text;
    let written = write!(Escaper { to, separator }, "{value}");
    written.expect("a `Display` implementation returned an error");
    text
}

/// A writer that escapes `%` and the separator in its input.
pub(super) struct Escaper<'a, W> {
    pub(super) to: &'a mut W,
    pub(super) separator: char,
}

impl<W: Write> Write for Escaper<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut plain = 0;
        for (at, special) in text.match_indices(['%', self.separator]) {
            self.to.write_str(&text[plain..at])?;
            for byte in special.bytes() {
                write!(self.to, "%{byte:02X}")?;
            }
            plain = at + special.len();
        }
        self.to.write_str(&text[plain..])
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Formatter;

    use super::*;

    #[test]
    fn only_the_separator_and_the_percent_sign_are_escaped() {
        assert_eq!(escape("plain/text-1 é", ':'), "plain/text-1 é");
        assert_eq!(escape("a:b%c", ':'), "a%3Ab%25c");
        assert_eq!(escape("%3A", ':'), "%253A");
        assert_eq!(escape("Bär", 'ä'), "B%C3%A4r");
        assert_eq!(escape("😀", '😀'), "%F0%9F%98%80");
        assert_eq!(escape(-25, '-'), "%2D25");
        assert_eq!(escape("", ':'), "");
    }

    #[test]
    fn an_escaped_value_does_not_depend_on_how_it_is_written() {
        struct Characters<'a>(&'a str);
        impl Display for Characters<'_> {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                self.0.chars().try_for_each(|character| f.write_char(character))
            }
        }
        for text in ["", "::", "a:b%%é", "é:é", "%3A"] {
            for separator in [':', 'é'] {
                assert_eq!(escape(Characters(text), separator), escape(text, separator));
            }
        }
    }
}
