//! What the compiler says about the attribute: one file for each mistake, and a crate outside the workspace that must
//! please it. The suite `attribute_forms` has what else must compile.
//!
//! The expected messages are those of the stable compiler 1.95. `MONGOLOCK_SKIP_UI=1` skips the suite on any
//! other; `TRYBUILD=overwrite` writes the messages anew.

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
fn messages() {
    if !skipped() {
        let cases = trybuild::TestCases::new();
        cases.compile_fail("ui/fail/*.rs");
    }
}

/// Clean under `clippy::pedantic` and `-D warnings` in three editions, and it runs; its output shows what a lock
/// adds to the size of a future.
#[test]
fn a_crate_outside_the_workspace() {
    if skipped() {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fixture = here.join("fixture");
    // The versions that the workspace is tested with.
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
    for package in ["fixture", "fixture-2021", "fixture-2018"] {
        cargo(&["run", "--quiet", "--offline", "--package", package]);
    }
}
