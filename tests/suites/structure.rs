//! The imports between the modules of a crate form no cycle, and the layers of the runtime import only from the top down. The
//! sources of the two crates are parsed for that. Rooms, files and functions keep the bounds of their sizes. The core
//! reads no clock. The links in the guide and in the alerts lead to pages and items that exist.

#[path = "structure/alerts.rs"]
mod alerts;
#[path = "structure/bounds.rs"]
mod bounds;
#[path = "structure/graph.rs"]
mod graph;
#[path = "structure/links.rs"]
mod links;
#[path = "structure/module_tree.rs"]
mod module_tree;
#[path = "structure/packages.rs"]
mod packages;
#[path = "structure/purity.rs"]
mod purity;
#[path = "structure/rules.rs"]
mod rules;
#[path = "structure/sizes.rs"]
mod sizes;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::graph::Graph;
use crate::module_tree::ModuleTree;

/// The layers of the runtime from the top down: a module imports from its own layer and from those below it. The first are the
/// public API; the last has times and the meaning of commands.
const RUNTIME_LAYERS: [&str; 7] = [
    "lib attribute leader provider blocking lock guard context commit detach health admin run fence guide readme",
    "engine",
    "probe home",
    "store",
    "error duration token handle output name one_line opaque options backoff few sync task meter trace",
    "core",
    "protocol timing",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(crate_name: &str) -> ModuleTree {
    let tree = ModuleTree::read(&workspace().join(crate_name).join("src"));
    assert!(tree.modules.len() > 30, "{crate_name}: {:?}", tree.modules.keys());
    tree
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn the_modules_of_the_macro_crate_form_no_cycle() {
    assert_none(&Graph::of_modules(&read("mongolock-macros")).cycles());
}

#[test]
fn the_folders_of_the_runtime_form_no_cycle() {
    assert_none(&Graph::of_folders(&read("mongolock")).cycles());
}

#[test]
fn the_modules_of_a_folder_form_no_cycle() {
    let runtime = read("mongolock");
    let folders: BTreeSet<&str> = runtime
        .modules
        .keys()
        .filter_map(|module| Some(&**module.first()?))
        .collect();
    let cycles = folders
        .into_iter()
        .flat_map(|folder| Graph::within(&runtime, folder).cycles());
    assert_none(&cycles.collect::<Vec<_>>());
}

#[test]
fn the_runtime_imports_from_the_top_down() {
    assert_none(&Graph::of_folders(&read("mongolock")).violations(&RUNTIME_LAYERS));
}

#[test]
fn the_core_is_pure() {
    let sources = sizes::sources(&workspace().join("mongolock/src/core"));
    assert!(sources.len() > 25, "the core is there");
    let refused: Vec<String> = sources
        .into_iter()
        .flat_map(|path| {
            let source = std::fs::read_to_string(&path).expect("a source");
            purity::impure(&path.display().to_string(), &source)
        })
        .collect();
    assert_none(&refused);
}
