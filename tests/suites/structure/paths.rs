//! The module declarations and the paths of one source file.

use crate::tokens::Token;

/// A path as written, after `use` or in code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrittenPath {
    pub(crate) segments: Vec<String>,
    /// The name that a `use` gives to the target of the path; `None` for `*` and for a path in code.
    pub(crate) name: Option<String>,
}

/// The declaration of a module in another file: `mod name;`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declaration {
    pub(crate) name: String,
    /// The file that a `#[path = "…"]` names.
    pub(crate) path: Option<String>,
}

/// All `mod name;` of a file.
pub(crate) fn declarations(tokens: &[Token]) -> Vec<Declaration> {
    let mut found = Vec::new();
    let mut path = None;
    for window in tokens.windows(3) {
        match window {
            [word, equals, file] if word.is("path") && equals.is("=") && file.text.starts_with('"') => {
                path = Some(file.text[1..].to_owned());
            }
            [word, name, end] if word.is("mod") && end.is(";") => found.push(Declaration {
                name: name.text.clone(),
                path: path.take(),
            }),
            _ => {}
        }
    }
    found
}

/// All paths of a file that could lead to another module: those of `use`, and those in code with two or more segments.
pub(crate) fn paths(tokens: &[Token]) -> Vec<WrittenPath> {
    let mut reader = Reader {
        tokens,
        at: 0,
        found: Vec::new(),
    };
    reader.read_all();
    reader.found
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    found: Vec<WrittenPath>,
}

impl Reader<'_> {
    fn read_all(&mut self) {
        // The closing positions of the inline modules around the current token: `super` in them means this file's module.
        let mut inline_ends: Vec<usize> = Vec::new();
        while self.at < self.tokens.len() {
            inline_ends.retain(|end| *end > self.at);
            let first_new = self.found.len();
            if self.is("mod") && self.text(self.at + 2) == "{" {
                inline_ends.push(self.closing(self.at + 2));
                self.at += 3;
            } else if self.is("use") {
                self.at += 1;
                self.use_tree(&[]);
            } else if self.is("in") && self.text(self.at.wrapping_sub(1)) == "(" {
                // `pub(in crate::a)` limits who may import, and imports nothing.
                self.at += 1;
                self.segments();
            } else if self.starts_path() {
                self.path_in_code();
            } else {
                self.at += 1;
            }
            for path in &mut self.found[first_new..] {
                leave_inline_modules(&mut path.segments, inline_ends.len());
            }
        }
    }

    /// Reads one branch of a `use`: a path, and the branches in its braces.
    fn use_tree(&mut self, prefix: &[String]) {
        let mut segments = prefix.to_vec();
        segments.extend(self.segments());
        match self.text(self.at) {
            "{" => {
                self.at += 1;
                while self.at < self.tokens.len() && !self.is("}") {
                    self.use_tree(&segments);
                    if self.is(",") {
                        self.at += 1;
                    }
                }
                self.at += 1;
            }
            "*" => {
                self.at += 1;
                self.push(segments, None);
            }
            _ => {
                if segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
                    segments.pop();
                }
                let mut name = segments.last().cloned();
                if self.is("as") {
                    name = Some(self.text(self.at + 1).to_owned());
                    self.at += 2;
                }
                self.push(segments, name);
            }
        }
    }

    fn path_in_code(&mut self) {
        let segments = self.segments();
        if segments.len() > 1 {
            self.push(segments, None);
        }
    }

    /// Reads words as long as `::` and another word follow; a `::` before a brace or a star is skipped.
    fn segments(&mut self) -> Vec<String> {
        let mut segments = Vec::new();
        while self.at < self.tokens.len() && self.tokens[self.at].is_word() {
            segments.push(self.text(self.at).to_owned());
            self.at += 1;
            if !self.is("::") {
                break;
            }
            self.at += 1;
        }
        // A group without a path before it, `use ::{…}`, and paths that begin with `::` name other crates.
        if segments.is_empty() && self.is("::") {
            self.at += 1;
            return [vec![String::new()], self.segments()].concat();
        }
        segments
    }

    fn push(&mut self, segments: Vec<String>, name: Option<String>) {
        self.found.push(WrittenPath { segments, name });
    }

    fn starts_path(&self) -> bool {
        self.tokens[self.at].is_word()
            && self.text(self.at + 1) == "::"
            && self.text(self.at.wrapping_sub(1)) != "::"
    }

    fn closing(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for (offset, token) in self.tokens[open..].iter().enumerate() {
            match token.text.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return open + offset;
            }
        }
        self.tokens.len()
    }

    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| token.text.as_str())
    }

    fn is(&self, text: &str) -> bool {
        self.text(self.at) == text
    }
}

/// Rewrites a path of an inline module as one of the file: each level takes one leading `super` away.
fn leave_inline_modules(segments: &mut Vec<String>, levels: usize) {
    let supers = segments.iter().take_while(|segment| *segment == "super").count();
    let taken = supers.min(levels);
    segments.drain(..taken);
    if taken > 0 && taken == supers {
        segments.insert(0, "self".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::read;

    fn written(source: &str) -> Vec<String> {
        paths(&read(source))
            .into_iter()
            .map(|path| path.segments.join("::"))
            .collect()
    }

    #[test]
    fn use_trees_are_split_into_paths() {
        assert_eq!(
            written("pub(crate) use crate::{\n a::{self, B as C},\n d::*, e,\n};"),
            ["crate::a", "crate::a::B", "crate::d", "crate::e"]
        );
        let all = paths(&read("use crate::{\n a::{self, B as C}, d::*};"));
        assert_eq!(all[1].name.as_deref(), Some("C"));
        assert_eq!(all[2].name, None);
        assert_eq!(written("use super::*;"), ["super"]);
        assert_eq!(written("use ::a::b; use ::{c, d};"), ["::a::b", "::c", "::d"]);
    }

    #[test]
    fn paths_in_code_are_found() {
        assert_eq!(
            written("fn f() -> crate::a::B { super::c::<u8>(a::b, <T as D>::E, self.x) }"),
            ["crate::a::B", "super::c", "a::b"]
        );
        assert_eq!(written("pub(in crate::a) fn f() {}"), [""; 0]);
        assert_eq!(written("pub(crate) fn f(self) {}"), [""; 0]);
        assert_eq!(written("::a::b::c()"), [""; 0]);
    }

    #[test]
    fn super_in_an_inline_module_is_the_file() {
        assert_eq!(
            written("mod a { use super::b::C; use super::super::d; } use super::e;"),
            ["self::b::C", "super::d", "super::e"]
        );
    }

    #[test]
    fn declarations_keep_their_file() {
        let found = declarations(&read(
            "mod a; #[path = \"c.rs\"]\npub mod b; mod d {} #[cfg(test)] mod tests;",
        ));
        let found: Vec<_> = found
            .iter()
            .map(|declaration| (declaration.name.as_str(), declaration.path.as_deref()))
            .collect();
        assert_eq!(found, [("a", None), ("b", Some("c.rs"))]);
    }
}
