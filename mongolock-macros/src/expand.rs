//! Writes the locked function. No rules here: whatever arrives can be expanded.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, ExprReference, Token, Type};

use crate::async_trait::Boxed;
use crate::bind::{Part, Value};
use crate::erase::erase;
use crate::item::{Function, split_inner_attributes};
use crate::key::DurationKey;
use crate::name::Step;
use crate::outcome::{self, ends};
use crate::shape::Shape;
use crate::validate::{Lock, OnBusy, OnLost, Timeout};

/// The function with its body under the lock.
pub(crate) fn expand(function: &Function, lock: &Lock, shape: Shape) -> TokenStream {
    let head = &function.head;
    match shape {
        Shape::Plain { returned } => {
            let (attributes, block) = split_inner_attributes(&function.body);
            let body = body(lock, &returned, &block);
            // The user's place for the outer braces, too: unused functions are reported only if they end there.
            let body = at(function.body.span(), Delimiter::Brace, quote!(#attributes #body));
            quote!(#head #body)
        }
        Shape::Boxed(Boxed {
            before,
            call,
            keywords,
            block,
            output,
        }) => {
            let body = body(lock, &output, &block);
            let mut inside = Group::new(Delimiter::Parenthesis, quote!(#keywords { #body }));
            inside.set_span(call.span());
            let body = at(function.body.span(), Delimiter::Brace, quote!(#before #inside));
            quote!(#head #body)
        }
    }
}

/// Name, acquire, body, release. Every local is mixed-site, so that none can meet one of the user's, and every
/// path is absolute.
fn body(lock: &Lock, returned: &Type, block: &Group) -> TokenStream {
    let returned = &erase(returned);
    let call = call(lock);
    let name = name(lock);
    let ask = match lock.on_busy {
        OnBusy::Wait => quote!(wait),
        OnBusy::Skip => quote!(skip),
        OnBusy::Fail => quote!(fail),
    };
    let failed = outcome::failed(&private(lock), returned);
    let outcomes = match lock.on_busy {
        OnBusy::Wait | OnBusy::Fail => ran(lock, returned, block),
        OnBusy::Skip => {
            let ran = ran(lock, returned, block);
            let skipped = outcome::skipped(&private(lock), returned);
            quote_spanned! {Span::mixed_site()=>
                match held {
                    ::core::option::Option::Some(held) => #ran,
                    ::core::option::Option::None => #skipped,
                }
            }
        }
    };
    quote_spanned! {Span::mixed_site()=>
        let call = #call;
        let name = #name;
        return match call.#ask(name).await {
            ::core::result::Result::Err(error) => #failed,
            ::core::result::Result::Ok(held) => #outcomes,
        };
    }
}

/// The user's block as a future of its own. The anchor before it tells the compiler the type of every
/// `return`, `?` and tail, outside the scope of the user's own items; the one-arm `match` lets the block
/// keep its own braces, whose place the compiler's carets and lints need, without being called needless.
fn ran(lock: &Lock, returned: &Type, block: &Group) -> TokenStream {
    let (start, _) = ends(returned);
    let anchor = quote_spanned! {start=>
        if let ::core::option::Option::Some(returned) = ::core::option::Option::None::<#returned> {
            return returned;
        }
    };
    let ran = quote_spanned! {Span::mixed_site()=>
        held.run(async move { #anchor match () { () => #block } }).await
    };
    let finish = outcome::finish(&private(lock), returned, &ran);
    quote_spanned!(Span::mixed_site()=> #finish.await)
}

fn call(lock: &Lock) -> TokenStream {
    let private = private(lock);
    let span = Span::mixed_site();
    let mut call = match &lock.provider {
        None => quote_spanned!(span=> #private::Call::global()),
        Some(provider) => {
            let (start, end) = ends(provider);
            let reference = Expr::Reference(ExprReference {
                attrs: Vec::new(),
                and_token: Token![&](start),
                mutability: None,
                expr: Box::new(provider.clone()),
            });
            let on = quote_spanned!(start=> #private::Call::on);
            let argument = at(end, Delimiter::Parenthesis, reference.into_token_stream());
            quote!(#on #argument)
        }
    };
    for (key, millis) in &lock.durations {
        let setter = match key {
            DurationKey::Expiry => quote_spanned!(span=> expiry),
            DurationKey::RenewInterval => quote_spanned!(span=> renew_interval),
            DurationKey::MinHold => quote_spanned!(span=> min_hold),
            DurationKey::MaxHold => quote_spanned!(span=> max_hold),
        };
        call.extend(quote_spanned!(span=> .#setter(#millis)));
    }
    match lock.acquire_timeout {
        Some(Timeout::Never) => {
            call.extend(quote_spanned!(span=> .acquire_timeout(::core::option::Option::None)));
        }
        Some(Timeout::After(millis)) => {
            call.extend(quote_spanned!(span=> .acquire_timeout(::core::option::Option::Some(#millis))));
        }
        None => {}
    }
    if lock.on_lost == OnLost::Continue {
        call.extend(quote_spanned!(span=> .continue_when_lost()));
    }
    call
}

fn name(lock: &Lock) -> TokenStream {
    let private = private(lock);
    let span = Span::mixed_site();
    let parts = lock.name.iter().map(|part| match part {
        Part::Text(text) => quote_spanned!(span=> .text(#text)),
        Part::Value(value) => {
            let written = value.written.trim_matches(['<', '>']);
            let reference = reference(value);
            let at = span.located_at(value.span);
            quote_spanned!(at=> .value(#written, #reference))
        }
    });
    quote_spanned!(span=> #private::Name::new() #(#parts)*)
}

/// A reference to the value: the body may still move the argument.
fn reference(value: &Value) -> TokenStream {
    let Value {
        root, steps, span, ..
    } = value;
    // Not the root's span: in the compiler's eyes it is the user's, and a suggestion would rewrite the literal.
    let span = Span::mixed_site().located_at(*span);
    let steps = steps.iter().map(|step| match step {
        Step::Field(name) => {
            let field = identifier(name, span);
            quote_spanned!(span=> .#field)
        }
        Step::Index(index) => {
            let index = syn::Index { index: *index, span };
            quote_spanned!(span=> .#index)
        }
        Step::Method(name) => {
            let method = identifier(name, span);
            quote_spanned!(span=> .#method())
        }
    });
    let and = Token![&](span);
    quote!(#and #root #(#steps)*)
}

/// Keywords are written in a template without `r#`.
fn identifier(name: &str, span: Span) -> Ident {
    let ident = Ident::new(name, span);
    // `gen` became a keyword with edition 2024, after `syn` made its list.
    if name != "gen" && syn::parse2::<Ident>(ident.to_token_stream()).is_ok() {
        ident
    } else {
        Ident::new_raw(name, span)
    }
}

fn private(lock: &Lock) -> TokenStream {
    let span = Span::mixed_site();
    let path = lock
        .crate_path
        .as_ref()
        .map_or_else(|| quote_spanned!(span=> ::mongolock), ToTokens::to_token_stream);
    quote_spanned!(span=> #path::__private)
}

fn at(span: Span, delimiter: Delimiter, inside: TokenStream) -> TokenTree {
    let mut group = Group::new(delimiter, inside);
    group.set_span(span);
    TokenTree::Group(group)
}

#[cfg(test)]
mod tests;
