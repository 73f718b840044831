//! The messages of the compiler about the attribute: one file for each mistake, and a crate outside the workspace that
//! must compile without a warning. The suite `attribute_forms` has the other uses that must compile.
//!
//! The expected messages are those of the stable compiler 1.95. `MONGOLOCK_SKIP_UI=1` skips the suite on other
//! versions; `TRYBUILD=overwrite` writes the messages again.

use std::path::Path;
use std::process::Command;

fn skipped() -> bool {
    let skip = std::env::var_os("MONGOLOCK_SKIP_UI").is_some_and(|skip| skip != "0");
    if skip {
        println!("skipped: MONGOLOCK_SKIP_UI is set");
    }
    skip
}

#[test]
fn every_mistake_has_its_message() {
    if !skipped() {
        let cases = trybuild::TestCases::new();
        cases.compile_fail("ui/fail/*.rs");
    }
}

/// The crate has no warning of the compiler or of `clippy::pedantic` in three editions. Its programs run as tests of
/// the packages in `editions`, which need not build the driver once more.
#[test]
fn a_crate_outside_the_workspace_compiles_without_a_warning() {
    if skipped() {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fixture = here.join("fixture");
    // The crate is built with the same versions of the dependencies as the workspace.
    std::fs::copy(here.join("../Cargo.lock"), fixture.join("Cargo.lock")).expect("a lock file to copy");
    let cargo = |arguments: &[&str]| {
        let status = Command::new(env!("CARGO"))
            .args(arguments)
            .current_dir(&fixture)
            .env(
                "CARGO_TARGET_DIR",
                Path::new(env!("CARGO_TARGET_TMPDIR")).join("fixture"),
            )
            .env_remove("RUSTFLAGS")
            .status();
        assert!(
            status.expect("cargo starts").success(),
            "cargo {} failed",
            arguments.join(" ")
        );
    };
    cargo(&[
        "clippy",
        "--workspace",
        "--offline",
        "--",
        "-D",
        "warnings",
        "-D",
        "clippy::pedantic",
    ]);
}
