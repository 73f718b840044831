//! The template of a lock name, such as `report:<id>`, parsed to text and placeholders.

use std::ops::Range;
use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};

/// The length limit of a template, in bytes; the rendered name has another limit, which the runtime checks.
pub(crate) const MAX_BYTES: usize = 512;

/// One part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Fixed text, in which `<<` and `>>` have become `<` and `>`.
    Text(String),
    /// A placeholder such as `<root.field.method()>`.
    Placeholder(Placeholder),
}

/// A path to a value that is filled in when the function is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placeholder {
    /// The position of the placeholder in the template, in bytes, brackets included.
    pub(crate) range: Range<usize>,
    /// Where the path begins.
    pub(crate) root: Root,
    /// What follows the root.
    pub(crate) steps: Vec<Access>,
}

/// The value at which the path of a placeholder begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Root {
    /// A name such as `id`, `self` or `N`.
    Name(String),
    /// The position of a field, which only `#[derive(LockName)]` accepts.
    Index(u32),
    /// An associated constant such as `T::KIND` or `Self::KIND`.
    Constant { of: String, name: String },
}

/// What follows a dot in a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Access {
    Field(String),
    Index(u32),
    Method(String),
}

/// Parses a template to the pieces that are valid, and to the mistakes, each with its position in bytes.
pub(crate) fn parse(template: &str) -> (Vec<Piece>, Vec<(Range<usize>, TemplateMistake)>) {
    let mut reader = TemplateReader {
        template,
        at: 0,
        pieces: Vec::new(),
        mistakes: Vec::new(),
    };
    reader.check_whole();
    if !template.trim().is_empty() {
        while let Some(next) = reader.rest().chars().next() {
            reader.piece(next);
        }
    }
    (reader.pieces, reader.mistakes)
}

/// The mistakes that a template can have; `error::template` has the messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplateMistake {
    Empty,
    TooLong { bytes: usize },
    Blank { place: &'static str },
    Control { character: char },
    Unclosed { written: String },
    Unopened,
    NoPlaceholder,
    Syntax { written: String, write: Option<String> },
    Braced { written: String, write: Option<String> },
    Brace { brace: String },
    Adjacent { left: String, right: String },
    Percent { after: String },
}

/// The character that is escaped in the placeholder at this position: the first one of the text that follows. `None`
/// for the last placeholder, whose value ends where the fixed text at the end of the name begins.
pub(crate) fn separator(pieces: &[Piece], at: usize) -> Option<char> {
    let (next, later) = pieces.get(at + 1..)?.split_first()?;
    let Piece::Text(text) = next else {
        return None;
    };
    let is_last = !later.iter().any(|piece| matches!(piece, Piece::Placeholder(_)));
    text.chars().next().filter(|_| !is_last)
}

/// The separators that cannot be escaped: a value that ends with `%` and one that is followed by an escaped character
/// would look the same.
pub(crate) fn ambiguous_separators(template: &str, pieces: &[Piece]) -> Vec<(Range<usize>, TemplateMistake)> {
    let mut mistakes = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        if let Piece::Placeholder(placeholder) = piece
            && separator(pieces, at) == Some('%')
        {
            let end = placeholder.range.end;
            let after = template[placeholder.range.clone()].to_owned();
            mistakes.push((end..end + 1, TemplateMistake::Percent { after }));
        }
    }
    mistakes
}

impl TemplateMistake {
    /// The mistake of a placeholder, as written with its brackets, that is not a path.
    pub(crate) fn not_a_path(placeholder: &str) -> Self {
        Self::Syntax {
            written: placeholder.trim_matches(['<', '>']).to_owned(),
            write: None,
        }
    }
}

/// The parser of a template.
struct TemplateReader<'a> {
    template: &'a str,
    /// The number of bytes that have been read.
    at: usize,
    pieces: Vec<Piece>,
    mistakes: Vec<(Range<usize>, TemplateMistake)>,
}

