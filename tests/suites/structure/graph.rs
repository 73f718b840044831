//! The graph of the imports between modules, and its cycles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::module_tree::ModuleTree;

/// The name of the crate root in a graph.
const ROOT: &str = "lib";

/// The imports of a crate; a node is a module or a top-level folder.
#[derive(Default)]
pub(crate) struct Graph {
    nodes: BTreeSet<String>,
    /// The imports from the first to the second node, each with its file, its line and its path as written.
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

    fn new(tree: &ModuleTree, name: impl Fn(&[String]) -> String) -> Self {
        let name = |module: &[String]| Some(name(module)).filter(|name| !name.is_empty());
        let node = |module: &[String]| name(module).unwrap_or_else(|| ROOT.to_owned());
        let mut graph = Self::default();
        for (from, module) in &tree.modules {
            graph.nodes.insert(node(from));
            for path in &module.paths {
                if let Some(to) = tree.resolve(from, &path.segments) {
                    let import = format!("{}: {}", module.file.display(), path.segments.join("::"));
                    graph.connect(node(from), node(&to), import);
                }
            }
        }
        graph
    }

    fn connect(&mut self, from: String, to: String, import: String) {
        if from != to {
            self.edges.entry((from, to)).or_default().push(import);
        }
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(String::as_str)
    }

    /// Every pair of nodes of which the first imports from the second.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (&str, &str)> {
        self.edges.keys().map(|(from, to)| (from.as_str(), to.as_str()))
    }

    pub(crate) fn has_edge(&self, from: &str, to: &str) -> bool {
        self.edges().any(|edge| edge == (from, to))
    }

    /// What a node imports from another: a heading, then one import a line.
    pub(crate) fn imports(&self, from: &str, to: &str) -> String {
        let key = (from.to_owned(), to.to_owned());
        let imports = self.edges.get(&key).into_iter().flatten();
        let mut lines = vec![format!("  {from} -> {to}")];
        lines.extend(imports.map(|import| format!("    {import}")));
        lines.join("\n")
    }

    /// The shortest cycle of each node that is in none of the cycles before it, written as `a -> b -> a` and followed
    /// by the imports that form it.
    pub(crate) fn cycles(&self) -> Vec<String> {
        let mut covered = BTreeSet::new();
        let mut found = Vec::new();
        for node in self.nodes() {
            if !covered.contains(node)
                && let Some(cycle) = self.shortest_cycle(node)
            {
                covered.extend(cycle.iter().copied());
                found.push(self.describe(&cycle));
            }
        }
        found
    }

    /// The nodes of the shortest path from a node back to it; the node is the first and the last of them.
    fn shortest_cycle<'a>(&'a self, start: &'a str) -> Option<Vec<&'a str>> {
        let mut ways = VecDeque::from([vec![start]]);
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop_front() {
            let last = *way.last()?;
            for (_, next) in self.edges().filter(|(from, _)| *from == last) {
                let longer = [way.as_slice(), &[next]].concat();
                if next == start {
                    return Some(longer);
                }
                if seen.insert(next) {
                    ways.push_back(longer);
                }
            }
        }
        None
    }

    fn describe(&self, cycle: &[&str]) -> String {
        let mut lines = vec![format!("cycle: {}", cycle.join(" -> "))];
        lines.extend(cycle.windows(2).map(|pair| self.imports(pair[0], pair[1])));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module_tree::tests::made_up;

    #[test]
    fn a_cycle_is_reported_with_its_imports() {
        let tree = made_up(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;"),
            ("a.rs", "use crate::{\n    b::B,\n};"),
            ("b.rs", "fn f() {\n    crate::c::g();\n}"),
            ("c.rs", "use crate::A;"),
        ]);
        assert_eq!(
            Graph::of_modules(&tree).cycles(),
            ["cycle: a -> b -> c -> a\n\
              \x20 a -> b\n    src/a.rs: crate::b::B\n\
              \x20 b -> c\n    src/b.rs: crate::c::g\n\
              \x20 c -> a\n    src/c.rs: crate::A"]
        );
    }

    #[test]
    fn a_module_that_imports_from_the_root_closes_a_cycle() {
        let tree = made_up(&[
            ("lib.rs", "mod a;\nfn f() {\n    a::g();\n}"),
            ("a.rs", "use crate::f;"),
        ]);
        let cycles = Graph::of_modules(&tree).cycles();
        assert_eq!(cycles.len(), 1);
        assert!(cycles[0].starts_with("cycle: a -> lib -> a\n"), "{cycles:?}");
    }

    #[test]
    fn an_import_of_tests_is_not_counted() {
        let tree = made_up(&[
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod c;"),
            ("a.rs", "use crate::b;\n#[cfg(test)]\nmod tests { use crate::b; }"),
            (
                "b.rs",
                "#[cfg(test)]\nuse crate::a;\n#[cfg(test)]\nmod tests { use crate::a::A; }",
            ),
        ]);
        let graph = Graph::of_modules(&tree);
        assert!(graph.has_edge("a", "b"));
        assert_eq!(graph.cycles(), [""; 0]);
    }

    #[test]
    fn imports_within_a_folder_connect_modules_but_not_folders() {
        let tree = made_up(&[
            ("lib.rs", "mod a;"),
            ("a.rs", "mod b; use b::B;"),
            ("a/b.rs", "use super::A;"),
        ]);
        assert_eq!(Graph::of_modules(&tree).cycles().len(), 1);
        assert_eq!(Graph::of_folders(&tree).cycles(), [""; 0]);
    }
}
