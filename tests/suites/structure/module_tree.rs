//! The modules of a crate, read from its root file along the `mod` lines; modules that only tests compile are left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::paths::{Declaration, WrittenPath, declarations, paths};
use crate::tokens;

/// The names from the crate root to a module; the root itself has none.
pub(crate) type ModulePath = Vec<String>;

/// The number of re-exports that are followed for one path; no path of a crate that compiles needs as many.
const MOST_REEXPORTS: usize = 16;

/// Reads a file, given by its path from the workspace; `None` if it does not exist.
type Load<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// One module, with the declarations and the paths of its file.
pub(crate) struct Module {
    pub(crate) file: PathBuf,
    pub(crate) paths: Vec<WrittenPath>,
}

/// All modules of a crate.
pub(crate) struct ModuleTree {
    pub(crate) modules: BTreeMap<ModulePath, Module>,
}

impl ModuleTree {
    pub(crate) fn read(root: &Path, load: Load<'_>) -> Self {
        let mut tree = Self {
            modules: BTreeMap::new(),
        };
        let directory = root.parent().unwrap_or(root);
        tree.add(Vec::new(), root, directory, load);
        tree
    }

    /// Adds the module of `file` and its submodules, whose files are in `directory`.
    fn add(&mut self, module: ModulePath, file: &Path, directory: &Path, load: Load<'_>) {
        let source = load(file).unwrap_or_else(|| panic!("cannot read {}", file.display()));
        let tokens = tokens::read(&source);
        for child in declarations(&tokens) {
            let (child_file, child_directory) = locate(&child, file, directory, load);
            let path = [module.as_slice(), &[child.name]].concat();
            self.add(path, &child_file, &child_directory, load);
        }
        let module_content = Module {
            file: file.to_owned(),
            paths: paths(&tokens),
        };
        self.modules.insert(module, module_content);
    }

    /// The module in which the target of a path is defined; `None` for a path into another crate.
    pub(crate) fn resolve(&self, from: &[String], segments: &[String]) -> Option<ModulePath> {
        self.resolve_within(from, segments, MOST_REEXPORTS)
    }

    fn resolve_within(&self, from: &[String], segments: &[String], reexports: usize) -> Option<ModulePath> {
        let (mut at, mut rest) = self.start(from, segments)?;
        while let Some((name, after)) = rest.split_first() {
            let child = [at.as_slice(), std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&child) {
                at = child;
                rest = after;
                continue;
            }
            let target = self.reexport(&at, name).filter(|_| reexports > 0);
            return match target {
                Some(target) => {
                    let whole = [target, after].concat();
                    self.resolve_within(&at, &whole, reexports - 1)
                }
                None => Some(at),
            };
        }
        Some(at)
    }

    /// The module at which a path starts, and the rest of the path.
    fn start<'a>(&self, from: &[String], segments: &'a [String]) -> Option<(ModulePath, &'a [String])> {
        let (first, after) = segments.split_first()?;
        match first.as_str() {
            "crate" => Some((Vec::new(), after)),
            "self" => Some((from.to_vec(), after)),
            "super" => {
                let mut at = from;
                let mut rest = segments;
                while rest.first().is_some_and(|segment| segment == "super") {
                    at = &at[..at.len().checked_sub(1)?];
                    rest = &rest[1..];
                }
                Some((at.to_vec(), rest))
            }
            _ => {
                let child = [from, std::slice::from_ref(first)].concat();
                self.modules.contains_key(&child).then_some((child, after))
            }
        }
    }

    /// The path that a `use` of this module gives a name.
    fn reexport(&self, module: &[String], name: &str) -> Option<&[String]> {
        let paths = &self.modules.get(module)?.paths;
        let named = paths.iter().find(|path| path.name.as_deref() == Some(name))?;
        Some(&named.segments)
    }
}

/// The file of a declared module, and the folder of the files of its submodules.
fn locate(child: &Declaration, file: &Path, directory: &Path, load: Load<'_>) -> (PathBuf, PathBuf) {
    if let Some(path) = &child.path {
        let folder = file.parent().unwrap_or(directory);
        return (folder.join(path), folder.to_owned());
    }
    let own = directory.join(&child.name);
    let flat = directory.join(format!("{}.rs", child.name));
    if load(&flat).is_some() {
        (flat, own)
    } else {
        (own.join("mod.rs"), own)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Builds a crate from pairs of a file and its content.
    pub(crate) fn made_up(files: &[(&str, &str)]) -> ModuleTree {
        ModuleTree::read(Path::new("src/lib.rs"), &|path| {
            let found = files
                .iter()
                .find(|(file, _)| Path::new("src").join(file) == path)?;
            Some(found.1.to_owned())
        })
    }

    fn module(path: &str) -> ModulePath {
        path.split("::")
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn resolved(tree: &ModuleTree, from: &str, path: &str) -> Option<String> {
        let segments: Vec<_> = path.split("::").map(str::to_owned).collect();
        tree.resolve(&module(from), &segments)
            .map(|found| found.join("::"))
    }

    #[test]
    fn files_and_folders_are_found() {
        let tree = made_up(&[
            (
                "lib.rs",
                "mod a; mod b; #[path = \"c.rs\"] pub mod __c; #[cfg(test)] mod gone;",
            ),
            ("a.rs", "mod inner;"),
            ("a/inner.rs", ""),
            ("b/mod.rs", "mod inner;"),
            ("b/inner.rs", ""),
            ("c.rs", ""),
        ]);
        let found: Vec<_> = tree.modules.keys().map(|path| path.join("::")).collect();
        assert_eq!(found, ["", "__c", "a", "a::inner", "b", "b::inner"]);
    }

    #[test]
    fn paths_lead_to_the_module_that_defines_their_target() {
        let tree = made_up(&[
            ("lib.rs", "mod a; mod b; pub use b::Thing; use std::fmt;"),
            ("a.rs", "mod inner;"),
            ("a/inner.rs", ""),
            ("b.rs", "mod deep; pub(crate) use deep::Thing;"),
            ("b/deep.rs", ""),
        ]);
        let cases = [
            ("a", "crate::Thing", Some("b::deep")),
            ("a", "crate::b::Thing::new", Some("b::deep")),
            ("a", "crate::b::Other", Some("b")),
            ("a", "crate::defined_in_the_root", Some("")),
            ("a", "inner::x", Some("a::inner")),
            ("a::inner", "super::x", Some("a")),
            ("a::inner", "super::super::b", Some("b")),
            ("a", "std::fmt", None),
            ("a", "crate::fmt::Result", None),
        ];
        for (from, path, expected) in cases {
            assert_eq!(resolved(&tree, from, path).as_deref(), expected, "{from}: {path}");
        }
    }
}
