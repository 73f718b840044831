//! Rust source text as tokens, without comments and without code that only tests compile.

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};

/// One word, `::`, string or punctuation mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// The text as written; a string literal keeps its opening quote only.
    pub(crate) text: String,
}

impl Token {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text
    }

    pub(crate) fn is_word(&self) -> bool {
        self.text
            .starts_with(|first: char| first.is_alphanumeric() || first == '_')
    }
}

/// The tokens of everything that is compiled outside tests.
pub(crate) fn read(source: &str) -> Vec<Token> {
    let mut flat = Flat(Vec::new());
    flat.stream(source.parse().expect("the source is Rust"));
    without_tests(&flat.0)
}

/// Tokens with the brackets of their groups.
struct Flat(Vec<Token>);

impl Flat {
    fn push(&mut self, text: impl Into<String>) {
        self.0.push(Token { text: text.into() });
    }

    fn stream(&mut self, stream: TokenStream) {
        // The mark before, if nothing stands between it and the next token.
        let mut joined = None;
        for tree in stream {
            let before = joined.take();
            match tree {
                TokenTree::Group(group) => self.group(&group),
                // The name of a lifetime.
                TokenTree::Ident(_) if before == Some('\'') => {}
                TokenTree::Ident(word) => self.push(word.to_string()),
                TokenTree::Literal(literal) => self.push(shown(&literal.to_string())),
                TokenTree::Punct(mark) if (before, mark.as_char()) == (Some(':'), ':') => {
                    self.0.pop();
                    self.push("::");
                }
                TokenTree::Punct(mark) => {
                    joined = Some(mark.as_char()).filter(|_| mark.spacing() == Spacing::Joint);
                    if mark.as_char() != '\'' {
                        self.push(mark.as_char());
                    }
                }
            }
        }
    }

    fn group(&mut self, group: &Group) {
        let [open, close] = match group.delimiter() {
            Delimiter::Parenthesis => ['(', ')'],
            Delimiter::Brace => ['{', '}'],
            Delimiter::Bracket | Delimiter::None => ['[', ']'],
        };
        self.push(open);
        self.stream(group.stream());
        self.push(close);
    }
}

/// The length of the attribute at the start of `tokens`, zero if there is none.
fn attribute_length(tokens: &[Token]) -> usize {
    let starts = tokens.len() > 1 && tokens[0].is("#") && tokens[1].is("[");
    if starts { 1 + group_length(&tokens[1..]) } else { 0 }
}

/// The length of the bracketed group at the start of `tokens`, brackets included.
fn group_length(tokens: &[Token]) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut rest = tokens;
    while let Some(first) = rest.first() {
        let attribute = attribute_length(rest);
        if is_cfg_test(&rest[..attribute]) {
            rest = &rest[attribute..];
            rest = &rest[item_length(rest)..];
        } else {
            kept.push(first.clone());
            rest = &rest[1..];
        }
    }
    kept
}

/// Whether the attribute is `#[cfg(test)]` or `#[cfg(all(…, test))]`; with `not` or `any`, its item is compiled elsewhere too.
fn is_cfg_test(attribute: &[Token]) -> bool {
    let words: Vec<_> = attribute
        .iter()
        .filter(|token| token.is_word())
        .map(|token| token.text.as_str())
        .collect();
    words.first() == Some(&"cfg")
        && words.contains(&"test")
        && !words.iter().any(|word| ["not", "any"].contains(word))
}

/// The length of the item at the start of `tokens`: it ends with its block, with `;`, or with `,` if it is a field.
fn item_length(tokens: &[Token]) -> usize {
    let mut at = 0;
    while attribute_length(&tokens[at..]) > 0 {
        at += attribute_length(&tokens[at..]);
    }
    let start = at;
    while at < tokens.len() {
        let before = &tokens[start..at];
        match tokens[at].text.as_str() {
            ";" => return at + 1,
            "," if !has_block(before) => return at + 1,
            "}" | ")" | "]" => return at,
            "{" if has_block(before) => return at + group_length(&tokens[at..]),
            "{" | "(" | "[" => at += group_length(&tokens[at..]),
            _ => at += 1,
        }
    }
    at
}

/// Whether the words before a block say that the item ends with it; the braces of `use` and of a value do not end it.
fn has_block(words: &[Token]) -> bool {
    let with_block = ["fn", "impl", "mod", "struct", "enum", "trait", "macro_rules"];
    words.iter().any(|word| with_block.contains(&word.text.as_str()))
}

/// The text that a token keeps: strings lose their closing quote.
fn shown(text: &str) -> &str {
    if text.len() > 1 && text.starts_with('"') {
        &text[..text.len() - 1]
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        read(source).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn lifetimes_comments_and_strings_are_no_words() {
        assert_eq!(words("a // use b;\n/* c /* d */ e */ f"), ["a", "f"]);
        assert_eq!(words("&'a b::c: ::d")[1..], ["b", "::", "c", ":", "::", "d"]);
        assert_eq!(words("\"crate::a\" (b)"), ["\"crate::a", "(", "b", ")"]);
    }

    #[test]
    fn code_that_only_tests_compile_is_left_out() {
        for only_tests in [
            "#[cfg(test)] mod tests { use crate::b; fn f() {} }",
            "#[cfg(test)] mod tests;",
            "#[cfg(test)] use crate::{b, c};",
            "#[cfg(all(unix, test))] #[allow(unused)] pub(crate) fn f<A, B>(a: A, b: B) -> [u8; 2] { c }",
            "#[cfg(test)] const A: B = B { c, d };",
            "#[cfg(test)] field: Vec<u8>,",
        ] {
            assert_eq!(words(&format!("a {only_tests} z")), ["a", "z"], "{only_tests}");
        }
        for kept in [
            "#[cfg(not(test))] mod a;",
            "#[cfg(any(test, unix))] mod a;",
            "#[test] fn a() {}",
        ] {
            assert!(words(kept).contains(&"a".to_owned()), "{kept}");
        }
        assert_eq!(words("S { #[cfg(test)] a }"), ["S", "{", "}"]);
    }
}
