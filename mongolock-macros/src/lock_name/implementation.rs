//! Generates the implementations of the two traits. The declaration has been checked, so nothing here can fail.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::Index;

use super::declaration::Declaration;
use super::language::Values;
use super::pattern::Pattern;
use crate::expand::{rendered_parts, runtime_crate};

/// The implementations for a type with these templates.
pub(crate) fn expand(declaration: &Declaration, patterns: &[Pattern<'_>]) -> TokenStream {
    let span = Span::mixed_site();
    let runtime = runtime_crate(declaration.crate_path.as_ref());
    let rendered = patterns.iter().map(|pattern| {
        let variant = variant(pattern);
        let bindings = pattern.bindings.iter().map(|(at, binding)| {
            let field = pattern.variant.fields.iter().nth(*at);
            match field.and_then(|field| field.ident.as_ref()) {
                Some(name) => quote_spanned!(span=> #name: #binding,),
                None => {
                    let index = Index {
                        index: u32::try_from(*at).unwrap_or(u32::MAX),
                        span,
                    };
                    quote_spanned!(span=> #index: #binding,)
                }
            }
        });
        let integers = pattern.integers.iter().map(|(values, ty)| {
            let at = span.located_at(ty.span());
            match values {
                Values::Signed(_) => quote_spanned!(at=> <#ty as #runtime::SignedInteger>::is_primitive();),
                _ => quote_spanned!(at=> <#ty as #runtime::UnsignedInteger>::is_primitive();),
            }
        });
        let parts = rendered_parts(&pattern.parts);
        let template = pattern.template.value();
        quote_spanned! {span=>
            #variant { #(#bindings)* .. } => {
                #(#integers)*
                name.template(#template) #parts
            }
        }
    });
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

/// The implementations for a type with a mistake, which is reported beside them.
pub(crate) fn without_content(declaration: &Declaration) -> TokenStream {
    let nothing = quote_spanned!(Span::mixed_site()=> ::core::unreachable!());
    implementations(declaration, &nothing, &nothing)
}

/// The implementations with these expressions: one appends to `name`, the other is the template.
fn implementations(declaration: &Declaration, rendered: &TokenStream, template: &TokenStream) -> TokenStream {
    let span = Span::mixed_site();
    let runtime = runtime_crate(declaration.crate_path.as_ref());
    let private = quote_spanned!(span=> #runtime::__private);
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
                fn into_lock_name(self, name: #private::Name) -> #private::Name {
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
            fn render(&self, name: #private::Name) -> #private::Name {
                #rendered
            }
        }
        // For an argument of the annotated function that is a reference.
        #[automatically_derived]
        impl #parameters #runtime::LockName for &#ident #arguments #bounds {
            fn template(&self) -> &'static ::core::primitive::str {
                <#ident #arguments as #runtime::LockName>::template(self)
            }
            fn render(&self, name: #private::Name) -> #private::Name {
                <#ident #arguments as #runtime::LockName>::render(self, name)
            }
        }
        #(#into)*
    }
}

/// The pattern of a variant, without its fields.
fn variant(pattern: &Pattern<'_>) -> TokenStream {
    let span = Span::mixed_site();
    match &pattern.variant.ident {
        Some(ident) => quote_spanned!(span=> Self::#ident),
        None => quote_spanned!(span=> Self),
    }
}
