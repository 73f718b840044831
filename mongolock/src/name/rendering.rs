//! A lock's name while generated code renders it.

use std::fmt::{self, Display, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use super::escape::Escaper;
use super::rendered::{Flaw, MAX_BYTES, RenderedName, rfc3339};

/// A lock's name while it is rendered: at its limit it stops the rendering.
#[derive(Debug)]
#[must_use]
pub struct NameBuilder {
    pub(super) text: String,
    /// The number of bytes that are kept.
    limit: usize,
    /// The first flaw: of a value, or of the name that it is too long, and text was left out.
    flaw: Option<Flaw>,
    template: Option<&'static str>,
}

/// A value of a placeholder in a lock name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used in a lock name",
    label = "it does not implement `std::fmt::Display`",
    note = "name a field or an argument-less method that implements `Display`, or implement it for your own type",
    note = "for a path write `<path.display()>`; for an `Option`, take the inner value as an argument"
)]
pub trait NameValue: Display {}

// The error names this trait, and not the trait behind it.
#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> NameValue for T {}

impl NameBuilder {
    /// An empty name of at most this number of bytes. A longer one than [`MAX_BYTES`] cannot be acquired.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            text: String::new(),
            limit,
            flaw: None,
            template: None,
        }
    }

    /// An empty name that this template describes.
    #[inline(never)]
    pub fn of_template(template: &'static str) -> Self {
        Self::new(MAX_BYTES).template(template)
    }

    /// Sets the template that describes the name.
    pub fn template(mut self, template: &'static str) -> Self {
        self.template = Some(template);
        self
    }

    /// Appends fixed text.
    pub fn text(mut self, text: &str) -> Self {
        // An error means that the name is too long, which is remembered.
        let _ = self.write_str(text);
        self
    }

    /// Appends the value of a placeholder.
    pub fn value<T: NameValue + ?Sized>(self, placeholder: &'static str, value: &T) -> Self {
        self.add(Some(placeholder), None, &value)
    }

    /// Appends the value of a placeholder, with `%` and the separator escaped.
    pub fn escaped<T: NameValue + ?Sized>(
        self,
        placeholder: &'static str,
        separator: char,
        value: &T,
    ) -> Self {
        self.add(Some(placeholder), Some(separator), &value)
    }

    /// Appends the value of a placeholder; without a placeholder the value is the whole name.
    pub(super) fn add(
        mut self,
        placeholder: Option<&'static str>,
        separator: Option<char>,
        value: &dyn Display,
    ) -> Self {
        let (before, to) = (self.text.len(), &mut self);
        let written = match separator {
            Some(separator) => write!(Escaper { to, separator }, "{value}"),
            None => write!(to, "{value}"),
        };
        if written.is_err() {
            // If the name is too long, that was noted before.
            self.flaw.get_or_insert(Flaw::DisplayFailed(placeholder));
        } else if self.text.len() == before
            && let Some(placeholder) = placeholder
        {
            self.flaw.get_or_insert(Flaw::Empty(placeholder));
        }
        self
    }

    pub(crate) fn finish(self) -> RenderedName {
        RenderedName {
            text: self.text.into(),
            flaw: self.flaw.map(Box::new),
            template: self.template,
        }
    }
}

impl Write for NameBuilder {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.flaw == Some(Flaw::TooLong) {
            return Err(fmt::Error);
        }
        let room = self.limit - self.text.len();
        let kept = (0..=room.min(text.len()))
            .rev()
            .find(|end| text.is_char_boundary(*end));
        self.text.push_str(&text[..kept.unwrap_or(0)]);
        if text.len() > room {
            self.flaw.get_or_insert(Flaw::TooLong);
            return Err(fmt::Error);
        }
        Ok(())
    }
}

impl RenderedName {
    /// The name with this scheduled time at its end. A time with a fraction of a second is wrong, because hosts do not agree
    /// on it.
    pub(crate) fn at(&self, tick: SystemTime) -> Self {
        let (text, since) = (rfc3339(tick), tick.duration_since(UNIX_EPOCH));
        let is_scheduled = text.is_some() && since.is_ok_and(|since| since.subsec_nanos() == 0);
        let wrong = (!is_scheduled).then_some(Flaw::WrongTick(tick));
        let name = NameBuilder {
            template: self.template,
            ..NameBuilder::new(MAX_BYTES)
        };
        let mut name = name.text(&self.text).text("@").text(&text.unwrap_or_default());
        name.flaw = wrong.or(self.flaw.as_deref().copied()).or(name.flaw);
        name.finish()
    }
}
