mod escape;
mod integer;
mod lock_name;
mod rendering;

use std::fmt::{self, Display, Write};
use std::sync::Arc;

pub use self::escape::escape;
pub use self::integer::{SignedInteger, UnsignedInteger};
pub use self::lock_name::{IntoLockName, LockName, declared_lock_name};
pub use self::rendering::{Name, NameValue};
use crate::LockError;

/// The greatest length of a name in bytes: the name is an `_id` and is indexed, and a longer one is almost certainly a
/// mistake.
pub(crate) const MAX_BYTES: usize = 1024;

/// A lock's name as it was rendered, and why it could not be rendered as a whole. It is checked when the lock is
/// acquired.
#[derive(Debug, Clone)]
pub(crate) struct RenderedName {
    text: Arc<str>,
    /// The flaw is on the heap, because almost no name has one and every lock contains this value.
    flaw: Option<Box<Flaw>>,
    template: Option<&'static str>,
}

/// Why a name could not be rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The text was cut at [`MAX_BYTES`]. What was kept can be shorter than that, because a character is never cut.
    TooLong,
    /// The `Display` of the name, or of a placeholder of it, has returned an error.
    DisplayFailed(Option<&'static str>),
    /// The value of this placeholder is empty.
    Empty(&'static str),
}

impl RenderedName {
    /// Renders a name.
    pub(crate) fn new(value: impl IntoLockName) -> Self {
        value.into_lock_name(Name::limited()).finish()
    }

    /// The rendered text; only the beginning of a name that is too long.
    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The template that describes the name.
    pub(crate) fn template(&self) -> Option<&'static str> {
        self.template
    }

    /// The name with this template if it has none.
    pub(crate) fn or_template(self, template: &'static str) -> Self {
        let template = self.template.or(Some(template));
        Self { template, ..self }
    }

    /// The name with this text at its end.
    pub(crate) fn with_end(self, end: &str) -> Self {
        let mut name = Renderer {
            flaw: self.flaw.map(|flaw| *flaw),
            template: self.template,
            ..Renderer::limited()
        };
        name.text(&self.text);
        name.text(end);
        name.finish()
    }

    /// Checks the name against the rules for names.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        let reason = self
            .flaw
            .as_deref()
            .map(|flaw| flaw.reason())
            .or_else(|| broken_rule(&self.text));
        reason.map_or(Ok(()), |reason| Err(invalid(&self.text, reason)))
    }
}

/// Renders a name that is not a lock's own but may be that of any document, so its length has no limit and no rule
/// applies to it.
pub(crate) fn whole(value: impl IntoLockName) -> Result<String, LockError> {
    let name = value.into_lock_name(Name::unlimited()).finish();
    match name.flaw.as_deref() {
        Some(flaw @ Flaw::DisplayFailed(_)) => Err(invalid(&name.text, flaw.reason())),
        _ => Ok(name.text.as_ref().to_owned()),
    }
}

impl Flaw {
    fn reason(self) -> String {
        match self {
            Self::TooLong => format!("it is longer than {MAX_BYTES} bytes"),
            Self::DisplayFailed(None) => "its `Display` returned an error".to_owned(),
            Self::DisplayFailed(Some(placeholder)) => {
                format!("`<{placeholder}>` cannot be rendered: its `Display` returned an error")
            }
            Self::Empty(placeholder) => format!(
                "`<{placeholder}>` rendered to an empty string, with which different values would share one lock"
            ),
        }
    }
}

/// A name that is being rendered: at its limit it stops the rendering.
#[derive(Debug)]
pub(crate) struct Renderer {
    text: String,
    /// The number of bytes that are kept.
    limit: usize,
    /// Whether text was left out. The length of what was kept does not show it.
    too_long: bool,
    /// The first flaw of a value.
    flaw: Option<Flaw>,
    template: Option<&'static str>,
}

impl Renderer {
    /// A name of at most [`MAX_BYTES`].
    pub(crate) fn limited() -> Self {
        Self {
            text: String::new(),
            limit: MAX_BYTES,
            too_long: false,
            flaw: None,
            template: None,
        }
    }

    /// A name without a limit.
    pub(crate) fn unlimited() -> Self {
        Self {
            limit: usize::MAX,
            ..Self::limited()
        }
    }

    pub(crate) fn set_template(&mut self, template: &'static str) {
        self.template = Some(template);
    }

