//! A `run` whose command ends when the test wants it.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;

use mongolock_tests::{
    AMPLE, FailPoint, FailPointGuard, Proxy, TestDb, eventually, locks, must, test_db, until,
};
use tempfile::TempDir;

use crate::fixture::{Running, at};

/// A `run` whose command waits for a file, and what it has said.
pub(crate) struct Scene {
    pub(crate) db: TestDb,
    pub(crate) proxy: Proxy,
    directory: TempDir,
    pub(crate) run: Running,
}

impl Scene {
    /// Starts the command with these options; it ends with this code.
    pub(crate) async fn start(options: &[&str], code: i32) -> Self {
        Self::start_in(test_db().await, options, code).await
    }

    /// The same on the locks of a test.
    pub(crate) async fn start_in(db: TestDb, options: &[&str], code: i32) -> Self {
        let proxy = must(db.proxy().await);
        let directory = must(tempfile::tempdir());
        let file = |name: &str| directory.path().join(name);
        let script = format!(
            "touch '{}'; until [ -e '{}' ]; do sleep 0.05; done; exit {code}",
            file("begun").display(),
            file("end").display()
        );
        let command = ["--", "sh", "-c", &script];
        let mut run = at(&proxy.uri(), &db, &[&["run"], options, &command].concat());
        run.stdout(Stdio::null()).stderr(must(File::create(file("said"))));
        let scene = Self {
            run: Running::start(run),
            db,
            proxy,
            directory,
        };
        let begun = scene.file("begun");
        until("the command", async || begun.exists()).await;
        scene
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Has the command end.
    pub(crate) fn end(&self) {
        must(fs::write(self.file("end"), ""));
    }

    /// Has the server refuse what the program does with its claim.
    pub(crate) async fn refuse(&self, code: i32) -> FailPointGuard {
        let refusing = FailPoint::on(&["findAndModify"]).always().error_code(code);
        let namespace = locks(self.db.database()).namespace().to_string();
        must(refusing.collection(&namespace).enable(self.db.uri()).await)
    }

    pub(crate) fn said(&self) -> String {
        must(fs::read_to_string(self.file("said")))
    }

    pub(crate) async fn until_said(&self, text: &str) -> String {
        let said = eventually(AMPLE, text, || async {
            let said = self.said();
            said.contains(text).then_some(said)
        });
        must(said.await)
    }
}
