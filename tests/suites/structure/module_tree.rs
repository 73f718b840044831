//! The modules of a crate, read from its root file along the `mod` lines; modules that only tests compile are left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::Item;
use syn::visit::Visit;

use crate::names::{Names, WrittenPath};

/// The names from the crate root to a module; the root itself has none.
pub(crate) type ModulePath = Vec<String>;

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
        let source = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&source).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.files.push(file.to_owned());
        self.add(module, &parsed.items, folder);
    }

    /// Adds a module and those below it, whose files are in `folder`.
    fn add(&mut self, module: ModulePath, items: &[Item], folder: &Path) {
        let mut names = Names::default();
        for item in items {
            names.visit_item(item);
        }
        for child in names.modules {
            let name = child.ident.to_string();
            let folder = folder.join(&name);
            let path = [module.as_slice(), &[name]].concat();
            let flat = folder.with_extension("rs");
            match child.content {
                Some((_, items)) => self.add(path, &items, &folder),
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
                    let reexport = self
                        .modules
                        .get(&at)?
                        .iter()
                        .find(|path| path.name.as_ref() == Some(name));
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A crate of one source, whose modules are inline.
    pub(crate) fn made_up(source: &str) -> ModuleTree {
        let mut tree = ModuleTree::default();
        let parsed = syn::parse_file(source).expect("it is Rust");
        tree.add(Vec::new(), &parsed.items, Path::new(""));
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
             pub use b::Thing; use std::fmt; #[cfg(test)] mod gone {}",
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
            ("", "gone::x", None),
        ] {
            let found = tree.resolve(&segments(from), &segments(path));
            assert_eq!(found, expected.map(segments), "{from}: {path}");
        }
    }
}
