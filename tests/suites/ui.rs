//! The messages of the compiler about the attribute: one file for each family of mistakes, because the compiler reports all
//! mistakes of a file in one run. A file of its own have those that hide others: half-typed functions, and lints, which the
//! compiler checks only in a file without other errors. `everything_at_once` has the mistakes of all stages of the attribute on
//! one function, and a message for each. The suite `attribute_forms`, which the packages in `editions` compile as well,
//! has the uses that must compile.
//!
//! The files are compiled with the crates that cargo has built for this suite, so that nothing is built for them.
//!
//! The expected messages are those of the stable compiler 1.95. `MONGOLOCK_SKIP_UI=1` skips the suite on other
//! versions; `TRYBUILD=overwrite` writes the messages again.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use mongolock_ui::built_crates;

/// The variable with the flags of the compiler that cargo prefers to those in its configuration.
const FLAGS: &str = "CARGO_ENCODED_RUSTFLAGS";

/// The crates that the files use.
const CRATES: [&str; 6] = ["async_trait", "axum", "mongodb", "mongolock", "tokio", "tracing"];

/// The package with the files.
const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ui");

#[test]
fn every_mistake_has_its_message() {
    if env::var_os("MONGOLOCK_SKIP_UI").is_some_and(|skip| skip != "0") {
        println!("skipped: MONGOLOCK_SKIP_UI is set");
        return;
    }
    let flags = flags().join("\u{1f}");
    if env::var_os(FLAGS).is_none_or(|others| *others != *flags) {
        again(&flags);
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.compile_fail("fail/*.rs");
}

/// The flags that `trybuild` would set for the files, and the crates that they use.
fn flags() -> Vec<&'static str> {
    let trybuild = [
        "--cfg=trybuild",
        "--verbose",
        "-A",
        "dead_code",
        "--diagnostic-width=140",
    ];
    let is_used = |pair: &&[&str]| match pair[1].split_once('=') {
        Some((name, _)) if pair[0] == "--extern" => CRATES.contains(&name),
        _ => true,
    };
    let crates = built_crates!().chunks(2).filter(is_used);
    trybuild.into_iter().chain(crates.flatten().copied()).collect()
}

/// Runs this program once more, with these flags and in the package with the files, whose manifest `trybuild` reads.
fn again(flags: &str) {
    let workspace = Path::new(PACKAGE).ancestors().nth(2).unwrap();
    show_the_library(workspace);
    let mut program = Command::new(env::current_exe().unwrap());
    program.args(env::args_os().skip(1)).env(FLAGS, flags);
    program.env("CARGO_MANIFEST_DIR", PACKAGE).current_dir(PACKAGE);
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    program
        .env("MONGOLOCK_UI_CARGO", cargo)
        .env("MONGOLOCK_UI_WORKSPACE", workspace);
    // The files get the messages of the compiler, also where the workspace is built with lints.
    program.env_remove("RUSTC_WORKSPACE_WRAPPER");
    program.env("CARGO", format!("{PACKAGE}/cargo.sh"));
    assert!(program.status().unwrap().success(), "the messages are above");
}

/// The compiler shows lines of the library in its messages; it looks for them from where `trybuild` starts it.
fn show_the_library(workspace: &Path) {
    let program = env::current_exe().unwrap();
    let target = program.ancestors().nth(3).unwrap();
    let project = target.join("tests/trybuild/mongolock-ui");
    fs::create_dir_all(&project).unwrap();
    match symlink(workspace.join("mongolock"), project.join("mongolock")) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => panic!("{error}"),
        _ => {}
    }
}
