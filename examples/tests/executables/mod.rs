//! The programs and the single-file examples, as Cargo has built them.

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use mongolock_tests::must;

/// The program or the example of this name.
pub(crate) fn executable(name: &str) -> &'static Path {
    let path = EXECUTABLES.get(name);
    path.unwrap_or_else(|| panic!("there is no program {name}"))
}

/// The executables by their names.
static EXECUTABLES: LazyLock<HashMap<String, PathBuf>> = LazyLock::new(|| {
    let output = must(build().output());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let messages = String::from_utf8_lossy(&output.stdout);
    let executables = messages.lines().filter_map(|message| {
        let (_, rest) = message.split_once("\"executable\":\"")?;
        let path = PathBuf::from(rest.split('"').next()?);
        Some((path.file_name()?.to_string_lossy().into_owned(), path))
    });
    executables.collect()
});

/// Builds them: a run of a single suite builds none, and `cargo test` builds an example that has tests only as a test.
/// With the packages and the environment of a full run, everything else is already built then.
fn build() -> Command {
    let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--workspace", "--bins", "--examples", "--locked"]);
    build.args(["--features=mongolock/metrics", "--message-format=json"]);
    build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    // Cargo describes the package of a test to the test. A build script of a dependency would take that for a change.
    let is_description = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_description) {
            build.env_remove(name);
        }
    }
    build
}
