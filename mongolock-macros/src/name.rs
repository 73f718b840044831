//! The template of a lock name, `report:<id>`: a pure function from text to pieces.

use std::ops::Range;
use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};

/// The longest template, in bytes; the rendered name has a limit of its own at run time.
pub(crate) const MAX_BYTES: usize = 512;

/// One part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Fixed text, doubled brackets already halved.
    Text(String),
    /// `<root.step.step()>`.
    Placeholder(Placeholder),
}

/// A value to be filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placeholder {
    /// The bytes of the template, brackets included.
    pub(crate) range: Range<usize>,
    pub(crate) root: String,
    pub(crate) steps: Vec<Step>,
}

/// What follows a dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Field(String),
    Index(u32),
    Method(String),
}

/// Reads a template; every mistake is reported with the bytes it is about, and the pieces are those that could be read.
pub(crate) fn parse(template: &str) -> (Vec<Piece>, Vec<(Range<usize>, NameMistake)>) {
    let mut reader = Reader {
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

/// What can be wrong with a template; `error::name` has the sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NameMistake {
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
}

struct Reader<'a> {
    template: &'a str,
    at: usize,
    pieces: Vec<Piece>,
    mistakes: Vec<(Range<usize>, NameMistake)>,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.template[self.at..]
    }

    fn check_whole(&mut self) {
        let (template, whole) = (self.template, 0..self.template.len());
        if template.trim().is_empty() {
            return self.mistakes.push((whole, NameMistake::Empty));
        }
        if template.len() > MAX_BYTES {
            self.mistakes.push((
                whole.clone(),
                NameMistake::TooLong {
                    bytes: template.len(),
                },
            ));
        }
        // White space that is a control character as well is reported as that alone.
        if template.starts_with(is_blank) {
            let end = template.len() - template.trim_start().len();
            self.mistakes
                .push((0..end, NameMistake::Blank { place: "begins" }));
        }
        if template.ends_with(is_blank) {
            self.mistakes.push((
                template.trim_end().len()..whole.end,
                NameMistake::Blank { place: "ends" },
            ));
        }
    }

    fn piece(&mut self, next: char) {
        let rest = self.rest();
        match next {
            // From the left: `<<<id>>>` is `<`, the value, `>`.
            '<' | '>' if rest[1..].starts_with(next) => self.text(next, 2),
            '<' => self.placeholder(),
            '>' => self.mistake(1, NameMistake::Unopened),
            '{' | '}' => self.brace(),
            control if control.is_control() => {
                self.mistake(next.len_utf8(), NameMistake::Control { character: control });
            }
            _ => self.text(next, next.len_utf8()),
        }
    }

    fn text(&mut self, character: char, bytes: usize) {
        self.at += bytes;
        if let Some(Piece::Text(text)) = self.pieces.last_mut() {
            text.push(character);
        } else {
            self.pieces.push(Piece::Text(character.into()));
        }
    }

    fn mistake(&mut self, bytes: usize, mistake: NameMistake) {
        self.mistakes.push((self.at..self.at + bytes, mistake));
        self.at += bytes;
    }

    fn placeholder(&mut self) {
        let inner = &self.rest()[1..];
        let Some(end) = inner
            .find(['<', '>'])
            .filter(|end| inner[*end..].starts_with('>'))
        else {
            let end = inner.find(['<', '{', '}']).unwrap_or(inner.len());
            return self.mistake(
                end + 1,
                NameMistake::Unclosed {
                    written: inner[..end].to_owned(),
                },
            );
        };
        let range = self.at..self.at + end + 2;
        let written = &inner[..end];
        let Some((root, steps)) = path(written) else {
            let mistake = match written.trim() {
                "" => NameMistake::NoPlaceholder,
                _ => NameMistake::Syntax {
                    written: written.to_owned(),
                    write: repair(written),
                },
            };
            return self.mistake(range.len(), mistake);
        };
        if let Some(Piece::Placeholder(before)) = self.pieces.last()
            && before.range.end == range.start
        {
            let both = before.range.start..range.end;
            let [left, right] = [&before.range, &range].map(|at| self.template[at.clone()].to_owned());
            self.mistakes.push((both, NameMistake::Adjacent { left, right }));
        }
        self.at = range.end;
        self.pieces.push(Piece::Placeholder(Placeholder {
            range,
            root: root.to_owned(),
            steps,
        }));
    }

    /// A brace, or the `{…}` of somebody used to `format!`.
    fn brace(&mut self) {
        let rest = self.rest();
        let inner = &rest[1..];
        match inner
            .find(['{', '}', '<', '>'])
            .filter(|end| inner[*end..].starts_with('}'))
        {
            Some(end) if rest.starts_with('{') => {
                let written = &inner[..end];
                let write = path(written)
                    .map(|_| written.to_owned())
                    .or_else(|| repair(written));
                self.mistake(
                    end + 2,
                    NameMistake::Braced {
                        written: rest[..end + 2].to_owned(),
                        write,
                    },
                );
            }
            _ => self.mistake(
                1,
                NameMistake::Brace {
                    brace: rest[..1].to_owned(),
                },
            ),
        }
    }
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() && !c.is_control()
}

/// `root.step.step()`, nothing else.
fn path(written: &str) -> Option<(&str, Vec<Step>)> {
    let mut parts = written.split('.');
    let root = parts
        .next()
        .filter(|root| *root == "self" || is_identifier(root))?;
    Some((root, parts.map(step).collect::<Option<_>>()?))
}

fn step(written: &str) -> Option<Step> {
    if let Some(method) = written.strip_suffix("()") {
        return is_identifier(method).then(|| Step::Method(method.to_owned()));
    }
    if is_identifier(written) {
        return Some(Step::Field(written.to_owned()));
    }
    let plain = written == "0" || !written.starts_with(['0', '+']);
    plain.then(|| written.parse().ok().map(Step::Index)).flatten()
}

/// Whether a name can stand in a placeholder. Keywords can, being raw identifiers in the code, apart from
/// those that have no raw form and `await`, which is not a field.
fn is_identifier(word: &str) -> bool {
    let ascii = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let letters = word.chars().all(|c| c.is_alphanumeric() || c == '_');
    match word {
        "" | "_" | "self" | "Self" | "super" | "crate" | "await" => false,
        _ if ascii => !word.starts_with(|c: char| c.is_ascii_digit()),
        // Only the compiler's own lexer knows which other letters make an identifier.
        _ => letters && TokenStream::from_str(word).is_ok_and(|tokens| is_one_identifier(tokens, word)),
    }
}

fn is_one_identifier(tokens: TokenStream, word: &str) -> bool {
    let mut tokens = tokens.into_iter();
    matches!(tokens.next(), Some(TokenTree::Ident(ident)) if ident == word) && tokens.next().is_none()
}

/// What was probably meant: no white space, no `&`, no `r#`, no format specification, no `?`.
fn repair(written: &str) -> Option<String> {
    let dense: String = written.chars().filter(|c| !c.is_whitespace()).collect();
    let bare = dense.trim_start_matches(['&', '*']).replace("r#", "");
    let bare = bare.split_once(':').map_or(bare.as_str(), |(before, _)| before);
    let bare = bare.trim_end_matches(['?', '.']);
    path(bare).map(|_| bare.to_owned()).filter(|_| bare != written)
}

#[cfg(test)]
mod tests;
