//! The scripts of the guide, as they stand there.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use mongolock::LockState;
use mongolock_tests::{must, test_db};

use crate::fixture::provider;

/// The script of the page with this number.
fn script(number: usize) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mongolock/src/guide/jobs.md");
    let page = must(fs::read_to_string(page));
    let rest = page
        .split("```sh\n")
        .nth(number)
        .expect("the page has the script");
    let (script, _) = rest.split_once("```").expect("the script ends");
    script.to_owned()
}

fn executable(path: &Path, text: &str) {
    must(fs::write(path, text));
    must(fs::set_permissions(path, fs::Permissions::from_mode(0o755)));
}

#[tokio::test]
async fn the_cron_script_of_the_guide_runs_once() {
    let script = script(1);
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

/// The lock is held from the first step to the last, and then it is free.
#[tokio::test]
async fn the_steps_of_the_guide_keep_one_lock() {
    let db = test_db().await;
    let directory = must(tempfile::tempdir());
    executable(&directory.path().join("pipeline"), &script(2));
    for step in ["build", "deploy"] {
        let text = format!(
            "#!/bin/sh\necho {step} >>ran\nmongolock show \"$MONGOLOCK_NAME\" | grep -c 'state *held' >>ran\n"
        );
        executable(&directory.path().join(step), &text);
    }
    must(symlink(
        env!("CARGO_BIN_EXE_mongolock"),
        directory.path().join("mongolock"),
    ));
    let (hosts, options) = db.uri().split_once("/?").expect("it has options");
    let path = format!("{}:{}", directory.path().display(), must(env::var("PATH")));
    let mut pipeline = Command::new("sh");
    pipeline
        .arg("pipeline")
        .current_dir(directory.path())
        .env("PATH", &path)
        .env("MONGODB_URI", format!("{hosts}/{}?{options}", db.name()));
    assert!(must(pipeline.status()).success());
    let ran = must(fs::read_to_string(directory.path().join("ran")));
    assert_eq!(ran, "build\n1\ndeploy\n1\n");
    assert!(!directory.path().join("lease").exists());
    let info = must(provider(&db).await.admin().get("deploy:web").await);
    assert_eq!(info.map(|info| info.state), Some(LockState::Released));
}
