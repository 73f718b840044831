//! `#[derive(LockName)]`: a type whose values are lock names, with a template for each variant.
//!
//! Parse (`declaration`, `pattern`), prove that no two templates give the same name (`disjoint`, with `language`,
//! `automaton` and `witness`), expand (`implementation`).

mod automaton;
mod declaration;
mod disjoint;
mod implementation;
mod language;
mod pattern;
mod witness;

use proc_macro2::TokenStream;

use self::declaration::Declaration;
use self::pattern::Pattern;
use crate::error::Errors;

/// The implementations for a type. After a mistake they have no content, so that the compiler reports nothing but the
/// mistake where the type is used.
pub(crate) fn derive(item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let Some(declaration) = Declaration::parse(item, &mut errors) else {
        return errors.into_tokens();
    };
    let mut patterns = Vec::new();
    for variant in &declaration.variants {
        patterns.extend(Pattern::bind(variant, &declaration, &mut errors));
    }
    if errors.is_empty() {
        disjoint::check(&patterns, &mut errors);
    }
    if errors.is_empty() {
        return implementation::expand(&declaration, &patterns);
    }
    let mut tokens = implementation::without_content(&declaration);
    tokens.extend(errors.into_tokens());
    tokens
}

#[cfg(test)]
mod tests;
