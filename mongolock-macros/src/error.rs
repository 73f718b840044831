//! Every sentence a user can get from the attribute, and the collection that reports them together.

use std::fmt;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

use crate::duration::DurationMistake;

/// The mistakes of one attribute, in the order of their discovery.
#[derive(Debug, Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    /// A mistake at one place.
    pub(crate) fn push(&mut self, span: Span, message: impl fmt::Display) {
        self.add(syn::Error::new(span, message));
    }

    /// A mistake whose caret covers all of `tokens`.
    pub(crate) fn push_over(&mut self, tokens: impl ToTokens, message: impl fmt::Display) {
        self.add(syn::Error::new_spanned(tokens, message));
    }

    pub(crate) fn add(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            none => *none = Some(error),
        }
    }

    /// The mistakes as `compile_error!` calls, which may stand wherever a function may; nothing if there are none.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.0.map(|errors| errors.to_compile_error()).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// What can be wrong with a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NameMistake {
    Empty,
    TooLong { bytes: usize },
    Blank { place: &'static str },
    Control { character: char },
    Unclosed { written: String },
    Unopened,
    NoPlaceholder,
    Syntax { written: String, write: Option<String> },
    Braced { written: String, write: Option<String> },
    Brace { brace: String },
    Adjacent { left: String, right: String },
}

impl fmt::Display for NameMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => {
                f.write_str("the lock name is empty: write what the lock protects, such as `report:<id>`")
            }
            Self::TooLong { bytes } => {
                let most = crate::name::MAX_BYTES;
                write!(
                    f,
                    "the lock name has {bytes} bytes, at most {most} are allowed: shorten it"
                )
            }
            Self::Blank { place } => write!(f, "the lock name {place} with white space: remove it"),
            Self::Control { character } => {
                let shown = character.escape_default();
                write!(
                    f,
                    "`{shown}` is a control character, which a lock name may not contain: remove it"
                )
            }
            Self::Unclosed { written } if written.is_empty() => {
                f.write_str("`<` opens a placeholder that is not closed: write `<<` for a literal `<`")
            }
            Self::Unclosed { written } => {
                write!(
                    f,
                    "`<{written}` is not closed: write `<{}>`, or `<<` for a literal `<`",
                    written.trim()
                )
            }
            Self::Unopened => f.write_str("`>` closes nothing: write `>>` for a literal `>`"),
            Self::NoPlaceholder => {
                f.write_str("`<>` names nothing: write an argument between the brackets, such as `<id>`")
            }
            Self::Syntax { written, write } => {
                write!(
                    f,
                    "`<{written}>` is not an argument, a field or an argument-less method of one: "
                )?;
                match write {
                    Some(write) => write!(f, "write `<{write}>`"),
                    None => f.write_str("pass the value as an argument, or use `LockProvider::lock`"),
                }
            }
            Self::Braced { written, write } => {
                write!(
                    f,
                    "`{written}` is not filled in, so every call would share one lock: "
                )?;
                match write {
                    Some(write) => write!(f, "write `<{write}>`"),
                    None => f.write_str("write the argument, such as `<id>`"),
                }
            }
            Self::Brace { brace } => {
                write!(
                    f,
                    "`{brace}` may not stand in a lock name, where placeholders are written `<id>`: remove it"
                )
            }
            Self::Adjacent { left, right } => write!(
                f,
                "nothing stands between `{left}` and `{right}`, so different values could give the same name: \
                 write a separator, such as `{left}:{right}`"
            ),
        }
    }
}

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

pub(crate) mod option;
pub(crate) mod target;
