//! Messages about the template of a lock name.

use std::fmt;

use crate::template::{MAX_BYTES, TemplateMistake};

impl fmt::Display for TemplateMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => {
                f.write_str("the lock name is empty: write what the lock protects, such as `report:<id>`")
            }
            Self::TooLong { bytes } => {
                write!(
                    f,
                    "the lock name has {bytes} bytes, and at most {MAX_BYTES} are allowed: shorten it"
                )
            }
            Self::Blank { place } => write!(f, "the lock name {place} with white space: remove it"),
            Self::Control { character } => {
                let shown = character.escape_default();
                write!(
                    f,
                    "`{shown}` is a control character, which is not allowed in a lock name: remove it"
                )
            }
            Self::Unclosed { written } if written.is_empty() => {
                f.write_str("`<` has no matching `>`: write `<<` for a literal `<`")
            }
            Self::Unclosed { written } => {
                write!(
                    f,
                    "`<{written}` has no matching `>`: write `<{}>`, or `<<` for a literal `<`",
                    written.trim()
                )
            }
            Self::Unopened => f.write_str("`>` has no matching `<`: write `>>` for a literal `>`"),
            Self::NoPlaceholder => f.write_str(
                "`<>` is an empty placeholder: write an argument between the brackets, such as `<id>`",
            ),
            Self::Syntax { written, write } => {
                let other = "pass the value as an argument, or use `LockProvider::lock`";
                let mend = mend(write.as_ref(), other);
                write!(
                    f,
                    "`<{written}>` must name an argument, or a field or an argument-less method of an argument: {mend}"
                )
            }
            Self::Braced { written, write } => {
                let mend = mend(write.as_ref(), "write an argument, such as `<id>`");
                write!(
                    f,
                    "`{written}` is not a placeholder, so all calls would share one lock: {mend}"
                )
            }
            Self::Brace { brace } => {
                write!(
                    f,
                    "`{brace}` is not allowed in a lock name, where placeholders are written `<id>`: remove it"
                )
            }
            Self::Adjacent { left, right } => write!(
                f,
                "there is no text between `{left}` and `{right}`, so different values could give the same name: \
                 write a separator, such as `{left}:{right}`"
            ),
            Self::Percent { after } => write!(
                f,
                "`%` after `{after}` could not be distinguished from an escaped character of the value: \
                 begin the text with another separator, such as `{after}:%`"
            ),
        }
    }
}

/// The advice what to write; `otherwise` is the advice without a proposal.
fn mend(write: Option<&String>, otherwise: &str) -> String {
    write.map_or_else(|| otherwise.to_owned(), |write| format!("write `<{write}>`"))
}
