//! The scripts of the guide, as they stand there.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use mongolock::LockState;
use mongolock_tests::{TestDb, must, test_db};
use tempfile::TempDir;

use crate::fixture::state;

/// The script of the page with this number.
fn script(number: usize) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mongolock/src/guide/jobs.md");
    let page = must(fs::read_to_string(page));
    let rest = page.split("```sh\n").nth(number);
    let rest = rest.expect("the page has the script");
    let (script, _) = rest.split_once("```").expect("the script ends");
    script.to_owned()
}

/// A directory with programs, and the locks that they use.
struct Scene {
    db: TestDb,
    directory: TempDir,
}

impl Scene {
    /// `mongolock` and these other programs.
    async fn new(programs: &[(&str, &str)]) -> Self {
        let (db, directory) = (test_db().await, must(tempfile::tempdir()));
        for (name, text) in programs {
            let file = directory.path().join(name);
            must(fs::write(&file, text));
            must(fs::set_permissions(file, fs::Permissions::from_mode(0o755)));
        }
        let program = directory.path().join("mongolock");
        must(symlink(env!("CARGO_BIN_EXE_mongolock"), program));
        Self { db, directory }
    }

    /// Runs a program, which succeeds.
    fn run(&self, mut program: Command) {
        let (hosts, options) = self.db.uri().split_once("/?").expect("it has options");
        let directory = self.directory.path();
        program
            .current_dir(directory)
            .env(
                "PATH",
                format!("{}:{}", directory.display(), must(env::var("PATH"))),
            )
            .env("MONGODB_URI", format!("{hosts}/{}?{options}", self.db.name()));
        assert!(must(program.status()).success());
    }

    /// What the programs have written.
    fn ran(&self) -> String {
        must(fs::read_to_string(self.directory.path().join("ran")))
    }
}

#[tokio::test]
async fn the_cron_script_of_the_guide_runs_once() {
    let script = script(1);
    assert_eq!(script.lines().count(), 2, "{script}");
    let report = ("nightly-report", "#!/bin/sh\necho ran >>ran\n");
    let scene = Scene::new(&[("cron", &script), report]).await;
    for _ in 0..3 {
        scene.run(Command::new(scene.directory.path().join("cron")));
    }
    assert_eq!(scene.ran(), "ran\n");
}

/// The lock is held from the first step to the last, and then it is free.
#[tokio::test]
async fn the_steps_of_the_guide_keep_one_lock() {
    let note = "mongolock show \"$MONGOLOCK_NAME\" | grep -c 'state *held' >>ran";
    let step = |name: &str| format!("#!/bin/sh\necho {name} >>ran\n{note}\n");
    let (pipeline, build, deploy) = (script(2), step("build"), step("deploy"));
    let steps = [("pipeline", &*pipeline), ("build", &build), ("deploy", &deploy)];
    let scene = Scene::new(&steps).await;
    let mut shell = Command::new("sh");
    shell.arg("pipeline");
    scene.run(shell);
    assert_eq!(scene.ran(), "build\n1\ndeploy\n1\n");
    assert!(!scene.directory.path().join("lease").exists());
    assert_eq!(state(&scene.db, "deploy:web").await, LockState::Released);
}
