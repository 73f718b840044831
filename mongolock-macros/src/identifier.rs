//! Identifiers from the words of a template.

use proc_macro2::{Ident, Span};
use quote::ToTokens;

/// The identifier for a name of a template, in which keywords have no `r#`.
pub(crate) fn identifier(name: &str, span: Span) -> Ident {
    let ident = Ident::new(name, span);
    // The keyword list of `syn` lacks `gen`, which is a keyword since edition 2024.
    if name != "gen" && syn::parse2::<Ident>(ident.to_token_stream()).is_ok() {
        ident
    } else {
        Ident::new_raw(name, span)
    }
}
