//! How a call ends: the three expressions that need something of the return type. All of them name the user's
//! type as their one generic argument, so a type that does not fit is reported there, once.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::Type;

/// The future that gives the lock back after the body and decides what is returned.
pub(crate) fn finish(private: &TokenStream, returned: &Type, ran: &TokenStream) -> TokenStream {
    let output = quote_spanned!(ends(returned).0=> #private::output::<#returned>());
    quote_spanned!(Span::mixed_site()=> #private::finish(#ran, #output))
}

/// What the call returns if the lock was not taken.
pub(crate) fn failed(private: &TokenStream, returned: &Type) -> TokenStream {
    let failed = quote_spanned!(ends(returned).0=> #private::failed::<#returned>);
    quote_spanned!(Span::mixed_site()=> #failed(error))
}

/// What the call returns if somebody else has the lock.
pub(crate) fn skipped(private: &TokenStream, returned: &Type) -> TokenStream {
    quote_spanned!(ends(returned).0=> #private::skipped::<#returned>())
}

/// Mixed-site spans at the first and the last token: between them they make the compiler underline
/// everything, which one stable span cannot.
pub(crate) fn ends(tokens: impl ToTokens) -> (Span, Span) {
    let mut spans = tokens.into_token_stream().into_iter().map(|token| token.span());
    let site = Span::mixed_site();
    let first = spans.next().unwrap_or(site);
    let last = spans.last().unwrap_or(first);
    (site.located_at(first), site.located_at(last))
}
