//! The end of a call: the three expressions that require a trait of the return type. Each of them has the return type
//! as its only generic argument, so the compiler reports an unsuitable type once, at its source position.

use proc_macro2::{Delimiter, Group, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::Type;

use crate::busy_function::BusyFunction;

/// The functions that put an error into the return type, for the end of the call.
pub(crate) fn output(private: &TokenStream, returned: &Type) -> TokenStream {
    quote_spanned!(first_and_last_span(returned).0=> #private::output::<#returned>())
}

/// The return value of the call if the lock could not be acquired.
pub(crate) fn failed(private: &TokenStream, returned: &Type) -> TokenStream {
    let failed = quote_spanned!(first_and_last_span(returned).0=> #private::failed::<#returned>);
    quote_spanned!(Span::mixed_site()=> #failed(error))
}

/// The return value of the call if the lock could not be acquired, perhaps because its work is done: the trait that the
/// method lookup finds first exists only for types that have a skipped value.
pub(crate) fn done_or_failed(private: &TokenStream, returned: &Type) -> TokenStream {
    let not_run = quote_spanned!(first_and_last_span(returned).0=> ::core::marker::PhantomData::<#returned>);
    let failed = failed(private, returned);
    quote_spanned! {Span::mixed_site()=>
        {
            use #private::{FailsWhenDone as _, SkipsWhenDone as _};
            match (&#not_run).skipped_if_done(error) {
                ::core::result::Result::Ok(skipped) => skipped,
                ::core::result::Result::Err(error) => #failed,
            }
        }
    }
}

/// The return value of the call if another holder has the lock.
pub(crate) fn skipped(private: &TokenStream, returned: &Type) -> TokenStream {
    quote_spanned!(first_and_last_span(returned).0=> #private::skipped::<#returned>())
}

/// The return value of the user's function for a busy lock. Every token has the position of the path, so that a
/// function with another signature is one error there; the type is that of the call.
pub(crate) fn answered(function: &BusyFunction, returned: &Type) -> TokenStream {
    let BusyFunction { path, arguments } = function;
    let (start, end) = first_and_last_span(path);
    let arguments = arguments.iter().map(|argument| {
        let mut argument = argument.clone();
        argument.set_span(start.resolved_at(argument.span()));
        quote_spanned!(start=> &#argument,)
    });
    let arguments = quote_spanned!(start=> #(#arguments)* &busy);
    let mut call = Group::new(Delimiter::Parenthesis, arguments);
    call.set_span(end);
    quote_spanned! {start=>
        {
            let answer: #returned = #path #call;
            answer
        }
    }
}

/// Mixed-site spans at the first and the last token. An expression that starts with one and ends with the other is
/// underlined as a whole; a single span for all of it needs a nightly compiler.
pub(crate) fn first_and_last_span(tokens: impl ToTokens) -> (Span, Span) {
    let mut spans = tokens.into_token_stream().into_iter().map(|token| token.span());
    let site = Span::mixed_site();
    let first = spans.next().unwrap_or(site);
    let last = spans.last().unwrap_or(first);
    (site.located_at(first), site.located_at(last))
}
