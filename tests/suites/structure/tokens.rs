//! Rust source text as tokens, without comments and without code that only tests compile.

/// One word, `::`, string or punctuation mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// The text as written; a string literal keeps its opening quote only.
    pub(crate) text: String,
    /// The line in its file, counted from 1.
    pub(crate) line: usize,
}

impl Token {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text
    }

    pub(crate) fn is_word(&self) -> bool {
        self.text.starts_with(is_word_character)
    }
}

/// The tokens of everything that is compiled outside tests.
pub(crate) fn read(source: &str) -> Vec<Token> {
    without_tests(&Lexer::new(source).tokens())
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

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token>,
}

impl<'a> Lexer<'a> {
    fn new(source: &'a str) -> Self {
        Self {
            rest: source,
            line: 1,
            tokens: Vec::new(),
        }
    }

    fn tokens(mut self) -> Vec<Token> {
        while let Some(next) = self.rest.chars().next() {
            let length = self.length(next);
            let text = &self.rest[..length];
            let is_skipped = next.is_whitespace() || next == '\'' || is_comment(text);
            if !is_skipped {
                self.tokens.push(Token {
                    text: shown(text).to_owned(),
                    line: self.line,
                });
            }
            self.line += text.matches('\n').count();
            self.rest = &self.rest[length..];
        }
        self.tokens
    }

    /// The bytes of the token, comment or white space that starts here.
    fn length(&self, next: char) -> usize {
        let rest = self.rest;
        match next {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment_length(rest),
            '"' => quoted_length(rest, '"'),
            '\'' => quote_length(rest),
            'r' | 'b' | 'c' if raw_string_length(rest) > 0 => raw_string_length(rest),
            _ if is_word_character(next) => rest.find(|c| !is_word_character(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => next.len_utf8(),
        }
    }
}

fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn is_comment(text: &str) -> bool {
    text.starts_with("//") || text.starts_with("/*")
}

/// The text that a token keeps: strings lose their closing quote.
fn shown(text: &str) -> &str {
    if text.len() > 1 && text.starts_with('"') {
        &text[..text.len() - 1]
    } else {
        text
    }
}

fn block_comment_length(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
        } else {
            at += 1;
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of a string or character literal with escapes.
fn quoted_length(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (index, character) in rest.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if character == quote => return index + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of what starts with `'`: a character literal, or a lifetime.
fn quote_length(rest: &str) -> usize {
    let mut inside = rest.chars().skip(1);
    let first = inside.next();
    if first == Some('\\') || inside.next() == Some('\'') {
        return quoted_length(rest, '\'');
    }
    1 + rest[1..]
        .find(|c| !is_word_character(c))
        .unwrap_or(rest.len() - 1)
}

/// The length of `r"…"`, `br#"…"#` and their like, zero if this is none.
fn raw_string_length(rest: &str) -> usize {
    let after = rest.trim_start_matches(['b', 'c']);
    let Some(after) = after.strip_prefix('r') else {
        return 0;
    };
    let hashes = after.len() - after.trim_start_matches('#').len();
    if rest.len() - after.len() > 2 || !after[hashes..].starts_with('"') {
        return 0;
    }
    let start = rest.len() - after.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    rest[start..]
        .find(&end)
        .map_or(rest.len(), |length| start + length + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        read(source).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_strings_and_lifetimes_hide_their_words() {
        assert_eq!(
            words("a // use b;\n/* c /* d */ e */ f"),
            ["a", "f"],
            "comments are skipped"
        );
        assert_eq!(words("x(\"crate::a \\\" b\", 'c', '\\'', 'd)").len(), 7);
        assert_eq!(words("br#\"crate::a \" b\"# c")[1], "c");
        assert_eq!(words("r#type"), ["r", "#", "type"]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let tokens = read("/* one\ntwo */ \"three\nfour\" a\nb");
        let lines: Vec<_> = tokens.iter().map(|token| token.line).collect();
        assert_eq!(lines, [2, 3, 4]);
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
