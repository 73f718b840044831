//! The messages of the compiler about the attribute: one file for each family of mistakes, because the compiler reports all
//! mistakes of a file in one run. A file of its own have those that hide others: half-typed functions, and lints, which the
//! compiler checks only in a file without other errors. `everything_at_once` has the mistakes of all stages of the attribute on
//! one function, and a message for each. The suite `attribute_forms` and the packages in `editions` have the uses that must
//! compile.
//!
//! The expected messages are those of the stable compiler 1.95. `MONGOLOCK_SKIP_UI=1` skips the suite on other
//! versions; `TRYBUILD=overwrite` writes the messages again.

use std::process::Command;

/// The variable with the flags of the compiler that cargo prefers to those in its configuration.
const FLAGS: &str = "CARGO_ENCODED_RUSTFLAGS";

/// The flags that `trybuild` sets for the files. It omits the last one for the dependencies, so cargo would check these twice.
const SAME_FLAGS: [&str; 5] = [
    "--cfg=trybuild",
    "--verbose",
    "-A",
    "dead_code",
    "--diagnostic-width=140",
];

#[test]
fn every_mistake_has_its_message() {
    if std::env::var_os("MONGOLOCK_SKIP_UI").is_some_and(|skip| skip != "0") {
        println!("skipped: MONGOLOCK_SKIP_UI is set");
        return;
    }
    let same = SAME_FLAGS.join("\u{1f}");
    if std::env::var_os(FLAGS).is_none_or(|flags| *flags != *same) {
        let mut again = Command::new(std::env::current_exe().unwrap());
        let again = again.args(std::env::args_os().skip(1)).env(FLAGS, same);
        assert!(again.status().unwrap().success(), "the messages are above");
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.compile_fail("fail/*.rs");
}
