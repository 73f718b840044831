//! The messages of the compiler about the attribute: one file for each family of mistakes, because the compiler reports all
//! mistakes of a file in one run. A file of its own have those that hide others: half-typed functions, and lints, which the
//! compiler checks only in a file without other errors. `everything_at_once` has the mistakes of all stages of the attribute on
//! one function, and a message for each. The suite `attribute_forms` and the packages in `editions` have the uses that must
//! compile.
//!
//! The expected messages are those of the stable compiler 1.95. `MONGOLOCK_SKIP_UI=1` skips the test on other
//! versions; `TRYBUILD=overwrite` writes the messages again.

use std::env;
use std::path::Path;
use std::process::Command;

use mongolock_tests::must;

/// The variable that names the package whose dependencies `trybuild` checks.
const PACKAGE: &str = "CARGO_MANIFEST_DIR";

/// The cases are in the package `tests/ui`, which has few dependencies. `trybuild` takes the package from the environment, so
/// this test runs once more in a process of its own.
#[test]
fn every_mistake_has_its_message() {
    if env::var_os("MONGOLOCK_SKIP_UI").is_some_and(|skip| skip != "0") {
        println!("skipped: MONGOLOCK_SKIP_UI is set");
        return;
    }
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
    if env::var_os(PACKAGE).is_some_and(|current| current == package) {
        trybuild::TestCases::new().compile_fail("fail/*.rs");
        return;
    }
    let mut again = Command::new(must(env::current_exe()));
    again
        .args([
            "--exact",
            "attribute_messages::every_mistake_has_its_message",
            "--nocapture",
        ])
        .current_dir(&package)
        .env(PACKAGE, &package);
    let output = must(again.output());
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(
        output.status.success() && said[0].contains("1 passed"),
        "{}",
        said.concat()
    );
}
