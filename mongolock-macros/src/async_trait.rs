//! The one foreign shape that is recognised: what `#[async_trait]` makes of an `async fn`, a plain function
//! whose body ends in `Box::pin(async move { … })`. The lock goes inside the box, so that a future which is
//! never polled takes nothing.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::{AssocType, GenericArgument, PathArguments, ReturnType, Type, TypeParamBound};

use crate::item::Function;

/// A function that returns a boxed `async move` block.
pub(crate) struct Boxed {
    /// The body up to and including `Box::pin`.
    pub(crate) before: TokenStream,
    /// The parentheses of the call, for their place.
    pub(crate) call: Group,
    /// `async move`, as written.
    pub(crate) keywords: TokenStream,
    pub(crate) block: Group,
    /// What the future gives.
    pub(crate) output: Type,
}

impl Boxed {
    pub(crate) fn recognise(function: &Function) -> Option<Self> {
        if function.signature.asyncness.is_some() {
            return None;
        }
        let ReturnType::Type(_, returned) = &function.signature.output else {
            return None;
        };
        let output = future_output(returned)?.clone();
        let mut before: Vec<TokenTree> = function.body.stream().into_iter().collect();
        let call = group(before.pop()?, Delimiter::Parenthesis)?;
        let is_box_pin = match before.as_slice() {
            [
                ..,
                TokenTree::Ident(outer),
                TokenTree::Punct(_),
                TokenTree::Punct(colon),
                TokenTree::Ident(pin),
            ] => outer == "Box" && colon.as_char() == ':' && pin == "pin",
            _ => false,
        };
        let inside: Vec<TokenTree> = call.stream().into_iter().collect();
        let [
            TokenTree::Ident(first),
            TokenTree::Ident(second),
            block,
            rest @ ..,
        ] = inside.as_slice()
        else {
            return None;
        };
        let only = rest.is_empty() || matches!(rest, [TokenTree::Punct(comma)] if comma.as_char() == ',');
        if !is_box_pin || first != "async" || second != "move" || !only {
            return None;
        }
        let block = group(block.clone(), Delimiter::Brace)?;
        let keywords = inside[..2].iter().cloned().collect();
        Some(Self {
            before: before.into_iter().collect(),
            call,
            keywords,
            block,
            output,
        })
    }
}

fn group(token: TokenTree, delimiter: Delimiter) -> Option<Group> {
    match token {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

/// `T` of `Pin<Box<dyn Future<Output = T> + …>>`.
fn future_output(returned: &Type) -> Option<&Type> {
    let Type::TraitObject(object) = argument(argument(returned, "Pin")?, "Box")? else {
        return None;
    };
    object.bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else {
            return None;
        };
        let segment = bound
            .path
            .segments
            .last()
            .filter(|segment| segment.ident == "Future")?;
        let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
            return None;
        };
        arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(AssocType { ident, ty, .. }) if ident == "Output" => Some(ty),
            _ => None,
        })
    })
}

/// `T` of `outer<T>`, whatever path leads to `outer`.
fn argument<'a>(of: &'a Type, outer: &str) -> Option<&'a Type> {
    let Type::Path(path) = of else {
        return None;
    };
    let segment = path
        .path
        .segments
        .last()
        .filter(|segment| segment.ident == outer)?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(inner) => Some(inner),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use quote::{ToTokens, quote};

    use super::*;
    use crate::error::Errors;

    fn recognise(item: TokenStream) -> Option<Boxed> {
        Boxed::recognise(&Function::parse(item, &mut Errors::default()).unwrap())
    }

    fn with(returned: &TokenStream, body: &TokenStream) -> Option<Boxed> {
        recognise(quote!(fn f<'a>(&'a self) -> #returned { #body }))
    }

    #[test]
    fn recognises_the_box() {
        let returned = quote!(
            ::core::pin::Pin<
                Box<dyn ::core::future::Future<Output = Result<(), E>> + ::core::marker::Send + 'a>,
            >
        );
        let boxed = with(&returned, &quote!(let x = 1; Box::pin(async move { body }))).unwrap();
        assert_eq!(
            boxed.output.to_token_stream().to_string(),
            quote!(Result<(), E>).to_string()
        );
        assert_eq!(boxed.before.to_string(), quote!(let x = 1; Box::pin).to_string());
        assert_eq!(boxed.keywords.to_string(), "async move");
        assert_eq!(boxed.block.stream().to_string(), "body");
        assert!(with(&returned, &quote!(::std::boxed::Box::pin(async move { body },))).is_some());
    }

    #[test]
    fn refuses_everything_else() {
        let pinned = quote!(Pin<Box<dyn Future<Output = T>>>);
        for body in [
            quote!(Box::pin(async { body })),
            quote!(Box::pin(inner())),
            quote!(Rc::pin(async move { body })),
            quote!(Box::new(async move { body })),
            quote!(pin(async move { body })),
            quote!(Box::pin(async move { body }, 1)),
            quote!(Box::pin(async move { body });),
            quote!(),
        ] {
            assert!(with(&pinned, &body).is_none(), "{body}");
        }
        let body = quote!(Box::pin(async move { body }));
        for returned in [
            quote!(Box<dyn Future<Output = T>>),
            quote!(Pin<Box<dyn Future>>),
            quote!(Pin<Box<T>>),
            quote!(T),
        ] {
            assert!(with(&returned, &body).is_none(), "{returned}");
        }
        assert!(
            recognise(quote!(
                async fn f() -> Pin<Box<dyn Future<Output = T>>> {
                    Box::pin(async move {})
                }
            ))
            .is_none()
        );
        assert!(
            recognise(quote!(
                fn f() {
                    Box::pin(async move {})
                }
            ))
            .is_none()
        );
    }
}
