//! The imports between the modules of a crate, or between its folders: those that form a cycle, and those from a higher layer.

use std::collections::{BTreeMap, BTreeSet};

use crate::module_tree::ModuleTree;

/// The imports of a crate; a node is a module or a top-level folder.
#[derive(Default)]
pub(crate) struct Graph {
    nodes: BTreeSet<String>,
    /// The imports from the first to the second node, each as its module and its path as written.
    edges: BTreeMap<(String, String), Vec<String>>,
}

impl Graph {
    /// Every module is a node.
    pub(crate) fn of_modules(tree: &ModuleTree) -> Self {
        Self::new(tree, |module| module.join("::"))
    }

    /// Every module directly below the root is a node, together with its submodules.
    pub(crate) fn of_folders(tree: &ModuleTree) -> Self {
        Self::new(tree, |module| module.first().cloned().unwrap_or_default())
    }

    /// Every module of this folder is a node, as is the folder itself.
    pub(crate) fn within(tree: &ModuleTree, folder: &str) -> Self {
        let inside = format!("{folder}::");
        let is_inside = |node: &String| node == folder || node.starts_with(&inside);
        let mut graph = Self::of_modules(tree);
        graph.nodes.retain(is_inside);
        graph
            .edges
            .retain(|(from, to), _| is_inside(from) && is_inside(to));
        graph
    }

    fn new(tree: &ModuleTree, name: impl Fn(&[String]) -> String) -> Self {
        let node = |module: &[String]| {
            if module.is_empty() {
                "lib".to_owned()
            } else {
                name(module)
            }
        };
        let mut graph = Self::default();
        for (module, paths) in &tree.modules {
            let from = node(module);
            graph.nodes.insert(from.clone());
            for path in paths {
                let to = tree.resolve(module, &path.segments).map(|to| node(&to));
                if let Some(to) = to.filter(|to| *to != from) {
                    let importing = [&["crate".to_owned()], module.as_slice()].concat().join("::");
                    let import = format!("{importing}: {}", path.segments.join("::"));
                    graph.edges.entry((from.clone(), to)).or_default().push(import);
                }
            }
        }
        graph
    }

    /// The imports that are part of a cycle, or of a way from one cycle to another. The rarest come first, because a wrong one is
    /// most often alone.
    pub(crate) fn cycles(&self) -> Vec<String> {
        let mut left: Vec<_> = self.edges.keys().collect();
        loop {
            let edges = left.iter().map(|edge| (&edge.0, &edge.1));
            let (importing, imported): (BTreeSet<_>, BTreeSet<_>) = edges.unzip();
            let before = left.len();
            left.retain(|(from, to)| imported.contains(from) && importing.contains(to));
            if left.len() == before {
                left.sort_by_key(|edge| self.edges[edge].len());
                return left.iter().map(|(from, to)| self.imports(from, to)).collect();
            }
        }
    }

    /// Every import by which a node uses a higher layer, every node that no layer lists, and every listed name of no node. The
    /// layers are lists of names from the top down.
    pub(crate) fn violations(&self, layers: &[&str]) -> Vec<String> {
        let height = |node: &str| {
            layers
                .iter()
                .position(|layer| layer.split(' ').any(|listed| listed == node))
        };
        let upward = self.edges.keys().filter(|(from, to)| height(from) > height(to));
        let listed = layers
            .iter()
            .flat_map(|layer| layer.split(' '))
            .map(str::to_owned)
            .collect();
        let unmatched = self.nodes.symmetric_difference(&listed);
        upward
            .map(|(from, to)| self.imports(from, to))
            .chain(unmatched.map(|name| format!("`{name}` is not both a module and in a layer")))
            .collect()
    }

    fn imports(&self, from: &str, to: &str) -> String {
        let imports = &self.edges[&(from.to_owned(), to.to_owned())];
        format!("{from} -> {to}\n    {}", imports.join("\n    "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module_tree::tests::made_up;

    #[track_caller]
    fn assert_cycles(source: &str, expected: &[&str]) {
        assert_eq!(Graph::of_modules(&made_up(source)).cycles(), expected, "{source}");
    }

    #[test]
    fn the_imports_of_a_cycle_are_reported() {
        assert_cycles(
            "pub use a::A; \
             mod a { use crate::{b::B}; use crate::d; mod inner {} } \
             mod b { fn f() -> Option<crate::c::C> {} } \
             mod c { use crate::A; fn g() { e!(x < 1, [crate::b::x::<u8>(crate::a::y)]); e! { use crate::b::{Z}; } } } \
             mod d { use ::a::b; pub(in crate::a) fn f() { ::a::x(); <Y as Z>::a(); } }",
            &[
                "a -> b\n    crate::a: crate::b::B",
                "b -> c\n    crate::b: crate::c::C",
                "c -> a\n    crate::c: crate::A\n    crate::c: crate::a::y",
                "c -> b\n    crate::c: crate::b::x\n    crate::c: crate::b::Z",
            ],
        );
        assert_cycles(
            "mod a { use crate::f; } fn f() { a::g(); }",
            &["a -> lib\n    crate::a: crate::f", "lib -> a\n    crate: a::g"],
        );
    }

    #[test]
    fn imports_within_a_folder_connect_modules_but_not_folders() {
        let tree = made_up("mod a { mod b { use super::A; } use b::B; }");
        assert_eq!(Graph::of_modules(&tree).cycles().len(), 2);
        assert_eq!(Graph::of_folders(&tree).cycles(), [""; 0]);
    }

    #[test]
    fn an_import_from_a_lower_layer_and_a_missing_or_unlisted_module_are_reported() {
        let tree =
            made_up("mod face { use crate::store::S; } mod store { use crate::face::F; } mod stray {}");
        let expected = [
            "store -> face\n    crate::store: crate::face::F",
            "`gone` is not both a module and in a layer",
            "`stray` is not both a module and in a layer",
        ];
        let found = Graph::of_folders(&tree).violations(&["lib face", "store gone"]);
        assert_eq!(found, expected);
    }
}
