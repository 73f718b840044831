//! The annotated function. Its signature is parsed, and its body is kept as tokens, so that new Rust syntax in a body
//! cannot break the attribute and the body compiles exactly as written.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, FnArg, Pat, Signature, Token, Visibility};

use crate::error::{Errors, target};
use crate::lock_argument::LockArgument;
use crate::mark;

/// A function with a body.
pub(crate) struct Function {
    /// The attributes, the visibility and the signature, as unchanged tokens; without the `#[lock]` argument.
    pub(crate) head: TokenStream,
    /// The signature without the `#[lock]` argument.
    pub(crate) signature: Signature,
    pub(crate) lock_argument: Option<LockArgument>,
    pub(crate) body: Group,
}

impl Function {
    /// Parses the annotated item; an item that is not a function with a body is reported.
    pub(crate) fn parse(item: TokenStream, errors: &mut Errors) -> Option<Self> {
        let mut head: Vec<TokenTree> = ungrouped(item).into_iter().collect();
        let last = head.pop();
        let body = last.clone().and_then(body);
        if body.is_none() {
            head.extend(last.clone());
        }
        let head: TokenStream = head.into_iter().collect();
        let read = |input: ParseStream<'_>| signature(input, errors);
        let (before, mut signature) = match read.parse2(head.clone()) {
            Ok(parsed) => parsed?,
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
        if mark::is_locked(body.stream()) {
            errors.push(Span::call_site(), target::stacked());
        }
        let lock_argument = LockArgument::take(&mut signature, errors);
        let head = if lock_argument.is_some() {
            quote!(#before #signature)
        } else {
            head
        };
        Some(Self {
            head,
            signature,
            lock_argument,
            body,
        })
    }

    /// The function without the attribute, for its callers, after a mistake.
    pub(crate) fn unlocked(&self, item: TokenStream) -> TokenStream {
        let Some(argument) = &self.lock_argument else {
            return item;
        };
        let (attributes, block) = split_inner_attributes(&self.body);
        let body = argument.without_value(&attributes, &block);
        let head = &self.head;
        quote!(#head #body)
    }

    /// The name of the function, without `r#`.
    pub(crate) fn name(&self) -> String {
        self.signature.ident.unraw().to_string()
    }

    /// The names that the patterns of the arguments bind, without `self`.
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

/// The item without the invisible group that a `macro_rules!` fragment has around it.
fn ungrouped(item: TokenStream) -> TokenStream {
    let mut tokens = item.clone().into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() == Delimiter::None => {
            ungrouped(group.stream())
        }
        _ => item,
    }
}

/// The body of a function, if this last token of the item is one.
fn body(last: TokenTree) -> Option<Group> {
    match last {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group),
        // A `$body:block` of a `macro_rules!` has an invisible group around it.
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
            let mut inside = group.stream().into_iter();
            let only = inside.next()?;
            inside.next().is_none().then(|| body(only)).flatten()
        }
        _ => None,
    }
}

/// Parses everything before the body, to what stands before the signature and the signature; an item that is not a
/// function is reported.
fn signature(input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Option<(TokenStream, Signature)>> {
    // An attribute of another name is found when it is expanded: by the mark in the body.
    let attributes = input.call(Attribute::parse_outer)?;
    for attribute in &attributes {
        if attribute
            .path()
            .segments
            .last()
            .is_some_and(|segment| segment.ident == "distributed_lock")
        {
            errors.push_spanned(attribute, target::stacked());
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
    let visibility = input.parse::<Visibility>()?;
    let default = input.parse::<Option<Token![default]>>()?;
    let signature = input.parse()?;
    input.parse::<Option<Token![;]>>()?;
    Ok(Some((quote!(#(#attributes)* #visibility #default), signature)))
}

/// Whether the next words are `fn` or qualifiers before it: `const`, `async`, `unsafe`, `safe`, `extern "C"`.
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

/// Adds the names that a pattern binds.
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

/// Splits a body into its inner attributes, which must stay first, and the block of the rest. The block has the source
/// position of the body, where the compiler then reports lints and errors.
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