    /// Appends fixed text.
    pub(crate) fn text(&mut self, text: &str) {
        // An error means that the name is too long, which is remembered.
        let _ = self.write_str(text);
    }

    /// Appends the value of a placeholder; without a placeholder the value is the whole name.
    pub(crate) fn value(&mut self, placeholder: Option<&'static str>, value: &dyn Display) {
        if self.too_long {
            return;
        }
        let before = self.text.len();
        let written = write!(self, "{value}");
        if self.too_long {
            return;
        }
        if written.is_err() {
            self.flaw = Some(Flaw::DisplayFailed(placeholder));
        } else if self.text.len() == before
            && let Some(placeholder) = placeholder
        {
            self.flaw.get_or_insert(Flaw::Empty(placeholder));
        }
    }

    pub(crate) fn finish(self) -> RenderedName {
        let too_long = self.too_long.then_some(Flaw::TooLong);
        RenderedName {
            text: self.text.into(),
            flaw: self.flaw.or(too_long).map(Box::new),
            template: self.template,
        }
    }
}

impl Write for Renderer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.too_long {
            return Err(fmt::Error);
        }
        let room = self.limit - self.text.len();
        self.too_long = text.len() > room;
        let kept = (0..=room.min(text.len()))
            .rev()
            .find(|end| text.is_char_boundary(*end));
        self.text.push_str(&text[..kept.unwrap_or(0)]);
        if self.too_long { Err(fmt::Error) } else { Ok(()) }
    }
}

fn broken_rule(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".into());
    }
    if let Some(control) = name.chars().find(|c| c.is_control()) {
        return Some(format!("it contains the control character {control:?}"));
    }
    let blank_end = match (
        name.starts_with(char::is_whitespace),
        name.ends_with(char::is_whitespace),
    ) {
        (true, _) => "begins",
        (false, true) => "ends",
        (false, false) => return None,
    };
    Some(format!("it {blank_end} with white space"))
}

fn invalid(name: &str, reason: String) -> LockError {
    LockError::InvalidName {
        name: excerpt(name),
        reason,
    }
}

/// The name, shortened for an error message, so that a very long one does not flood a log.
fn excerpt(name: &str) -> String {
    const SHOWN: usize = 120;
    match name.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{}...", &name[..cut]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str) -> Result<(), LockError> {
        RenderedName::new(name).check()
    }

    #[test]
    fn the_longest_name_passes_and_a_longer_one_is_refused() {
        assert!(check(&"n".repeat(MAX_BYTES)).is_ok());
        let error = check(&"n".repeat(MAX_BYTES + 1)).unwrap_err().to_string();
        assert!(
            error.contains("longer than 1024 bytes") && error.len() < 300,
            "{error}"
        );
    }

    #[test]
    fn empty_names_and_control_characters_are_refused() {
        for bad in ["", "a\nb", "\u{7f}", "a\u{85}b"] {
            assert!(
                matches!(check(bad), Err(LockError::InvalidName { .. })),
                "{bad:?}"
            );
        }
        assert!(check("Bericht:Ä/ß 1").is_ok());
    }

    #[test]
    fn white_space_at_the_ends_is_refused() {
        for (bad, end) in [
            (" a", "begins"),
            ("a ", "ends"),
            ("\u{a0}a", "begins"),
            ("a\u{3000}", "ends"),
            (" ", "begins"),
        ] {
            let error = check(bad).unwrap_err().to_string();
            assert!(error.contains(&format!("{end} with white space")), "{error}");
        }
        assert!(check("a b").is_ok());
        assert_eq!(whole(" a ").unwrap(), " a ", "operators can use any name");
    }

    #[test]
    fn a_character_is_never_cut() {
        let name = RenderedName::new("n".repeat(MAX_BYTES - 2) + "😀");
        assert_eq!(name.text().len(), MAX_BYTES - 2);
        assert!(matches!(name.check(), Err(LockError::InvalidName { .. })));
    }

    #[test]
    fn text_after_the_end_is_not_kept() {
        let mut name = Renderer::limited();
        name.text(&"n".repeat(MAX_BYTES - 1));
        name.text("😀");
        name.text("a");
        name.value(Some("id"), &"");
        let name = name.finish();
        assert_eq!(name.text().len(), MAX_BYTES - 1);
        assert_eq!(name.flaw.as_deref(), Some(&Flaw::TooLong));
    }
}
