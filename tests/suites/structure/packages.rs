//! What the packages of the two crates contain.

use std::env;
use std::fs;
use std::process::Command;

use crate::workspace;

/// The files of the package, as cargo would publish it.
fn packaged(crate_name: &str) -> Vec<String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "package",
            "--list",
            "--offline",
            "--allow-dirty",
            "--package",
            crate_name,
        ])
        .current_dir(workspace())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let listing = String::from_utf8_lossy(&output.stdout);
    listing.lines().map(str::to_owned).collect()
}

#[test]
fn each_package_has_the_texts_of_the_repository() {
    for crate_name in ["mongolock", "mongolock-macros"] {
        let files = packaged(crate_name);
        for text in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(
                files.iter().any(|file| file == text),
                "{crate_name} lacks {text}: {files:#?}"
            );
            // A link to the one in the root: two copies would differ some day.
            let read = |file| fs::read_to_string(file).expect("it is packaged");
            let (own, root) = (workspace().join(crate_name).join(text), workspace().join(text));
            assert_eq!(read(own), read(root), "{crate_name}/{text}");
        }
    }
}

#[test]
fn the_package_of_the_library_has_the_examples() {
    let files = packaged("mongolock");
    assert!(
        files.iter().any(|file| file == "examples/quickstart.rs"),
        "{files:#?}"
    );
}
