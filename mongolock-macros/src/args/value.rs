//! Finds the beginning and the end of a value among the arguments.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::discouraged::Speculative;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, Ident, Token, TypePath, token};

use crate::written::read_as;

/// Whether the argument ends here.
pub(super) fn is_end(input: ParseStream<'_>) -> bool {
    input.is_empty() || input.peek(Token![,])
}

/// Whether another argument starts here, which means that a comma is missing.
pub(super) fn is_next_argument(input: ParseStream<'_>) -> bool {
    input.peek(Ident::peek_any) && input.peek2(Token![=])
}

/// Reads a value with this property that ends where the argument ends. A value of another form is left in the input.
pub(super) fn whole<T: Parse>(input: ParseStream<'_>, is_accepted: impl FnOnce(&T) -> bool) -> Option<T> {
    let (ahead, tokens) = read_as::<T>(input)?;
    if !is_end(&ahead) && !is_next_argument(&ahead) {
        return None;
    }
    let value = syn::parse2(tokens).ok().filter(is_accepted)?;
    input.advance_to(&ahead);
    Some(value)
}

/// Whether the value is in parentheses.
pub(super) fn is_parenthesised(input: ParseStream<'_>) -> bool {
    input.peek(token::Paren) && whole::<TokenTree>(&input.fork(), |_| true).is_some()
}

/// Skips the rest of an argument, without its comma, and returns it. A comma inside a closure or between the types of
/// a path belongs to the argument.
pub(super) fn skip_value(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    if let Some(path) = whole::<TypePath>(input, |_| true) {
        return Ok(path.into_token_stream());
    }
    if let Some(expr) = whole::<Expr>(input, |_| true) {
        return Ok(expr.into_token_stream());
    }
    let mut tokens = TokenStream::new();
    while !is_end(input) {
        tokens.extend([input.parse::<TokenTree>()?]);
    }
    Ok(tokens)
}

/// Skips the rest of an argument with its comma, and returns it without the comma.
pub(super) fn skip(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let rest = skip_value(input)?;
    input.parse::<Option<Token![,]>>()?;
    Ok(rest)
}
