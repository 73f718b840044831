//! A lock's name while generated code renders it.

use std::fmt::Display;

use super::escape::Escaped;
use super::{RenderedName, Renderer};

/// A lock's name while it is rendered.
#[derive(Debug)]
pub struct Name(Renderer);

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

impl Name {
    /// An empty name of at most 1024 bytes.
    pub(crate) fn limited() -> Self {
        Self(Renderer::limited())
    }

    /// An empty name without a limit, which cannot be acquired.
    pub(crate) fn unlimited() -> Self {
        Self(Renderer::unlimited())
    }

    /// An empty name that this template describes.
    #[must_use]
    pub fn of_template(template: &'static str) -> Self {
        Self::limited().template(template)
    }

    /// Sets the template that describes the name.
    #[must_use]
    pub fn template(mut self, template: &'static str) -> Self {
        self.0.set_template(template);
        self
    }

    /// Appends fixed text.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.0.text(text);
        self
    }

    /// Appends the value of a placeholder.
    #[must_use]
    pub fn value<T: NameValue + ?Sized>(mut self, placeholder: &'static str, value: &T) -> Self {
        self.0.value(Some(placeholder), &value);
        self
    }

    /// Appends the value of a placeholder, with `%` and the separator escaped.
    #[must_use]
    pub fn escaped<T: NameValue + ?Sized>(
        mut self,
        placeholder: &'static str,
        separator: char,
        value: &T,
    ) -> Self {
        let value = Escaped {
            value: &value,
            separator,
        };
        self.0.value(Some(placeholder), &value);
        self
    }

    /// Appends a value that is the whole name.
    pub(super) fn single(mut self, value: &dyn Display) -> Self {
        self.0.value(None, value);
        self
    }

    pub(crate) fn finish(self) -> RenderedName {
        self.0.finish()
    }
}
