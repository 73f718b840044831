//! The tests that `BEHAVIOURS.md` names exist.

use std::fs;
use std::path::{Path, PathBuf};

use mongolock_tests::must;

/// The root file or folder of each suite that `BEHAVIOURS.md` names, below the root of the repository.
const SUITES: [(&str, &str); 14] = [
    ("attribute_forms", "tests/suites/attribute_forms"),
    ("behaviour", "tests/suites/behaviour"),
    ("cli", "mongolock-cli/tests/cli"),
    ("edit_document", "examples/services/tests/edit_document"),
    ("faults", "tests/suites/faults"),
    ("load", "tests/suites/load"),
    ("metrics", "tests/suites/metrics"),
    ("metrics_allocations", "tests/suites/metrics_allocations"),
    ("observation", "tests/suites/observation"),
    ("own_thread", "tests/suites/own_thread"),
    ("programs", "examples/tests/programs"),
    ("recipes", "examples/tests/recipes"),
    ("structure", "tests/suites/structure"),
    ("single_files", "examples/tests/single_files"),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn each_promise_names_tests_that_exist() {
    let promises = must(fs::read_to_string(repository().join("tests/BEHAVIOURS.md")));
    let named: Vec<&str> = promises.lines().filter_map(test_of).collect();
    assert!(named.len() > 250, "only {} names were found", named.len());
    let missing: Vec<&str> = named.into_iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "no such test: {missing:#?}");
}

/// The test that a line below a promise names. Unit tests are prose: they are moved together with their module.
fn test_of(line: &str) -> Option<&str> {
    line.strip_prefix("  - `")?.split('`').next()
}

/// Whether the test exists. `*` stands for at least one test of a file or a folder.
fn exists(name: &str) -> bool {
    if name.starts_with("ui::") {
        return is_compiled(name);
    }
    let Some((module, test)) = name.rsplit_once("::") else {
        return false;
    };
    let (suite, modules) = module.split_once("::").unwrap_or((module, ""));
    let Some((_, root)) = SUITES.iter().find(|(known, _)| *known == suite) else {
        return false;
    };
    let place = repository().join(root).join(modules.replace("::", "/"));
    let tests = tests_below(&place);
    if test == "*" {
        !tests.is_empty()
    } else {
        tests.iter().any(|found| found == test)
    }
}

/// Whether the file of `tests/ui` exists, or has the function.
fn is_compiled(name: &str) -> bool {
    let (module, function) = name.rsplit_once("::").unwrap_or_default();
    let place = repository().join("tests").join(module.replace("::", "/"));
    let source = fs::read_to_string(place.with_extension("rs")).unwrap_or_default();
    if function == "*" {
        return place.is_dir() || !source.is_empty();
    }
    let is_function = |after| source.contains(&format!("fn {function}{after}"));
    place.join(function).with_extension("rs").is_file() || ['(', '<'].into_iter().any(is_function)
}

/// The tests of the file `place.rs`; of all files below the folder `place` if there is one.
fn tests_below(place: &Path) -> Vec<String> {
    if !place.is_dir() {
        let source = fs::read_to_string(place.with_extension("rs")).unwrap_or_default();
        return tests_in(&source);
    }
    let entries = must(fs::read_dir(place)).map(|entry| must(entry).path());
    let below = entries.filter(|path| path.is_dir() || path.extension().is_some_and(|ending| ending == "rs"));
    below.flat_map(|path| tests_below(&path)).collect()
}

/// The functions after a test attribute, and the scenarios that `conformance!` and `conformance_of_kinds!` list, these with
/// their kinds.
fn tests_in(source: &str) -> Vec<String> {
    let mut tests = Vec::new();
    let (mut is_test, mut is_listed) = (false, false);
    for line in source.lines().map(str::trim) {
        is_listed = (is_listed && line != ");") || line.starts_with("conformance") && line.ends_with("!(");
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        if is_listed && line.ends_with(',') {
            let name = line.split([':', ',']).next();
            tests.extend(name.map(str::to_owned));
        } else if is_test && let Some((_, function)) = line.split_once("fn ") {
            tests.extend(function.split_once('(').map(|(name, _)| name.to_owned()));
            is_test = false;
        }
    }
    tests
}
