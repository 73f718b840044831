//! The mark with which a second attribute on a function detects the first one, under whatever name it was imported: the
//! first attribute has already replaced the body when the second one is expanded.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};

/// The variable of a locked body that holds the call and is the mark. No user writes this name.
const VARIABLE: &str = "mongolock_call";

/// The variable that holds the call; it is mixed-site, so that it cannot clash with a variable of the user.
pub(crate) fn variable() -> Ident {
    Ident::new(VARIABLE, Span::mixed_site())
}

/// Whether the body, which another attribute may have wrapped, is already locked. Locked functions inside a body are not
/// yet expanded.
pub(crate) fn is_locked(body: TokenStream) -> bool {
    body.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == VARIABLE,
        TokenTree::Group(group) => is_locked(group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}
