//! What the packages of the crates contain, and what the library says before it is built.

use std::env;
use std::fs;
use std::process::Command;

use crate::workspace;

/// The files of the package, as cargo would publish it.
fn packaged(crate_name: &str) -> Vec<String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["package", "--list", "--offline", "--allow-dirty", "--package"])
        .arg(crate_name)
        .current_dir(workspace())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{output:?}");
    let listing = String::from_utf8_lossy(&output.stdout);
    listing.lines().map(str::to_owned).collect()
}

const PACKAGES: [&str; 3] = ["mongolock", "mongolock-macros", "mongolock-cli"];

/// A dependency without a version is left out of the manifest of a package, and with it goes what needs it.
#[test]
fn no_package_has_a_test_that_needs_the_workspace() {
    for crate_name in PACKAGES {
        for file in packaged(crate_name) {
            assert!(!file.starts_with("tests/"), "{crate_name}/{file}");
            let path = workspace().join(crate_name).join(&file);
            if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("it is packaged");
                assert!(!text.contains("mongolock_tests"), "{crate_name}/{file}");
            }
        }
    }
}

/// What the build script of the library prints with these features.
fn build_script(features: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("build");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let source = workspace().join("mongolock/build.rs");
    let compiled = Command::new(rustc)
        .args(["--edition", "2024", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(compiled.expect("rustc runs").success());
    let mut run = Command::new(program);
    run.current_dir(workspace().join("mongolock")).env_clear();
    for feature in features {
        run.env(format!("CARGO_FEATURE_{feature}"), "1");
    }
    let output = run.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The driver has a message of its own, which names features of the driver. Cargo builds the script before the driver.
#[test]
fn a_build_without_tls_names_the_features_of_the_library() {
    let said = build_script(&["BSON_2"]);
    let error = said.lines().find_map(|line| line.strip_prefix("cargo::error="));
    let error = error.expect("it is an error");
    for part in ["`rustls-tls`", "`openssl-tls`", "of mongolock"] {
        assert!(error.contains(part), "{error}");
    }
    for feature in ["RUSTLS_TLS", "OPENSSL_TLS"] {
        let said = build_script(&[feature]);
        assert!(!said.contains("cargo::error="), "{said}");
        assert!(said.contains("cargo::rustc-cfg=server_tests"), "{said}");
    }
}

#[test]
fn each_package_has_the_texts_of_the_repository_and_the_library_its_examples() {
    for crate_name in ["mongolock", "mongolock-macros"] {
        let files = packaged(crate_name);
        for text in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(files.contains(&text.to_owned()), "{crate_name} lacks {text}");
            // A link to the one in the root: two copies would differ some day.
            let read = |file| fs::read_to_string(file).expect("it is packaged");
            let (own, root) = (workspace().join(crate_name).join(text), workspace().join(text));
            assert_eq!(read(own), read(root), "{crate_name}/{text}");
        }
    }
    assert!(packaged("mongolock").contains(&"examples/quickstart.rs".to_owned()));
}
