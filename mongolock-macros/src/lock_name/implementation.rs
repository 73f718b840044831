//! Generates the implementations of the two traits. The declaration has been checked, so nothing here can fail.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens, quote_spanned};

use super::declaration::Declaration;
use super::language::Values;
use super::pattern::Pattern;
use crate::expand::{rendered_parts, runtime_crate};

/// The implementations for a type with these templates.
pub(crate) fn expand(declaration: &Declaration, patterns: &[Pattern<'_>]) -> TokenStream {
    let span = Span::mixed_site();
    let runtime = runtime_crate(declaration.crate_path.as_ref());
    let rendered = patterns.iter().map(|pattern| rendered(pattern, &runtime));
    let templates = patterns.iter().map(|pattern| {
        let (variant, template) = (variant(pattern), pattern.template.value());
        quote_spanned!(span=> #variant { .. } => #template,)
    });
    implementations(
        declaration,
        &quote_spanned!(span=> match self { #(#rendered)* }),
        &quote_spanned!(span=> match self { #(#templates)* }),
    )
}

/// The arm that appends the name of a variant.
fn rendered(pattern: &Pattern<'_>, runtime: &TokenStream) -> TokenStream {
    let span = Span::mixed_site();
    let variant = variant(pattern);
    let bindings = pattern.bindings.iter().map(|(at, binding)| {
        let field = pattern.variant.fields.iter().nth(*at);
        let name = field.and_then(|field| field.ident.as_ref()).map_or_else(
            || Literal::usize_unsuffixed(*at).into_token_stream(),
            ToTokens::to_token_stream,
        );
        quote_spanned!(span=> #name: #binding,)
    });
    let integers = pattern.integers.iter().map(|(values, ty)| {
        let at = span.located_at(ty.span());
        let kind = match values {
            Values::Signed(_) => quote_spanned!(at=> SignedInteger),
            Values::Unsigned(_) | Values::Any => quote_spanned!(at=> UnsignedInteger),
        };
        quote_spanned!(at=> <#ty as #runtime::attribute::#kind>::is_primitive();)
    });
    let (template, parts) = (pattern.template.value(), rendered_parts(&pattern.parts));
    quote_spanned! {span=>
        #variant { #(#bindings)* .. } => {
            #(#integers)*
            name.template(#template) #parts
        }
    }
}

/// The implementations for a type with a mistake, which is reported beside them.
pub(crate) fn without_content(declaration: &Declaration) -> TokenStream {
    let nothing = quote_spanned!(Span::mixed_site()=> ::core::unreachable!());
    implementations(declaration, &nothing, &nothing)
}

/// The implementations with these expressions: one appends to `name`, the other is the template.
fn implementations(declaration: &Declaration, rendered: &TokenStream, template: &TokenStream) -> TokenStream {
    let span = Span::mixed_site();
    let runtime = runtime_crate(declaration.crate_path.as_ref());
    let private = quote_spanned!(span=> #runtime::attribute);
    let ident = &declaration.ident;
    let (parameters, arguments, bounds) = declaration.generics.split_for_impl();
    // The blanket implementation for `Display` does not cover the type, because it is local and has no `Display`; a
    // generic implementation for all references to lock names would overlap with that one.
    let references = [
        quote_spanned!(span=>),
        quote_spanned!(span=> &),
        quote_spanned!(span=> &&),
    ];
    let into = references.iter().map(|reference| {
        quote_spanned! {span=>
            #[automatically_derived]
            impl #parameters #runtime::IntoLockName for #reference #ident #arguments #bounds {
                fn into_lock_name(self, name: #private::NameBuilder) -> #private::NameBuilder {
                    <#ident #arguments as #runtime::LockName>::render(&self, name)
                }
            }
        }
    });
    quote_spanned! {span=>
        #[automatically_derived]
        impl #parameters #runtime::LockName for #ident #arguments #bounds {
            fn template(&self) -> &'static ::core::primitive::str {
                #template
            }
            fn render(&self, name: #private::NameBuilder) -> #private::NameBuilder {
                #rendered
            }
        }
        // For an argument of the annotated function that is a reference.
        #[automatically_derived]
        impl #parameters #runtime::LockName for &#ident #arguments #bounds {
            fn template(&self) -> &'static ::core::primitive::str {
                <#ident #arguments as #runtime::LockName>::template(self)
            }
            fn render(&self, name: #private::NameBuilder) -> #private::NameBuilder {
                <#ident #arguments as #runtime::LockName>::render(self, name)
            }
        }
        #(#into)*
    }
}

/// The pattern of a variant, without its fields.
fn variant(pattern: &Pattern<'_>) -> TokenStream {
    let span = Span::mixed_site();
    let ident = pattern.variant.ident.as_ref();
    ident.map_or_else(
        || quote_spanned!(span=> Self),
        |ident| quote_spanned!(span=> Self::#ident),
    )
}
