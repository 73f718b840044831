//! The output of `#[async_trait]`: a plain function whose body is `Box::pin(async move { … })` and nothing else. The lock
//! is acquired inside the box, so that a future that is never polled acquires no lock.
//!
//! Code before `Box::pin` would run without the lock: it could return another future, or shadow an argument that the name
//! is made of.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::{AssocType, GenericArgument, PathArguments, ReturnType, Type, TypeParamBound};

use crate::function::{Function, split_inner_attributes};
use crate::written::bare;

/// A function that returns a boxed `async move` block.
pub(crate) struct BoxedFuture {
    /// The inner attributes of the function and `Box::pin`.
    pub(crate) before: TokenStream,
    /// The parentheses of the call, which have its source position.
    pub(crate) call: Group,
    /// The words `async move` as written.
    pub(crate) keywords: TokenStream,
    /// The block of the future.
    pub(crate) block: Group,
    /// The type of the output of the future.
    pub(crate) output: Type,
}

impl BoxedFuture {
    /// Splits the function into its parts; `None` if it has another shape.
    pub(crate) fn recognise(function: &Function) -> Option<Self> {
        if function.signature.asyncness.is_some() {
            return None;
        }
        let ReturnType::Type(_, returned) = &function.signature.output else {
            return None;
        };
        let output = future_output(returned)?.clone();
        let (attributes, body) = split_inner_attributes(&function.body);
        let mut path: Vec<TokenTree> = body.stream().into_iter().collect();
        let call = group(path.pop()?, Delimiter::Parenthesis)?;
        if !is_box_pin(&path) {
            return None;
        }
        let (keywords, block) = async_move_block(&call)?;
        Some(Self {
            before: attributes.into_iter().chain(path).collect(),
            call,
            keywords,
            block,
            output,
        })
    }
}

/// Whether the value of a body is the call of `Box::pin`, `.boxed()` or `.boxed_local()`.
pub(crate) fn ends_in_a_box(body: &Group) -> bool {
    let tokens: Vec<TokenTree> = body.stream().into_iter().collect();
    let is_box = |called: &Ident| ["pin", "boxed", "boxed_local"].iter().any(|word| called == word);
    matches!(tokens.as_slice(), [.., TokenTree::Ident(called), TokenTree::Group(_)] if is_box(called))
}

/// Whether the tokens are `Box::pin`, or `::std::boxed::Box::pin` as `#[tracing::instrument]` writes it.
fn is_box_pin(tokens: &[TokenTree]) -> bool {
    let path: String = tokens.iter().map(ToString::to_string).collect();
    matches!(path.as_str(), "Box::pin" | "::std::boxed::Box::pin")
}

/// The words and the block of `async move { … }`, if this is the only argument of the call.
fn async_move_block(call: &Group) -> Option<(TokenStream, Group)> {
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
    if first != "async" || second != "move" || !only {
        return None;
    }
    let block = group(block.clone(), Delimiter::Brace)?;
    Some((inside[..2].iter().cloned().collect(), block))
}

/// The group that this token is, if it has these delimiters.
fn group(token: TokenTree, delimiter: Delimiter) -> Option<Group> {
    match token {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

/// The `T` in `Pin<Box<dyn Future<Output = T> + …>>`.
fn future_output(returned: &Type) -> Option<&Type> {
    let Type::TraitObject(object) = bare(argument(argument(returned, "Pin")?, "Box")?) else {
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

/// The `T` in `outer<T>`, with any path before `outer`.
fn argument<'a>(of: &'a Type, outer: &str) -> Option<&'a Type> {
    let Type::Path(path) = bare(of) else {
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
    use super::*;
    use crate::error::Errors;
    use crate::samples::tokens;

    fn recognise(item: &str) -> Option<BoxedFuture> {
        let function = Function::parse(tokens(item), &mut Errors::default());
        BoxedFuture::recognise(&function.ok().unwrap())
    }

    fn with(returned: &str, body: &str) -> Option<BoxedFuture> {
        recognise(&format!("fn f<'a>(&'a self) -> {returned} {{ {body} }}"))
    }

    #[test]
    fn a_boxed_async_move_block_is_recognised() {
        let returned = "::core::pin::Pin<Box<dyn ::core::future::Future<Output = Result<(), E>> + ::core::marker::Send + 'a>>";
        let body = "#![allow(x)] ::std::boxed::Box::pin(async move { body },)";
        let boxed = with(returned, body).unwrap();
        assert_eq!(boxed.block.stream().to_string(), "body");
    }

    #[test]
    fn other_bodies_and_return_types_are_not_recognised() {
        let pinned = "Pin<Box<dyn Future<Output = T>>>";
        let bodies = "
            Box::pin(async { body })
            Box::pin(inner())
            let x = 1; Box::pin(async move { body })
            if x { return y; } Box::pin(async move { body })
            {} Box::pin(async move { body })
            return Box::pin(async move { body })
            other::Box::pin(async move { body })
            Rc::pin(async move { body })
            Box::new(async move { body })
            pin(async move { body })
            Box::pin(async move { body }, 1)
            Box::pin(async move { body });
        ";
        for body in bodies.lines() {
            assert!(with(pinned, body).is_none(), "{body}");
        }
        let body = "Box::pin(async move { body })";
        for returned in "Box<dyn Future<Output = T>>|Pin<Box<dyn Future>>|Pin<Box<T>>|T".split('|') {
            assert!(with(returned, body).is_none(), "{returned}");
        }
        for item in ["async fn f() -> Pin<Box<dyn Future<Output = T>>>", "fn f()"] {
            assert!(recognise(&format!("{item} {{ Box::pin(async move {{}}) }}")).is_none());
        }
    }
}
