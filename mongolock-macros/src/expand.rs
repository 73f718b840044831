//! Generates the locked function. The arguments have been validated, so nothing here can fail.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, ExprReference, Path, Token, Type};

use crate::async_trait::BoxedFuture;
use crate::bind::{BoundValue, Part};
use crate::erase::erase_opaque_types;
use crate::function::{Function, split_inner_attributes};
use crate::identifier::identifier;
use crate::key::{Arg, DurationKey};
use crate::lock_argument::LockArgument;
use crate::mark;
use crate::outcome::{self, first_and_last_span};
use crate::shape::Shape;
use crate::template::Access;
use crate::validate::{BusyPolicy, CheckedLock, LockNames, NameSource, Timeout};

/// The function with its body under the lock.
pub(crate) fn expand(function: &Function, lock: &CheckedLock, shape: Shape) -> TokenStream {
    let head = &function.head;
    match shape {
        Shape::Async { returned } => {
            let (attributes, block) = split_inner_attributes(&function.body);
            let body = locked_body(function, lock, &returned, &block);
            // The outer braces keep their source position, because the compiler reports an unused function only if it
            // ends at a position of the user's code.
            let body = group_at(function.body.span(), Delimiter::Brace, quote!(#attributes #body));
            quote!(#head #body)
        }
        Shape::Boxed(BoxedFuture {
            before,
            call,
            keywords,
            block,
            output,
        }) => {
            let body = locked_body(function, lock, &output, &block);
            let mut inside = Group::new(Delimiter::Parenthesis, quote!(#keywords { #body }));
            inside.set_span(call.span());
            let body = group_at(function.body.span(), Delimiter::Brace, quote!(#before #inside));
            quote!(#head #body)
        }
    }
}

/// Renders the name, acquires the lock, runs the body and releases the lock. Every local variable is mixed-site, so that
/// none can clash with a variable of the user, and every path is absolute.
fn locked_body(function: &Function, lock: &CheckedLock, returned: &Type, block: &Group) -> TokenStream {
    let written = returned;
    let returned = &erase_opaque_types(written);
    let call = build_call(lock);
    let name = build_name(lock);
    let private = private_module(lock);
    let acquire = match &lock.on_busy {
        BusyPolicy::Wait => quote!(wait),
        BusyPolicy::Fail => quote!(fail),
        BusyPolicy::Skip | BusyPolicy::Call(_) => quote!(skip),
    };
    let has_marks = lock.is_once
        || lock.tick.is_some()
        || lock.durations.iter().any(|(key, _)| *key == DurationKey::OncePer);
    // If the compiler infers a part of the type, it cannot choose between two traits.
    let is_inferred = quote!(#written).to_string() != quote!(#returned).to_string();
    let failed = if has_marks && !is_inferred {
        outcome::done_or_failed(&private, returned)
    } else {
        outcome::failed(&private, returned)
    };
    // The error comes first: of two errors about a type the compiler reports the first one.
    let not_acquired = match &lock.on_busy {
        BusyPolicy::Wait | BusyPolicy::Fail => failed,
        BusyPolicy::Skip => {
            let skipped = outcome::skipped(&private, returned);
            quote_spanned! {Span::mixed_site()=>
                match #private::skips(error) {
                    ::core::result::Result::Err(error) => #failed,
                    ::core::result::Result::Ok(()) => #skipped,
                }
            }
        }
        BusyPolicy::Call(busy_function) => {
            let answer = outcome::answered(busy_function, returned);
            quote_spanned! {Span::mixed_site()=>
                match #private::busy(error) {
                    ::core::result::Result::Err(error) => #failed,
                    ::core::result::Result::Ok(busy) => #answer,
                }
            }
        }
    };
    let run = run_body(function, lock, returned, block);
    let variable = mark::variable();
    quote_spanned! {Span::mixed_site()=>
        let #variable = #call;
        let name = #name;
        return match #variable.#acquire(name).await {
            ::core::result::Result::Err(error) => #not_acquired,
            ::core::result::Result::Ok(acquired) => #run,
        };
    }
}

/// Runs the user's block as a separate future. The anchor before the block tells the compiler the type of every `return`,
/// `?` and tail expression; it is outside the block, so that items of the user cannot shadow the type. The `match` with
/// one arm keeps the braces of the block, which have the source position that errors and lints need, without a lint
/// about unnecessary braces.
fn run_body(function: &Function, lock: &CheckedLock, returned: &Type, block: &Group) -> TokenStream {
    let (start, _) = first_and_last_span(returned);
    let anchor = quote_spanned! {start=>
        if let ::core::option::Option::Some(returned) = ::core::option::Option::None::<#returned> {
            return returned;
        }
    };
    let private = private_module(lock);
    let output = outcome::output(&private, returned);
    let keywords = async_move(lock);
    let run = quote_spanned! {Span::mixed_site()=>
        acquired.run(
            ::core::pin::pin!(#private::Body::new(#keywords { #anchor match () { () => #block } })),
            #output,
        ).await
    };
    let Some(LockArgument {
        pattern,
        ty,
        attributes,
    }) = &function.lock_argument
    else {
        return run;
    };
    let (start, end) = first_and_last_span(ty);
    let context = quote_spanned!(start=> acquired.context);
    let call = group_at(end, Delimiter::Parenthesis, TokenStream::new());
    // The variable is outside the block, like every argument; its type is written, so that another type is an error there.
    quote_spanned! {Span::mixed_site()=>
        {
            #(#attributes)* let #pattern: #ty = #context #call;
            #run
        }
    }
}

/// The keywords `async move` of the body's future. The compiler reports there a variable that the body uses although
/// the name or the provider has moved it, so they have the position of that value, or that of the attribute.
fn async_move(lock: &CheckedLock) -> TokenStream {
    let value = match &lock.names {
        LockNames::One(NameSource::Value(value)) => Some(value),
        _ => lock.provider.as_ref(),
    };
    let (start, end) = first_and_last_span(value);
    let (first, second) = (quote_spanned!(start=> async), quote_spanned!(end=> move));
    quote!(#first #second)
}

/// The call with its provider and its options.
fn build_call(lock: &CheckedLock) -> TokenStream {
    let private = private_module(lock);
    let span = Span::mixed_site();
    let call = match &lock.provider {
        None => quote_spanned!(span=> #private::Call::global()),
        Some(provider) => {
            let (start, _) = first_and_last_span(provider);
            let argument = by_reference(provider);
            let on = quote_spanned!(start=> #private::Call::on);
            quote!(#on #argument)
        }
    };
    let options = options(lock);
    quote!(#call #options)
}

/// A reference to the value of this expression, as the argument of a call. An error about its type is at the expression.
fn by_reference(value: &Expr) -> TokenTree {
    let (start, end) = first_and_last_span(value);
    let reference = Expr::Reference(ExprReference {
        attrs: Vec::new(),
        and_token: Token![&](start),
        mutability: None,
        expr: Box::new(value.clone()),
    });
    group_at(end, Delimiter::Parenthesis, reference.into_token_stream())
}

/// The method calls that set the options; the provider's value applies to an option that is not set.
fn options(lock: &CheckedLock) -> TokenStream {
    let span = Span::mixed_site();
    let mut options = TokenStream::new();
    for (key, millis) in &lock.durations {
        let setter = identifier(Arg::Duration(*key).as_str(), span);
        let duration = duration(*millis);
        options.extend(quote_spanned!(span=> .#setter(#duration)));
    }
    if let Some(timeout) = lock.acquire_timeout {
        let limit = match timeout {
            Timeout::Unlimited => {
                quote_spanned!(span=> ::core::option::Option::<::core::time::Duration>::None)
            }
            Timeout::After(millis) => duration(millis),
        };
        options.extend(quote_spanned!(span=> .acquire_timeout(#limit)));
    }
    if let Some(permits) = lock.permits {
        options.extend(quote_spanned!(span=> .permits(#permits)));
    }
    if lock.is_once {
        options.extend(quote_spanned!(span=> .once()));
    }
    if let Some(tick) = &lock.tick {
        let (start, _) = first_and_last_span(tick);
        let once_at = quote_spanned!(start=> once_at);
        let argument = by_reference(tick);
        options.extend(quote_spanned!(span=> .));
        options.extend(quote!(#once_at #argument));
    }
    if lock.continues_when_lost {
        options.extend(quote_spanned!(span=> .continue_when_lost()));
    }
    if let Some(await_release) = lock.await_release {
        options.extend(quote_spanned!(span=> .await_release(#await_release)));
    }
    options
}

fn duration(millis: u64) -> TokenStream {
    quote_spanned!(Span::mixed_site()=> ::core::time::Duration::from_millis(#millis))
}

/// The lock name, or an array of the names.
fn build_name(lock: &CheckedLock) -> TokenStream {
    match &lock.names {
        LockNames::One(name) => rendered_name(lock, name),
        LockNames::Several(names) => {
            let names = names.iter().map(|name| rendered_name(lock, name));
            quote_spanned!(Span::mixed_site()=> [#(#names),*])
        }
    }
}

/// A name with the values of its placeholders.
fn rendered_name(lock: &CheckedLock, name: &NameSource) -> TokenStream {
    let private = private_module(lock);
    let span = Span::mixed_site();
    match name {
        NameSource::Template { template, parts } => {
            let parts = rendered_parts(parts);
            quote_spanned!(span=> #private::NameBuilder::of_template(#template) #parts)
        }
        // The value lives in this statement only, so a borrow in it is not part of the future.
        NameSource::Value(value) => {
            let (start, _) = first_and_last_span(value);
            let declared = quote_spanned!(start=> #private::declared_lock_name);
            let argument = by_reference(value);
            quote!(#declared #argument)
        }
    }
}

/// The method calls that append the parts of a name.
pub(crate) fn rendered_parts(parts: &[Part]) -> TokenStream {
    let span = Span::mixed_site();
    let calls = parts.iter().map(|part| match part {
        Part::Text(text) => quote_spanned!(span=> .text(#text)),
        Part::Value(value) => {
            let written = value.written.trim_matches(['<', '>']);
            let reference = reference(value);
            let at = span.located_at(value.span);
            if let Some(separator) = value.separator {
                quote_spanned!(at=> .escaped(#written, #separator, #reference))
            } else {
                quote_spanned!(at=> .value(#written, #reference))
            }
        }
    });
    quote!(#(#calls)*)
}

/// A reference to the value of a placeholder, so that the body can still move the argument. The first method is called on
/// a reference: it can neither consume the argument nor change it before the lock is held.
fn reference(value: &BoundValue) -> TokenStream {
    let BoundValue {
        root, steps, span, ..
    } = value;
    // The span is not that of the root, which the compiler takes for the user's code: its suggestions would then change
    // the string literal.
    let span = Span::mixed_site().located_at(*span);
    let and = Token![&](span);
    let is_method = |step: &Access| matches!(step, Access::Method(_));
    let (place, rest) = steps.split_at(steps.iter().position(is_method).unwrap_or(steps.len()));
    let place = place.iter().map(|one| step(one, span));
    let place = quote!(#and #root #(#place)*);
    if rest.is_empty() {
        return place;
    }
    let receiver = group_at(span, Delimiter::Parenthesis, place);
    let rest = rest.iter().map(|one| step(one, span));
    quote!(#and #receiver #(#rest)*)
}

/// One step of a placeholder, with its dot.
fn step(step: &Access, span: Span) -> TokenStream {
    match step {
        Access::Field(name) => {
            let field = identifier(name, span);
            quote_spanned!(span=> .#field)
        }
        Access::Index(index) => {
            let index = syn::Index { index: *index, span };
            quote_spanned!(span=> .#index)
        }
        Access::Method(name) => {
            let method = identifier(name, span);
            quote_spanned!(span=> .#method())
        }
    }
}

/// The path of the module that the expansion uses.
fn private_module(lock: &CheckedLock) -> TokenStream {
    let runtime = runtime_crate(lock.crate_path.as_ref());
    quote_spanned!(Span::mixed_site()=> #runtime::attribute)
}

/// The path of the runtime crate.
pub(crate) fn runtime_crate(path: Option<&Path>) -> TokenStream {
    path.map_or_else(
        || quote_spanned!(Span::mixed_site()=> ::mongolock),
        ToTokens::to_token_stream,
    )
}

/// Puts tokens between delimiters that have this source position.
fn group_at(span: Span, delimiter: Delimiter, inside: TokenStream) -> TokenTree {
    let mut group = Group::new(delimiter, inside);
    group.set_span(span);
    TokenTree::Group(group)
}

#[cfg(test)]
mod tests;
