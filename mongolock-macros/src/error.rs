//! Every sentence a user can get from the attribute, and the collection that reports them together.

use std::fmt;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

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

pub(crate) mod duration;
pub(crate) mod name;
pub(crate) mod option;
pub(crate) mod target;
