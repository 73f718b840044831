//! The script of the guide, as it stands there.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use mongolock_tests::{must, test_db};

/// The first script of the page.
fn script() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mongolock/src/guide/jobs.md");
    let page = must(fs::read_to_string(page));
    let (_, rest) = page.split_once("```sh\n").expect("the page has a script");
    let (script, _) = rest.split_once("```").expect("the script ends");
    script.to_owned()
}

fn executable(path: &Path, text: &str) {
    must(fs::write(path, text));
    must(fs::set_permissions(path, fs::Permissions::from_mode(0o755)));
}

#[tokio::test]
async fn the_cron_script_of_the_guide_runs_once() {
    let script = script();
    assert_eq!(script.lines().count(), 2, "{script}");
    let db = test_db().await;
    let directory = must(tempfile::tempdir());
    let (cron, ran) = (directory.path().join("cron"), directory.path().join("ran"));
    executable(&cron, &script);
    executable(
        &directory.path().join("nightly-report"),
        &format!("#!/bin/sh\necho ran >>'{}'\n", ran.display()),
    );
    must(symlink(
        env!("CARGO_BIN_EXE_mongolock"),
        directory.path().join("mongolock"),
    ));
    let (hosts, options) = db.uri().split_once("/?").expect("it has options");
    let path = format!("{}:{}", directory.path().display(), must(env::var("PATH")));
    for _ in 0..3 {
        let mut cron = Command::new(&cron);
        cron.env("PATH", &path)
            .env("MONGODB_URI", format!("{hosts}/{}?{options}", db.name()));
        assert!(must(cron.status()).success());
    }
    assert_eq!(must(fs::read_to_string(&ran)), "ran\n");
}
