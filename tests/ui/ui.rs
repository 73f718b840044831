//! The messages of the compiler about the attribute: one file for each family of mistakes, because the compiler reports all
//! mistakes of a file in one run. A file of its own have those that hide others: half-typed functions, and lints, which the
//! compiler checks only in a file without other errors. `everything_at_once` has the mistakes of all stages of the attribute on
//! one function, and a message for each. The suite `attribute_forms` and the packages in `editions` have the uses that must
//! compile.
//!
//! The expected messages are those of the stable compiler 1.95. `MONGOLOCK_SKIP_UI=1` skips the suite on other
//! versions; `TRYBUILD=overwrite` writes the messages again.

#[test]
fn every_mistake_has_its_message() {
    if std::env::var_os("MONGOLOCK_SKIP_UI").is_some_and(|skip| skip != "0") {
        println!("skipped: MONGOLOCK_SKIP_UI is set");
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.compile_fail("fail/*.rs");
}
