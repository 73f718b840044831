//! Every message of the macros, and the collection that reports the messages together.

use std::fmt;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

use crate::written::without_invisible_groups;

/// The mistakes of one attribute, in the order in which they were found.
#[derive(Debug, Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    /// Reports a mistake at one source position.
    pub(crate) fn push(&mut self, span: Span, message: impl fmt::Display) {
        self.add(syn::Error::new(span, message));
    }

    /// Reports a mistake that the compiler underlines from the first to the last of `tokens`. What a caller of a
    /// `macro_rules!` has written is underlined there.
    pub(crate) fn push_spanned(&mut self, tokens: impl ToTokens, message: impl fmt::Display) {
        let tokens = without_invisible_groups(tokens.into_token_stream());
        self.add(syn::Error::new_spanned(tokens, message));
    }

    /// Reports an error of the parser.
    pub(crate) fn add(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            none => *none = Some(error),
        }
    }

    /// The mistakes as `compile_error!` calls, which are allowed wherever a function is; no tokens without a mistake.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.0.map(|errors| errors.to_compile_error()).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

pub(crate) mod argument;
pub(crate) mod busy_function;
pub(crate) mod duration;
pub(crate) mod lock_argument;
pub(crate) mod lock_name;
pub(crate) mod placeholder;
pub(crate) mod target;
pub(crate) mod template;
