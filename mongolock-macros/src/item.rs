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
mod tests {
    use quote::quote;

    use super::*;

    fn parse(item: TokenStream) -> Result<Function, String> {
        let mut errors = Errors::default();
        let function = Function::parse(item, &mut errors);
        function
            .filter(|_| errors.is_empty())
            .ok_or_else(|| errors.into_tokens().to_string())
    }

    fn refused(item: TokenStream) -> String {
        parse(item).err().unwrap()
    }

    fn names(item: TokenStream) -> Vec<String> {
        parse(item)
            .unwrap()
            .bindings()
            .into_iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn finds_every_binding() {
        assert_eq!(
            names(quote!(
                async fn f(&self, a: u8, mut b: u8, _: u8) {}
            )),
            ["a", "b"]
        );
        assert_eq!(
            names(quote!(
                async fn f((a, [b, .., c]): T, P { x, y: z, .. }: P) {}
            )),
            ["a", "b", "c", "x", "z"]
        );
        assert_eq!(
            names(quote!(
                async fn f(p @ P(ref a, &b): P, (c | (c)): u8, m!(): u8) {}
            )),
            ["p", "a", "b", "c", "c"]
        );
    }

    #[test]
    fn keeps_every_token_of_the_head() {
        let head = quote!(#[a] /** doc */ pub(crate) default const async unsafe extern "C" fn f<T: X>(a: T) -> Y where T: Z);
        let function = parse(quote!(#head { not - rust })).unwrap();
        assert_eq!(function.head.to_string(), head.to_string());
        assert_eq!(function.body.stream().to_string(), "not - rust");
    }

    #[test]
    fn looks_through_the_groups_of_macro_rules() {
        let block = Group::new(Delimiter::None, quote!({ body }));
        let item = Group::new(Delimiter::None, quote!(async fn f() #block));
        assert_eq!(parse(quote!(#item)).unwrap().body.stream().to_string(), "body");
    }

    #[test]
    fn refuses_what_has_no_body() {
        assert!(
            refused(quote!(
                async fn f();
            ))
            .contains("no body to run")
        );
        assert!(refused(quote!(async fn f())).contains("no body to run"));
    }

    #[test]
    fn refuses_what_is_no_function() {
        assert!(refused(quote!(impl X {})).contains("`impl` blocks"));
        assert!(
            refused(quote!(
                #[a]
                pub trait X {}
            ))
            .contains("`trait` blocks")
        );
        assert!(
            refused(quote!(
                pub const X: u8 = 1;
            ))
            .contains("only functions")
        );
        assert!(refused(quote!(let x = 1;)).contains("only functions"));
        assert!(refused(TokenStream::new()).contains("only functions"));
    }

    #[test]
    fn reports_a_signature_that_cannot_be_read() {
        assert!(refused(quote!(async fn f(a b) {})).contains("expected"));
    }

    #[test]
    fn moves_inner_attributes_out_of_the_body() {
        let function = parse(quote!(
            async fn f() {
                #![allow(unused)]
                let x = 1;
            }
        ))
        .unwrap();
        let (attributes, block) = split_inner_attributes(&function.body);
        assert_eq!(attributes.to_string(), quote!(#![allow(unused)]).to_string());
        assert_eq!(block.stream().to_string(), quote!(let x = 1;).to_string());
    }
}
