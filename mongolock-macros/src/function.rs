//! The annotated function. Its signature is parsed, and its body is kept as tokens, so that new Rust syntax in a body
//! cannot break the attribute and the body compiles exactly as written.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::discouraged::Speculative;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, FnArg, Pat, Signature, Token, Visibility};

use crate::argument_list::ArgumentList;
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
    /// The source position of the first argument that is still being typed.
    pub(crate) half_typed: Option<Span>,
    pub(crate) body: Group,
}

impl Function {
    /// Parses the annotated item. An item that is not a function with a body is reported, and given back without the
    /// attribute `#[lock]` of its arguments, which the compiler does not know.
    pub(crate) fn parse(item: TokenStream, errors: &mut Errors) -> Result<Self, TokenStream> {
        let mut head: Vec<TokenTree> = ungrouped(item).into_iter().collect();
        let body = head.last().cloned().and_then(body);
        if body.is_some() {
            head.pop();
        }
        let mut list = ArgumentList::find(&head);
        let lock_argument = list.as_mut().and_then(|list| LockArgument::take(list, errors));
        let without_arguments = match &list {
            Some(list) => {
                head = list.put_into(head);
                list.take_from(&head)
            }
            None => head.clone(),
        };
        let read = |input: ParseStream<'_>| signature(input, errors);
        let signature = read.parse2(without_arguments.into_iter().collect());
        let signature = signature.unwrap_or_else(|error| {
            errors.add(error);
            None
        });
        let head: TokenStream = head.into_iter().collect();
        let Some(mut signature) = signature else {
            return Err(quote!(#head #body));
        };
        let Some(body) = body else {
            let end = head.clone().into_iter().last();
            errors.push(
                end.map_or_else(Span::call_site, |end| end.span()),
                target::no_body(),
            );
            return Err(head);
        };
        if mark::is_locked(body.stream()) {
            errors.push(Span::call_site(), target::stacked());
        }
        let mut half_typed = None;
        if let Some(list) = list {
            half_typed = list.half_typed;
            signature.inputs = list.arguments.into_iter().filter_map(|one| one.read).collect();
        }
        Ok(Self {
            head,
            signature,
            lock_argument,
            half_typed,
            body,
        })
    }

    /// The function without the attribute, for its callers, after a mistake. The path of the runtime crate is needed for
    /// its `#[lock]` argument.
    pub(crate) fn unlocked(&self, runtime: &TokenStream) -> TokenStream {
        self.with_statements(&self.lock_without_value(runtime))
    }

    /// The function while one of its arguments is being typed. The compiler has reported the argument; one that it knows
    /// and this macro does not is an error wherever the function would run without its lock.
    pub(crate) fn half_typed(&self, place: Span, runtime: &TokenStream) -> TokenStream {
        let message = target::unread_argument();
        let variable = self.lock_without_value(runtime);
        self.with_statements(&quote_spanned!(place=> const { ::core::panic!(#message) } #variable))
    }

    fn lock_without_value(&self, runtime: &TokenStream) -> TokenStream {
        let argument = self.lock_argument.as_ref();
        argument
            .map(|argument| argument.without_value(runtime))
            .unwrap_or_default()
    }

    /// The function with these statements before its body.
    fn with_statements(&self, statements: &TokenStream) -> TokenStream {
        let Self { head, body, .. } = self;
        if statements.is_empty() {
            return quote!(#head #body);
        }
        let (attributes, block) = split_inner_attributes(body);
        // The `match` is for the lints, as in the locked function.
        quote!(#head { #attributes #statements match () { () => #block } })
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

/// Parses everything before the body to the signature; an item that is not a function is reported.
fn signature(input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Option<Signature>> {
    // An attribute of another name is found when it is expanded: by the mark in the body.
    let attributes = input.call(Attribute::parse_outer)?;
    for attribute in &attributes {
        let last = attribute.path().segments.last();
        if last.is_some_and(|segment| segment.ident == "distributed_lock") {
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
    input.advance_to(&ahead);
    let signature = input.parse()?;
    input.parse::<Option<Token![;]>>()?;
    Ok(Some(signature))
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
pub(crate) fn bindings<'a>(pattern: &'a Pat, found: &mut Vec<&'a Ident>) {
    let mut all =
        |patterns: &mut dyn Iterator<Item = &'a Pat>| patterns.for_each(|inner| bindings(inner, found));
    match pattern {
        Pat::Ident(binding) => {
            found.push(&binding.ident);
            if let Some((_, inner)) = &binding.subpat {
                bindings(inner, found);
            }
        }
        Pat::Guard(guarded) => bindings(&guarded.pat, found),
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
