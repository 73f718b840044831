//! What the compiler says about the attribute: one file for each mistake, and the uses that must compile and run.
//!
//! The expected messages are those of the pinned stable compiler; `MONGOLOCK_SKIP_UI=1` skips the suite
//! elsewhere, `TRYBUILD=overwrite` writes them anew.

#[test]
fn ui() {
    if std::env::var_os("MONGOLOCK_SKIP_UI").is_some_and(|skip| skip != "0") {
        println!("skipped: MONGOLOCK_SKIP_UI is set");
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/fail/*.rs");
    cases.pass("ui/pass/*.rs");
}