impl<'a> TemplateReader<'a> {
    /// The text that has not been read yet.
    fn rest(&self) -> &'a str {
        &self.template[self.at..]
    }

    /// Reports the mistakes that concern the whole template.
    fn check_whole(&mut self) {
        let (template, whole) = (self.template, 0..self.template.len());
        if template.trim().is_empty() {
            return self.mistakes.push((whole, TemplateMistake::Empty));
        }
        let mut found = |range, mistake| self.mistakes.push((range, mistake));
        if template.len() > MAX_BYTES {
            let bytes = template.len();
            found(whole.clone(), TemplateMistake::TooLong { bytes });
        }
        // White space that is a control character, such as a tab, is reported as a control character only.
        if template.starts_with(is_blank) {
            let end = template.len() - template.trim_start().len();
            found(0..end, TemplateMistake::Blank { place: "begins" });
        }
        if template.ends_with(is_blank) {
            let begin = template.trim_end().len();
            found(begin..whole.end, TemplateMistake::Blank { place: "ends" });
        }
    }

    /// Reads one character or one placeholder.
    fn piece(&mut self, next: char) {
        let rest = self.rest();
        match next {
            // Doubled brackets are read from the left, so `<<<id>>>` is `<`, a placeholder and `>`.
            '<' | '>' if rest[1..].starts_with(next) => self.text(next, 2),
            '<' => self.placeholder(),
            '>' => self.mistake(1, TemplateMistake::Unopened),
            '{' | '}' => self.brace(),
            control if control.is_control() => {
                self.mistake(next.len_utf8(), TemplateMistake::Control { character: control });
            }
            _ => self.text(next, next.len_utf8()),
        }
    }

    /// Adds a character of fixed text that takes this many bytes of the template.
    fn text(&mut self, character: char, bytes: usize) {
        self.at += bytes;
        if let Some(Piece::Text(text)) = self.pieces.last_mut() {
            text.push(character);
        } else {
            self.pieces.push(Piece::Text(character.into()));
        }
    }

    /// Reports a mistake in the next bytes and skips them.
    fn mistake(&mut self, bytes: usize, mistake: TemplateMistake) {
        self.mistakes.push((self.at..self.at + bytes, mistake));
        self.at += bytes;
    }

    /// Reads a placeholder, which starts with `<`.
    fn placeholder(&mut self) {
        let inner = &self.rest()[1..];
        let Some(end) = inner
            .find(['<', '>'])
            .filter(|end| inner[*end..].starts_with('>'))
        else {
            let end = inner.find(['<', '{', '}']).unwrap_or(inner.len());
            let written = inner[..end].to_owned();
            return self.mistake(end + 1, TemplateMistake::Unclosed { written });
        };
        let range = self.at..self.at + end + 2;
        let written = &inner[..end];
        let Some((root, steps)) = path(written) else {
            let mistake = match written.trim() {
                "" => TemplateMistake::NoPlaceholder,
                _ => TemplateMistake::Syntax {
                    written: written.to_owned(),
                    write: suggest(written),
                },
            };
            return self.mistake(range.len(), mistake);
        };
        if let Some(Piece::Placeholder(before)) = self.pieces.last()
            && before.range.end == range.start
        {
            let both = before.range.start..range.end;
            let [left, right] = [&before.range, &range].map(|at| self.template[at.clone()].to_owned());
            self.mistakes
                .push((both, TemplateMistake::Adjacent { left, right }));
        }
        self.at = range.end;
        self.pieces
            .push(Piece::Placeholder(Placeholder { range, root, steps }));
    }

    /// Reports a brace, or the whole `{…}`, which is a placeholder of `format!` but not of a template.
    fn brace(&mut self) {
        let rest = self.rest();
        let inner = &rest[1..];
        let end = inner.find(['{', '}', '<', '>']);
        match end.filter(|end| inner[*end..].starts_with('}')) {
            Some(end) if rest.starts_with('{') => {
                let write = suggested_path(&inner[..end]).map(str::to_owned);
                let write = write.or_else(|| suggest(&inner[..end]));
                let written = rest[..end + 2].to_owned();
                self.mistake(end + 2, TemplateMistake::Braced { written, write });
            }
            _ => {
                let brace = rest[..1].to_owned();
                self.mistake(1, TemplateMistake::Brace { brace });
            }
        }
    }
}

