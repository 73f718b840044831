//! Modules in layers: imports run from the top down.

use crate::graph::Graph;

/// The modules of one layer.
pub(crate) struct Layer {
    pub(crate) name: &'static str,
    pub(crate) modules: &'static [&'static str],
}

/// Every module that no layer lists, and every import by which a module uses a higher layer; `layers` begins at the top.
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
                "`{from}` ({}) imports from `{to}` ({}), which is in a higher layer:\n{}",
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
    fn an_import_from_a_lower_layer_and_an_unlisted_module_are_reported() {
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
                "`store` (database) imports from `face` (faces), which is in a higher layer:\n  store -> face\n    \
                 src/store/mod.rs: crate::face::F",
            ]
        );
    }
}
