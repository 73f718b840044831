//! The tests that `BEHAVIOURS.md` names exist.

use std::fs;
use std::path::Path;

use mongolock_tests::must;

/// The folders of the suites that `BEHAVIOURS.md` names, below the root of the repository.
const FOLDERS: [&str; 5] = [
    "tests",
    "tests/suites",
    "mongolock-cli/tests",
    "examples/tests",
    "examples/services/tests",
];

/// The beginnings of lines that make at least one test; the attributes are those of the files in `ui`.
const TESTS: [&str; 5] = [
    "#[test]",
    "#[tokio::test",
    "conformance",
    "#[distributed_lock",
    "#[derive(LockName)]",
];

#[test]
fn each_promise_names_tests_that_exist() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let promises = must(fs::read_to_string(repository.join("tests/BEHAVIOURS.md")));
    let named: Vec<&str> = promises.lines().filter_map(test_of).collect();
    assert!(named.len() > 250, "only {} names were found", named.len());
    let missing = named.into_iter().filter(|name| !exists(&repository, name));
    let missing: Vec<&str> = missing.collect();
    assert!(missing.is_empty(), "no such test: {missing:#?}");
}

/// The test that a line below a promise names. Unit tests are prose: they are moved together with their module.
fn test_of(line: &str) -> Option<&str> {
    line.strip_prefix("  - `")?.split('`').next()
}

/// Whether the test exists: a function, a scenario in a list such as `conformance!`, with its kinds or without them, or a file of
/// `ui`. `*` stands for at least one test of a file or a folder.
fn exists(repository: &Path, name: &str) -> bool {
    let (module, test) = name.rsplit_once("::").unwrap_or_default();
    let places = FOLDERS.map(|folder| repository.join(folder).join(module.replace("::", "/")));
    let is_there = |line: &str| match test {
        "*" => TESTS.iter().any(|begin| line.starts_with(begin)),
        _ => {
            [format!("fn {test}("), format!("fn {test}<")]
                .iter()
                .any(|function| line.contains(function))
                || line
                    .strip_prefix(test)
                    .is_some_and(|rest| rest.starts_with([':', ',']))
        }
    };
    places.iter().any(|place| {
        let is_file = place.join(test).with_extension("rs").is_file();
        is_file || lines_below(place).iter().any(|line| is_there(line.trim()))
    })
}

/// The lines of the file `place.rs`, and of all files below the folder `place`.
fn lines_below(place: &Path) -> Vec<String> {
    let source = fs::read_to_string(place.with_extension("rs")).unwrap_or_default();
    let mut lines: Vec<String> = source.lines().map(str::to_owned).collect();
    for entry in fs::read_dir(place).into_iter().flatten() {
        lines.extend(lines_below(&must(entry).path().with_extension("")));
    }
    lines
}