/// Whether the character is white space and not a control character.
fn is_blank(c: char) -> bool {
    c.is_whitespace() && !c.is_control()
}

/// Parses `root.field.method()`, the content of a placeholder.
fn path(written: &str) -> Option<(Root, Vec<Access>)> {
    let mut parts = written.split('.');
    let root = root(parts.next()?)?;
    Some((root, parts.map(step).collect::<Option<_>>()?))
}

/// Parses the first part of a path.
fn root(written: &str) -> Option<Root> {
    if let Some((of, name)) = written.split_once("::") {
        let is_constant = (of == "Self" || is_identifier(of)) && is_identifier(name);
        return is_constant.then(|| Root::Constant {
            of: of.to_owned(),
            name: name.to_owned(),
        });
    }
    if written == "self" || is_identifier(written) {
        return Some(Root::Name(written.to_owned()));
    }
    index(written).map(Root::Index)
}

/// Parses one step of a path.
fn step(written: &str) -> Option<Access> {
    if let Some(method) = written.strip_suffix("()") {
        return is_identifier(method).then(|| Access::Method(method.to_owned()));
    }
    if is_identifier(written) {
        return Some(Access::Field(written.to_owned()));
    }
    index(written).map(Access::Index)
}

/// Parses the position of a field.
fn index(written: &str) -> Option<u32> {
    let plain = written == "0" || !written.starts_with(['0', '+']);
    plain.then(|| written.parse().ok()).flatten()
}

/// Whether a name can be part of a placeholder. Keywords can, because the code may have them as raw identifiers; the
/// exceptions are the keywords without a raw form, and `await`, which is never a field.
fn is_identifier(word: &str) -> bool {
    let ascii = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let letters = word.chars().all(|c| c.is_alphanumeric() || c == '_');
    match word {
        "" | "_" | "self" | "Self" | "super" | "crate" | "await" => false,
        _ if ascii => !word.starts_with(|c: char| c.is_ascii_digit()),
        // Only the compiler's lexer knows which letters outside ASCII are allowed in an identifier.
        _ => letters && TokenStream::from_str(word).is_ok_and(|tokens| is_one_identifier(tokens, word)),
    }
}

/// Whether the tokens are this one identifier.
fn is_one_identifier(tokens: TokenStream, word: &str) -> bool {
    let mut tokens = tokens.into_iter();
    matches!(tokens.next(), Some(TokenTree::Ident(ident)) if ident == word) && tokens.next().is_none()
}

/// The path that a placeholder probably means: white space, `&`, `*`, `r#`, `?` and a format specification are removed.
fn suggest(written: &str) -> Option<String> {
    let dense: String = written.chars().filter(|c| !c.is_whitespace()).collect();
    let bare = dense.trim_start_matches(['&', '*']).replace("r#", "");
    let bare = match bare.find(':') {
        Some(colon) if !bare[colon..].starts_with("::") => &bare[..colon],
        _ => bare.as_str(),
    };
    let bare = bare.trim_end_matches(['?', '.']);
    suggested_path(bare)
        .filter(|_| bare != written)
        .map(str::to_owned)
}

/// The path as written, if messages can suggest it: a position is a field of a tuple variant only.
fn suggested_path(written: &str) -> Option<&str> {
    path(written)
        .filter(|(root, _)| !matches!(root, Root::Index(_)))
        .map(|_| written)
}

#[cfg(test)]
mod tests;
