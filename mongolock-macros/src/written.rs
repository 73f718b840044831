//! Code as its author has written it, for messages and behind the invisible groups of `macro_rules!`.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use syn::Type;
use syn::parse::{Parse, ParseBuffer, ParseStream};

/// The type without the parentheses around it and without the invisible group that a `$ty:ty` of a `macro_rules!` has.
pub(crate) fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        other => other,
    }
}

/// The tokens, with those of an invisible group in its place.
pub(crate) fn without_invisible_groups(tokens: TokenStream) -> TokenStream {
    let inside = |token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
            without_invisible_groups(group.stream())
        }
        token => token.into(),
    };
    tokens.into_iter().flat_map(inside).collect()
}

/// The tokens as text with the white space of formatted code: `Option<LockContext>` and not `Option < LockContext >`. It
/// takes `<` and `>` for brackets, as they are in types and paths.
pub(crate) fn written(tokens: TokenStream) -> String {
    let mut text = String::new();
    let mut last = Last::Open;
    append(tokens, &mut text, &mut last);
    text
}

/// The tokens that a `T` takes at the beginning of the input, and the input behind them. The parser can leave tokens in a
/// bracket unread, so the `T` is to be parsed again, from these tokens alone.
pub(crate) fn read_as<T: Parse>(input: ParseStream<'_>) -> Option<(ParseBuffer<'_>, TokenStream)> {
    let end = input.fork();
    end.parse::<T>().ok()?;
    let ahead = input.fork();
    let mut tokens = TokenStream::new();
    while ahead.cursor() < end.cursor() {
        tokens.extend([ahead.parse::<TokenTree>().ok()?]);
    }
    Some((ahead, tokens))
}

/// The signs of more than one character. `<` and `>` are brackets of their own, as in `Vec<<T as A>::B>`.
const SIGNS: [&str; 10] = ["::", "->", "=>", "..", "..=", "...", "&&", "||", "==", "!="];

/// The keywords before a type or an expression, with a space between the two.
const KEYWORDS: [&str; 7] = ["as", "const", "dyn", "impl", "move", "mut", "ref"];

/// The kind of the token before a token, which determines the white space between them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// A name, a number or a closing bracket: a word after it needs a space, and a sign after it is a binary operator.
    Operand,
    /// An opening bracket, or a sign that belongs to what follows it.
    Open,
    /// A sign or a keyword with a space on both sides, a comma or a lifetime.
    Spaced,
}

fn append(tokens: TokenStream, text: &mut String, last: &mut Last) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace if group.stream().is_empty() => ("{", "}"),
                    Delimiter::Brace => ("{ ", " }"),
                    Delimiter::None => ("", ""),
                };
                let is_spaced = *last == Last::Spaced
                    || (*last == Last::Operand && group.delimiter() == Delimiter::Brace);
                text.push_str(if is_spaced { " " } else { "" });
                text.push_str(open);
                if group.delimiter() != Delimiter::None {
                    *last = Last::Open;
                }
                append(group.stream(), text, last);
                text.push_str(close);
                if group.delimiter() != Delimiter::None {
                    *last = Last::Operand;
                }
            }
            TokenTree::Ident(_) | TokenTree::Literal(_) => {
                let is_lifetime = text.ends_with('\'');
                text.push_str(if *last == Last::Open { "" } else { " " });
                let word = token.to_string();
                let is_before_a_type = is_lifetime || KEYWORDS.contains(&&*word);
                *last = if is_before_a_type {
                    Last::Spaced
                } else {
                    Last::Operand
                };
                text.push_str(&word);
            }
            TokenTree::Punct(first) => {
                let mut sign = String::from(first.as_char());
                let mut spacing = first.spacing();
                while let Some(TokenTree::Punct(next)) = tokens.peek()
                    && spacing == Spacing::Joint
                    && SIGNS.contains(&&*format!("{sign}{}", next.as_char()))
                {
                    sign.push(next.as_char());
                    spacing = next.spacing();
                    tokens.next();
                }
                *last = sign_after(&sign, *last, text);
            }
        }
    }
}

/// Appends a sign, and says what it is for the token after it.
fn sign_after(sign: &str, last: Last, text: &mut String) -> Last {
    let is_operator = last == Last::Operand;
    let (before, after) = match sign {
        "<" | "::" | "." | ".." | "!" => (last == Last::Spaced, Last::Open),
        ">" | "?" => (false, Last::Operand),
        "," | ";" | ":" => (false, Last::Spaced),
        "'" => (last != Last::Open, Last::Open),
        "&" | "&&" | "*" | "-" | "|" | "||" | "#" if !is_operator => (last == Last::Spaced, Last::Open),
        _ => (last != Last::Open, Last::Spaced),
    };
    text.push_str(if before { " " } else { "" });
    text.push_str(sign);
    after
}

#[cfg(test)]
mod tests {
    use syn::parse::Parser;

    use super::*;

    #[test]
    fn code_is_quoted_as_it_is_formatted() {
        for code in [
            "Option<LockContext>",
            "&LockContext",
            "&'static mut LockContext",
            "std::sync::Arc<LockContext>",
            "Result<Vec<&'a [u8; 4]>, (A, B)>",
            "impl Fn(u8, &str) -> Option<u8> + Send + 'static",
            "Box<dyn Future<Output = ()> + 'a>",
            "Vec<<T as Iterator>::Item>",
            "*const u8",
            "&mut [u8]",
            "!",
            "()",
            "for<'a> fn(&'a u8)",
            "Lock::Report { tenant, id: order.id()? }",
            "Lock::Invoice(*order.number, -1)",
            "Lock::Empty {}",
            "[\"a\", Lock::A]",
            "Duration::from_secs(3)",
            "a + b",
            "self.locks",
        ] {
            let tokens: TokenStream = code.parse().unwrap();
            assert_eq!(written(tokens), code);
        }
    }

    #[test]
    fn the_tokens_of_a_type_are_those_of_its_source() {
        let read = |input: ParseStream<'_>| {
            let (ahead, tokens) = read_as::<Type>(input).unwrap();
            input.parse::<TokenStream>()?;
            Ok((written(tokens), ahead.parse::<TokenStream>()?.to_string()))
        };
        let expected = ("(u8 u16)".to_owned(), ", x".to_owned());
        assert_eq!(Parser::parse_str(read, "(u8 u16), x").unwrap(), expected);
    }
}
