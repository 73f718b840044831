//! The modules of a crate with the paths that their code names, read from its root file along the `mod` lines. What only tests
//! compile is left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::sizes::Source;

/// The names from the crate root to a module; the root itself has none.
pub(crate) type ModulePath = Vec<String>;

/// A path as written, after `use` or in code.
pub(crate) struct WrittenPath {
    pub(crate) segments: Vec<String>,
    /// The name of its target in the module: the last segment, or what `as` says.
    name: String,
}

/// All modules of a crate with the paths that their code names.
#[derive(Default)]
pub(crate) struct ModuleTree {
    pub(crate) modules: BTreeMap<ModulePath, Vec<WrittenPath>>,
    /// Their files.
    pub(crate) files: Vec<PathBuf>,
}

impl ModuleTree {
    /// Reads a crate from the folder of its `lib.rs`.
    pub(crate) fn read(folder: &Path) -> Self {
        let mut tree = Self::default();
        tree.add_file(Vec::new(), &folder.join("lib.rs"), folder);
        tree
    }

    fn add_file(&mut self, module: ModulePath, file: &Path, folder: &Path) {
        let code = Source::read(file).code().parse();
        let code = code.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.files.push(file.to_owned());
        self.add(module, code, folder);
    }

    /// Adds a module and those below it, whose files are in `folder`.
    fn add(&mut self, module: ModulePath, code: TokenStream, folder: &Path) {
        let mut names = Names::default();
        names.read(code, &[]);
        for (name, content) in names.modules {
            let folder = folder.join(&name);
            let path = [module.as_slice(), &[name]].concat();
            let flat = folder.with_extension("rs");
            match content {
                Some(code) => self.add(path, code, &folder),
                None if flat.exists() => self.add_file(path, &flat, &folder),
                None => self.add_file(path, &folder.join("mod.rs"), &folder),
            }
        }
        self.modules.insert(module, names.paths);
    }

    /// The module in which the target of a path is defined; `None` for a path into another crate.
    pub(crate) fn resolve(&self, from: &[String], path: &[String]) -> Option<ModulePath> {
        let mut at = from.to_vec();
        for (index, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()?),
                _ => {
                    at.push(name.clone());
                    if self.modules.contains_key(&at) {
                        continue;
                    }
                    at.pop();
                    let named = self.modules.get(&at)?.iter();
                    let reexport = named.into_iter().find(|path| path.name == *name);
                    return match reexport {
                        // The first name of a path is that of a module or of another crate.
                        _ if index == 0 => None,
                        Some(target) => self.resolve(&at, &[&target.segments, &path[index + 1..]].concat()),
                        None => Some(at),
                    };
                }
            }
        }
        Some(at)
    }
}

/// What the code of a module names: the modules directly below it, with their content if it is there, and paths.
#[derive(Default)]
struct Names {
    modules: Vec<(String, Option<TokenStream>)>,
    paths: Vec<WrittenPath>,
}

impl Names {
    /// Reads code, or the braces of a `use` behind these segments.
    fn read(&mut self, code: TokenStream, prefix: &[String]) {
        let tokens: Vec<TokenTree> = code.into_iter().collect();
        let word = |at: usize| tokens.get(at).map(ToString::to_string).unwrap_or_default();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Ident(ident) if ident == "mod" => {
                    let content = match tokens.get(at + 2) {
                        Some(TokenTree::Group(group)) => Some(group.stream()),
                        _ => None,
                    };
                    self.modules.push((word(at + 1), content));
                    at += 3;
                }
                // `pub(in crate::a)` limits who may import, and imports nothing.
                TokenTree::Ident(ident) if ident == "pub" && word(at + 1).starts_with("(in") => at += 2,
                TokenTree::Ident(_) => at = self.path(&tokens, at, prefix),
                // What follows `::` alone is in another crate, or in a type.
                _ if is_separator(&tokens, at) => at = Self::default().path(&tokens, at + 2, &[]),
                TokenTree::Group(group) => {
                    self.read(group.stream(), &[]);
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    /// Reads the path that begins here, and returns where it ends.
    fn path(&mut self, tokens: &[TokenTree], begin: usize, prefix: &[String]) -> usize {
        let (mut segments, mut at) = (prefix.to_vec(), begin);
        while let Some(TokenTree::Ident(ident)) = tokens.get(at) {
            segments.push(ident.to_string());
            at += 1;
            if !is_separator(tokens, at) {
                break;
            }
            at += 2;
        }
        if let Some(TokenTree::Group(group)) = tokens.get(at)
            && group.delimiter() == Delimiter::Brace
            && is_separator(tokens, at.saturating_sub(2))
        {
            self.read(group.stream(), &segments);
            return at + 1;
        }
        let mut name = segments.iter().rfind(|segment| *segment != "self").cloned();
        if let [TokenTree::Ident(word), TokenTree::Ident(other), ..] = &tokens[at.min(tokens.len())..]
            && word == "as"
        {
            name = Some(other.to_string());
            at += 2;
        }
        if segments.len() > 1 {
            let name = name.unwrap_or_default();
            self.paths.push(WrittenPath { segments, name });
        }
        at.max(begin + 1)
    }
}

/// Whether `::` stands here.
fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':');
    matches!(tokens.get(at..at + 2), Some([one, other]) if is_colon(one) && is_colon(other))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A crate of one source, whose modules are inline.
    pub(crate) fn made_up(source: &str) -> ModuleTree {
        let mut tree = ModuleTree::default();
        tree.add(Vec::new(), source.parse().expect("it is Rust"), Path::new(""));
        tree
    }

    fn segments(path: &str) -> Vec<String> {
        let names = path.split("::").filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    }

    #[test]
    fn paths_lead_to_the_module_that_defines_their_target() {
        let tree = made_up(
            "mod a { mod inner {} } mod b { mod deep {} pub(crate) use deep::{self as d, Thing}; } \
             pub use b::Thing; use std::fmt;",
        );
        for (from, path, expected) in [
            ("a", "crate::Thing", Some("b::deep")),
            ("a", "crate::b::Thing::new", Some("b::deep")),
            ("a", "crate::b::d::x", Some("b::deep")),
            ("a", "crate::b::Other", Some("b")),
            ("a", "crate::defined_in_the_root", Some("")),
            ("a", "inner::x", Some("a::inner")),
            ("a::inner", "super::x", Some("a")),
            ("a::inner", "super::super::b", Some("b")),
            ("a", "std::fmt", None),
            ("a", "crate::fmt::Result", None),
        ] {
            let found = tree.resolve(&segments(from), &segments(path));
            assert_eq!(found, expected.map(segments), "{from}: {path}");
        }
    }
}
