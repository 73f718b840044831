//! The tests that the table of behaviours names exist.

use std::fs;
use std::path::{Path, PathBuf};

use mongolock_tests::must;

/// The root file or folder of each suite that the table names, below the root of the repository.
const SUITES: [(&str, &str); 11] = [
    ("attribute_forms", "tests/suites/attribute_forms"),
    ("behaviour", "tests/suites/behaviour"),
    ("cli", "mongolock-cli/tests/cli"),
    ("faults", "tests/suites/faults"),
    ("metrics", "tests/suites/metrics"),
    ("observation", "tests/suites/observation"),
    ("programs", "examples/tests/programs"),
    ("recipes", "examples/tests/recipes"),
    ("spans", "tests/suites/spans"),
    ("structure", "tests/suites/structure"),
    ("single_files", "examples/tests/single_files"),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn each_row_names_tests_that_exist() {
    let table = must(fs::read_to_string(repository().join("tests/BEHAVIOURS.md")));
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let named: Vec<String> = rows.flat_map(tests_of).collect();
    assert!(named.len() > 150, "only {} names were found", named.len());
    let missing: Vec<&String> = named.iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "no such test: {missing:#?}");
}

#[test]
fn a_row_with_short_names_and_prose_is_read() {
    let row =
        "| B1 | why | `a::b::one`, `two` (an `ObjectId`), unit tests of `x` in `y/src`, `c::*`: a `wake` |";
    assert_eq!(tests_of(row), ["a::b::one", "a::b::two", "c::*", "c::wake"]);
    assert!(!exists("behaviour::tokens::no_such_test"));
    assert!(!exists("behaviour::no_such_module::*"));
    assert!(!exists("no_such_suite::tokens::*"));
    assert!(exists("ui::fail::options::permits_with_once") && exists("ui::fail::options::*"));
    assert!(!exists("ui::fail::options::permits_with_onc") && !exists("ui::fail::no_such_file::*"));
}

/// The full names of the tests in the last cell of a row. A name without a module is in the module of the name before
/// it. The unit tests of a module are prose: they are moved together with the module.
fn tests_of(row: &str) -> Vec<String> {
    let cells = row.trim_end_matches([' ', '|']);
    let cell = without_unit_tests(cells.rsplit(" | ").next().unwrap_or_default());
    let mut module = "";
    let mut names = Vec::new();
    for name in cell.split('`').skip(1).step_by(2).filter(|text| is_name(text)) {
        let (path, test) = name.rsplit_once("::").unwrap_or((module, name));
        module = path;
        names.push(format!("{module}::{test}"));
    }
    names
}

/// The cell without `unit tests of … in …`.
fn without_unit_tests(cell: &str) -> String {
    let Some(start) = cell.find("unit test") else {
        return cell.to_owned();
    };
    let rest = &cell[start..];
    let place = rest.find(" in `").expect("unit tests are `in` a folder") + " in `".len();
    let end = place + rest[place..].find('`').expect("the name of the folder ends") + 1;
    format!("{}{}", &cell[..start], without_unit_tests(&rest[end..]))
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:*".contains(c);
    text.chars().all(is_part)
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
