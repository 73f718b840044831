//! Modules in layers: imports run from the top down.

use crate::graph::Graph;

/// Modules that stand at the same height.
pub(crate) struct Layer {
    pub(crate) name: &'static str,
    pub(crate) modules: &'static [&'static str],
}

/// Every module that stands in no layer, and every import from a lower into a higher layer; `layers` begins at the top.
pub(crate) fn violations(graph: &Graph, layers: &[Layer]) -> Vec<String> {
    let height = |module: &str| layers.iter().position(|layer| layer.modules.contains(&module));
    let homeless = graph
        .nodes()
        .filter(|module| height(module).is_none())
        .map(|module| format!("no layer lists `{module}`"));
    let upward = graph.edges().filter_map(|(from, to)| {
        let (lower, higher) = (height(from)?, height(to)?);
        (lower > higher).then(|| {
            format!(
                "`{from}` ({}) imports from `{to}` ({}), which stands above it:\n{}",
                layers[lower].name,
                layers[higher].name,
                graph.imports(from, to)
            )
        })
    });
    homeless.chain(upward).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module_tree::tests::made_up;

    #[test]
    fn an_import_from_below_and_an_unlisted_module_are_reported() {
        let tree = made_up(&[
            ("lib.rs", "mod face; mod store; mod stray;"),
            ("face.rs", "use crate::store::S;"),
            ("store/mod.rs", "use crate::face::F;"),
            ("stray.rs", ""),
        ]);
        let layers = [
            Layer {
                name: "faces",
                modules: &["lib", "face"],
            },
            Layer {
                name: "database",
                modules: &["store"],
            },
        ];
        assert_eq!(
            violations(&Graph::of_folders(&tree), &layers),
            [
                "no layer lists `stray`",
                "`store` (database) imports from `face` (faces), which stands above it:\n  store -> face\n    \
                 src/store/mod.rs:1 crate::face::F",
            ]
        );
    }
}
