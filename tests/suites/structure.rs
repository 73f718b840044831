//! The imports between the modules of a crate form no cycle, and the layers of the runtime import only from the top
//! down. The sources of the two crates are read as text, and every cycle is reported with the imports that form it. What decides
//! when the library acts reads no clock. The links in the guide and in the
//! alerts lead to pages and items that exist.

#[path = "structure/alerts.rs"]
mod alerts;
#[path = "structure/decisions.rs"]
mod decisions;
#[path = "structure/graph.rs"]
mod graph;
#[path = "structure/layers.rs"]
mod layers;
#[path = "structure/links.rs"]
mod links;
#[path = "structure/module_tree.rs"]
mod module_tree;
#[path = "structure/packages.rs"]
mod packages;
#[path = "structure/paths.rs"]
mod paths;
#[path = "structure/tokens.rs"]
mod tokens;

use std::path::{Path, PathBuf};

use crate::graph::Graph;
use crate::layers::{Layer, violations};
use crate::module_tree::ModuleTree;

/// The layers of the runtime from the top down: a module imports from its own layer and from those below it.
const RUNTIME_LAYERS: &[Layer] = &[
    Layer {
        name: "public API",
        modules: &[
            "lib",
            "attribute",
            "provider",
            "blocking",
            "lock",
            "guard",
            "set_guard",
            "permit",
            "context",
            "commit",
            "admin",
            "run",
            "fenced",
            "guide",
        ],
    },
    Layer {
        name: "acquire",
        modules: &["acquire"],
    },
    Layer {
        name: "engine",
        modules: &["engine"],
    },
    Layer {
        name: "deadlock",
        modules: &["deadlock"],
    },
    Layer {
        name: "notifier",
        modules: &["notifier"],
    },
    Layer {
        name: "lease",
        modules: &["lease"],
    },
    Layer {
        name: "line",
        modules: &["line"],
    },
    Layer {
        name: "queue",
        modules: &["queue", "index_task", "probe"],
    },
    Layer {
        name: "store",
        modules: &["store"],
    },
    Layer {
        name: "values and tools",
        modules: &[
            "error",
            "duration",
            "token",
            "handle",
            "output",
            "name",
            "lock_id",
            "permit_id",
            "once",
            "one_line",
            "opaque",
            "options",
            "timing",
            "moment",
            "backoff",
            "few",
            "sync",
            "task",
            "meter",
            "driver_span",
            "trace",
        ],
    },
];

/// The files of the runtime that decide when it acts. They read no clock, draw nothing and wait for nothing.
const DECISIONS: &[&str] = &[
    "acquire/asking.rs",
    "acquire/period.rs",
    "backoff.rs",
    "deadlock/rule.rs",
    "lease/book.rs",
    "lease/given_up.rs",
    "line/line.rs",
    "line/order.rs",
    "line/recent.rs",
    "notifier/cost.rs",
    "notifier/filter.rs",
    "notifier/rest.rs",
    "notifier/waiters.rs",
    "queue/fairness.rs",
    "queue/front_state.rs",
    "queue/holder.rs",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(crate_name: &str) -> ModuleTree {
    let root = PathBuf::from(crate_name).join("src/lib.rs");
    ModuleTree::read(&root, &|path| {
        std::fs::read_to_string(workspace().join(path)).ok()
    })
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn the_modules_of_the_macro_crate_form_no_cycle() {
    let graph = Graph::of_modules(&read("mongolock-macros"));
    assert!(graph.has_edge("expand", "validate"), "the sources were not read");
    assert_none(&graph.cycles());
}

#[test]
fn the_folders_of_the_runtime_form_no_cycle() {
    let graph = Graph::of_folders(&read("mongolock"));
    assert!(graph.has_edge("lib", "error"), "the sources were not read");
    assert_none(&graph.cycles());
}

#[test]
fn the_runtime_imports_from_the_top_down() {
    assert_none(&violations(
        &Graph::of_folders(&read("mongolock")),
        RUNTIME_LAYERS,
    ));
}

#[test]
fn what_decides_reads_no_clock_and_draws_nothing() {
    let refused = DECISIONS.iter().flat_map(|file| {
        let path = workspace().join("mongolock/src").join(file);
        let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        decisions::refused(file, &source)
    });
    assert_none(&refused.collect::<Vec<String>>());
}
