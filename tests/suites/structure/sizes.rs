//! The sizes of files and functions, in lines of code: no blank lines, no comments, no tests.

use std::fs;
use std::path::{Path, PathBuf};

/// The items before which the line is the beginning of a function: what may stand before `fn`.
const BEFORE_FN: [&str; 6] = ["const", "async", "unsafe", "extern", "\"C\"", "default"];

/// A source with the lines that are code.
pub(crate) struct Source {
    lines: Vec<String>,
    is_code: Vec<bool>,
}

impl Source {
    pub(crate) fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Self::new(&text)
    }

    fn new(text: &str) -> Self {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut is_code: Vec<bool> = lines.iter().map(|line| is_code(line)).collect();
        let mut at = 0;
        while at < lines.len() {
            if is_test_attribute(&lines[at]) {
                let end = end_of_item(&lines, at);
                is_code[at..end].fill(false);
                at = end;
            } else {
                at += 1;
            }
        }
        Self { lines, is_code }
    }

    /// The lines of code.
    pub(crate) fn code(&self) -> String {
        let lines = self.lines.iter().zip(&self.is_code);
        let code = lines.filter_map(|(line, is_code)| is_code.then_some(&**line));
        code.collect::<Vec<_>>().join("\n")
    }

    /// The number of lines of code.
    pub(crate) fn size(&self) -> usize {
        self.size_of(0, self.lines.len())
    }

    /// The names of the functions outside tests with their numbers of lines of code.
    pub(crate) fn functions(&self) -> Vec<(&str, usize)> {
        let begins = (0..self.lines.len()).filter(|at| self.is_code[*at]);
        let named = begins.filter_map(|at| Some((at, function_at(&self.lines[at])?)));
        named
            .map(|(at, name)| (name, self.size_of(at, end_of_item(&self.lines, at))))
            .collect()
    }

    /// The number of lines of code from one line up to another one.
    fn size_of(&self, begin: usize, end: usize) -> usize {
        let lines = self.is_code[begin..end].iter();
        lines.filter(|is_code| **is_code).count()
    }
}

fn margin(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

fn is_test_attribute(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test")
}

/// The name of the function that is declared in this line.
fn function_at(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let mut words = before.split_whitespace();
    if !words.all(|word| word.starts_with("pub") || word.ends_with(')') || BEFORE_FN.contains(&word)) {
        return None;
    }
    after.split(['(', '<']).next()
}

/// The line behind the item that begins in this line, maybe with attributes. Its last line is as far from the margin as its first
/// one, as rustfmt writes it.
fn end_of_item(lines: &[String], begin: usize) -> usize {
    let is_before = |line: &&String| line.trim_start().starts_with("#[") || !is_code(line);
    let first = begin + lines[begin..].iter().take_while(is_before).count();
    let is_last = |line: &String| margin(line) == margin(&lines[first]) && line.ends_with(['}', ';', ',']);
    let last = lines[first..].iter().position(is_last);
    last.map_or(lines.len(), |last| first + last + 1)
}

/// All Rust files in the folders `src` of the workspace.
pub(crate) fn sources(workspace: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![workspace.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in entries.map(|entry| entry.expect("the folder can be read").path()) {
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.unwrap_or_default();
            let is_hidden = name.starts_with('.') || name == "target";
            let is_source = path.extension().is_some_and(|ending| ending == "rs");
            if path.is_dir() && !is_hidden {
                folders.push(path);
            } else if is_source && folder.iter().any(|part| part == "src") {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn comments_blank_lines_and_tests_are_no_code() {
    let source = Source::new(
        "use a::b;\n\n// A comment.\n#[cfg(test)]\nuse c;\npub(crate) async fn f(\n    x: u8,\n) {\n    // Here.\n    g('{', \"}\");\n}\n\
         #[cfg(test)]\n#[path = \"x.rs\"]\nmod tests;\n#[cfg(test)]\nmod more {\n    fn h() {\n        i();\n    }\n}\n\
         trait T {\n    fn j(&self);\n    fn k() {\n    }\n}\n",
    );
    assert_eq!(source.size(), 1 + 5 + 5);
    assert_eq!(source.functions(), [("f", 5), ("j", 1), ("k", 2)]);
}
