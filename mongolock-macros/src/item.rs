//! The annotated function. Its signature is read, its body kept as tokens: new syntax in bodies cannot break
//! the attribute, and the function compiles to what its author wrote.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, FnArg, Pat, Signature, Token, Visibility};

use crate::error::{Errors, target};

/// A function with a body.
pub(crate) struct Function {
    /// Attributes, visibility and signature, every token as it was.
    pub(crate) head: TokenStream,
    pub(crate) signature: Signature,
    pub(crate) body: Group,
}

impl Function {
    /// Reads the annotated item; what it is instead is reported.
    pub(crate) fn parse(item: TokenStream, errors: &mut Errors) -> Option<Self> {
        let mut head: Vec<TokenTree> = ungrouped(item).into_iter().collect();
        let last = head.pop();
        let body = last.clone().and_then(body);
        if body.is_none() {
            head.extend(last.clone());
        }
        let head: TokenStream = head.into_iter().collect();
        let read = |input: ParseStream<'_>| signature(input, errors);
        let signature = match read.parse2(head.clone()) {
            Ok(signature) => signature?,
            Err(error) => {
                errors.add(error);
                return None;
            }
        };
        let Some(body) = body else {
            errors.push(
                last.map_or_else(Span::call_site, |end| end.span()),
                target::no_body(),
            );
            return None;
        };
        Some(Self {
            head,
            signature,
            body,
        })
    }

    pub(crate) fn name(&self) -> String {
        self.signature.ident.unraw().to_string()
    }

    /// The names that the argument patterns bind, without `self`.
    pub(crate) fn bindings(&self) -> Vec<&Ident> {
        let mut found = Vec::new();
        for input in &self.signature.inputs {
            if let FnArg::Typed(argument) = input {
                bindings(&argument.pat, &mut found);
            }
        }
        found
    }
}

/// An item that a `macro_rules!` fragment brought is wrapped in an invisible group.
fn ungrouped(item: TokenStream) -> TokenStream {
    let mut tokens = item.clone().into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() == Delimiter::None => {
            ungrouped(group.stream())
        }
        _ => item,
    }
}

fn body(last: TokenTree) -> Option<Group> {
    match last {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group),
        // `$body:block` of a `macro_rules!`.
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
            let mut inside = group.stream().into_iter();
            let only = inside.next()?;
            inside.next().is_none().then(|| body(only)).flatten()
        }
        _ => None,
    }
}

fn signature(input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Option<Signature>> {
    for attribute in input.call(Attribute::parse_outer)? {
        if attribute
            .path()
            .segments
            .last()
            .is_some_and(|segment| segment.ident == "distributed_lock")
        {
            errors.push_over(attribute, target::stacked());
        }
    }
    let ahead = input.fork();
    ahead.parse::<Visibility>()?;
    ahead.parse::<Option<Token![default]>>()?;
    if !leads_to_fn(&ahead)? {
        let keyword = input.fork();
        keyword.parse::<Visibility>()?;
        let keyword = keyword
            .call(Ident::parse_any)
            .map(|word| word.to_string())
            .unwrap_or_default();
        errors.push(input.span(), target::not_a_function(&keyword));
        input.parse::<TokenStream>()?;
        return Ok(None);
    }
    input.parse::<Visibility>()?;
    input.parse::<Option<Token![default]>>()?;
    let signature = input.parse()?;
    input.parse::<Option<Token![;]>>()?;
    Ok(Some(signature))
}

/// Whether only `const`, `async`, `unsafe`, `safe` and `extern "C"` stand before `fn`.
fn leads_to_fn(input: ParseStream<'_>) -> syn::Result<bool> {
    let ahead = input.fork();
    while !ahead.peek(Token![fn]) {
        let qualifier = ahead.peek(Token![const])
            || ahead.peek(Token![async])
            || ahead.peek(Token![unsafe])
            || ahead.peek(Token![safe])
            || ahead.peek(Token![extern])
            || ahead.peek(syn::LitStr);
        if !qualifier {
            return Ok(false);
        }
        ahead.parse::<TokenTree>()?;
    }
    Ok(true)
}

fn bindings<'a>(pattern: &'a Pat, found: &mut Vec<&'a Ident>) {
    let mut all =
        |patterns: &mut dyn Iterator<Item = &'a Pat>| patterns.for_each(|inner| bindings(inner, found));
    match pattern {
        Pat::Ident(binding) => {
            found.push(&binding.ident);
            if let Some((_, inner)) = &binding.subpat {
                bindings(inner, found);
            }
        }
        Pat::Or(or) => all(&mut or.cases.iter()),
        Pat::Paren(paren) => bindings(&paren.pat, found),
        Pat::Reference(reference) => bindings(&reference.pat, found),
        Pat::Slice(slice) => all(&mut slice.elems.iter()),
        Pat::Struct(structure) => all(&mut structure.fields.iter().map(|field| &*field.pat)),
        Pat::Tuple(tuple) => all(&mut tuple.elems.iter()),
        Pat::TupleStruct(structure) => all(&mut structure.elems.iter()),
        Pat::Type(typed) => bindings(&typed.pat, found),
        _ => {}
    }
}

/// The inner attributes of a body, which must stay first in it, and the rest; the body's own braces stay
/// where there are none, because their spans carry the user's lints and carets.
pub(crate) fn split_inner_attributes(body: &Group) -> (TokenStream, Group) {
    let read =
        |input: ParseStream<'_>| Ok((input.call(Attribute::parse_inner)?, input.parse::<TokenStream>()?));
    match read.parse2(body.stream()) {
        Ok((attributes, rest)) if !attributes.is_empty() => {
            let mut block = Group::new(body.delimiter(), rest);
            block.set_span(body.span());
            (attributes.iter().map(ToTokens::to_token_stream).collect(), block)
        }
        _ => (TokenStream::new(), body.clone()),
    }
}

#[cfg(test)]
mod tests;
