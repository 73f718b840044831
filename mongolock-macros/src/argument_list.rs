//! The arguments of a function as written. An argument that is still being typed, such as `id:`, is not an error of the
//! attribute: the compiler has reported it, and continues with the rest of the function, as editors do.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::discouraged::Speculative;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, FnArg, Pat, PatType, Token, Type};

use crate::written::read_as;

/// An argument of the list.
pub(crate) struct Argument {
    /// The tokens as written, with the comma after them.
    pub(crate) tokens: TokenStream,
    /// The argument, if at least its pattern could be read; a type that could not be read is `Type::Verbatim`.
    pub(crate) read: Option<FnArg>,
}

impl Argument {
    /// Whether the compiler has reported the argument, or it has a syntax that this macro does not know.
    fn is_half_typed(&self) -> bool {
        match &self.read {
            Some(FnArg::Typed(argument)) => matches!(*argument.ty, Type::Verbatim(_)),
            Some(FnArg::Receiver(_)) => false,
            None => true,
        }
    }
}

/// The list of arguments in the tokens before the body of a function.
pub(crate) struct ArgumentList {
    /// The position of the list among the tokens.
    at: usize,
    /// The list as written.
    written: Group,
    pub(crate) arguments: Vec<Argument>,
    /// Whether an argument was changed or taken out.
    pub(crate) is_changed: bool,
    /// The source position of the first argument that is still being typed.
    pub(crate) half_typed: Option<Span>,
}

impl ArgumentList {
    /// Finds the list; nothing if this is not a function.
    pub(crate) fn find(head: &[TokenTree]) -> Option<Self> {
        let at = position(head)?;
        let TokenTree::Group(written) = &head[at] else {
            return None;
        };
        let arguments = split(written.stream());
        let half_typed = arguments.iter().find(|argument| argument.is_half_typed());
        Some(Self {
            at,
            written: written.clone(),
            half_typed: half_typed
                .and_then(|argument| argument.tokens.clone().into_iter().next())
                .map(|token| token.span()),
            arguments,
            is_changed: false,
        })
    }

    /// The tokens with the present arguments. The list stays as written if none was changed.
    pub(crate) fn put_into(&self, head: Vec<TokenTree>) -> Vec<TokenTree> {
        if !self.is_changed {
            return head;
        }
        let tokens = self.arguments.iter().map(|argument| &argument.tokens);
        self.replaced(head, quote!(#(#tokens)*))
    }

    /// The tokens with an empty list.
    pub(crate) fn take_from(&self, head: &[TokenTree]) -> Vec<TokenTree> {
        self.replaced(head.to_vec(), TokenStream::new())
    }

    fn replaced(&self, mut head: Vec<TokenTree>, inside: TokenStream) -> Vec<TokenTree> {
        let mut list = Group::new(self.written.delimiter(), inside);
        // The compiler reports `id:)` at the closing parenthesis, and the same mistake at the same position only once.
        list.set_span(match self.half_typed {
            Some(_) => self.written.span_close(),
            None => self.written.span(),
        });
        head[self.at] = TokenTree::Group(list);
        head
    }
}

/// Splits the list at its commas.
fn split(inputs: TokenStream) -> Vec<Argument> {
    let read = |input: ParseStream<'_>| {
        let mut arguments = Vec::new();
        while !input.is_empty() {
            arguments.push(argument(input)?);
        }
        Ok(arguments)
    };
    // This cannot fail: tokens that are not an argument are skipped, one by one.
    read.parse2(inputs).unwrap_or_default()
}

/// The position of the list of arguments: the first parentheses behind the name and the generics.
fn position(head: &[TokenTree]) -> Option<usize> {
    let is_fn =
        |pair: &[TokenTree]| matches!(pair, [TokenTree::Ident(word), TokenTree::Ident(_)] if *word == "fn");
    let after_name = head.windows(2).position(is_fn)? + 2;
    let mut open_brackets = 0_usize;
    let mut is_arrow = false;
    for (at, token) in head.iter().enumerate().skip(after_name) {
        match token {
            TokenTree::Punct(sign) => {
                match sign.as_char() {
                    '<' => open_brackets += 1,
                    '>' if !is_arrow => open_brackets = open_brackets.saturating_sub(1),
                    _ => {}
                }
                is_arrow = sign.as_char() == '-';
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis && open_brackets == 0 => {
                return Some(at);
            }
            _ => {}
        }
    }
    None
}

/// Reads one argument, as far as it can be read, with its comma.
fn argument(input: ParseStream<'_>) -> syn::Result<Argument> {
    let whole = read_as::<FnArg>(input).and_then(|(ahead, tokens)| {
        let read = syn::parse2(tokens.clone()).ok()?;
        input.advance_to(&ahead);
        Some((tokens, Some(read)))
    });
    let (mut tokens, read) = if let Some(whole) = whole {
        whole
    } else {
        let start = input.fork();
        (rest(input)?, half_typed(&start).ok().map(FnArg::Typed))
    };
    input.parse::<Option<Token![,]>>()?.to_tokens(&mut tokens);
    Ok(Argument { tokens, read })
}

/// The pattern of an argument whose type is missing or cannot be read.
fn half_typed(input: ParseStream<'_>) -> syn::Result<PatType> {
    let attrs = input.call(Attribute::parse_outer)?;
    let pat = input.call(Pat::parse_single)?;
    let colon = input.parse::<Option<Token![:]>>()?;
    Ok(PatType {
        attrs,
        pat: Box::new(pat),
        colon_token: colon.unwrap_or_default(),
        ty: Box::new(Type::Verbatim(rest(input)?)),
    })
}

/// Reads to the next comma.
fn rest(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let mut tokens = TokenStream::new();
    while !input.is_empty() && !input.peek(Token![,]) {
        tokens.extend([input.parse::<TokenTree>()?]);
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::tokens;
    use crate::written::written;

    /// The arguments, each as written and, if it is still being typed, with what could be read of it.
    fn arguments(inputs: &str) -> String {
        let arguments = split(tokens(inputs)).into_iter().map(|argument| {
            let tokens = written(argument.tokens.clone());
            match &argument.read {
                _ if !argument.is_half_typed() => tokens,
                Some(FnArg::Typed(typed)) => format!("{tokens} -> {}", typed.pat.to_token_stream()),
                _ => format!("{tokens} -> nothing"),
            }
        });
        arguments.collect::<Vec<_>>().join(" | ")
    }

    /// Of a half-typed argument the pattern is read.
    #[test]
    fn arguments_are_split_at_their_commas() {
        for (inputs, expected) in [
            ("", ""),
            (
                "&mut self, #[a] mut x: HashMap<A, B>, f: impl Fn(u8, u8) -> u8,",
                "&mut self, | #[a] mut x: HashMap<A, B>, | f: impl Fn(u8, u8) -> u8,",
            ),
            ("id: , x: u8", "id:, -> id | x: u8"),
            ("x: u8, id", "x: u8, | id -> id"),
            ("id: &, x: u8", "id: &, -> id | x: u8"),
            ("x: u8, id: Vec<", "x: u8, | id: Vec< -> id"),
            ("x: u8, id: (u8 u16)", "x: u8, | id: (u8 u16) -> id"),
            ("x: u8, mut", "x: u8, | mut -> nothing"),
            ("x: u8, #[lock]", "x: u8, | #[lock] -> nothing"),
            ("x: u8 y: u8", "x: u8 | y: u8"),
            (", x: u8", ", -> nothing | x: u8"),
        ] {
            assert_eq!(arguments(inputs), expected);
        }
    }
}
