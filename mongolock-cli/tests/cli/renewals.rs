//! What `run` says before it ends its command: that renewals fail, how much time is left, and why.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use mongolock_tests::{AMPLE, FailPoint, Proxy, TestDb, eventually, locks, must, test_db};
use tempfile::TempDir;

use crate::fixture::{Running, at};

/// The server's code of an error that no driver repeats.
const OPERATION_FAILED: i32 = 96;

/// A `run` whose command waits for a file, and what it has said.
struct Scene {
    db: TestDb,
    proxy: Proxy,
    directory: TempDir,
    run: Running,
}

impl Scene {
    /// Starts the command under a lease of 12 s, on a machine that may be slow.
    async fn start() -> Self {
        let db = test_db().await;
        let proxy = must(db.proxy().await);
        let directory = must(tempfile::tempdir());
        let file = |name: &str| directory.path().join(name);
        let script = format!(
            "touch '{}'; until [ -e '{}' ]; do sleep 0.05; done",
            file("begun").display(),
            file("end").display()
        );
        let mut run = at(
            &proxy.uri(),
            &db,
            &[
                "run", "a", "--wait", "60s", "--expiry", "12s", "--", "sh", "-c", &script,
            ],
        );
        run.stdout(Stdio::null()).stderr(must(File::create(file("said"))));
        let scene = Self {
            run: Running::start(run),
            db,
            proxy,
            directory,
        };
        let begun = scene.file("begun");
        let begun = || async { begun.exists().then_some(()) };
        must(eventually(AMPLE, "the command", begun).await);
        scene
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn said(&self) -> String {
        must(fs::read_to_string(self.file("said")))
    }

    async fn until_said(&self, text: &str) -> String {
        let said = eventually(AMPLE, text, || async {
            let said = self.said();
            said.contains(text).then_some(said)
        });
        must(said.await)
    }
}

/// The seconds that are left by a line that says them.
fn left(said: &str) -> f64 {
    let (before, _) = said.split_once("s left").expect("it says what is left");
    let number = before.rsplit(' ').next().unwrap_or_default();
    must(number.parse())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_cut_is_told_before_the_command_ends() {
    let mut scene = Scene::start().await;
    scene.proxy.freeze();
    let said = scene.until_said("renewal failed, ").await;
    assert!(!scene.run.has_ended(), "it is told in time: {said}");
    assert!((2.0..10.0).contains(&left(&said)), "{said}");
    assert_eq!(scene.run.code().await, Some(124));
    let said = scene.said();
    let lines: Vec<&str> = said.lines().collect();
    let [.., ends, lost] = lines[..] else {
        panic!("two lines at least: {said}")
    };
    assert!(
        ends.contains("the lock was not renewed, ") && ends.ends_with("s left: the command is ended"),
        "{said}"
    );
    assert!(
        left(ends) <= 2.1,
        "SIGTERM is sent a sixth of the expiry before the end: {said}"
    );
    assert!(
        lost.contains("the lock was lost, and the command was ended"),
        "{said}"
    );
}

/// Each reason is told once, and so is the end of the trouble.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_renewal_is_told_with_the_reason() {
    let mut scene = Scene::start().await;
    let failing = FailPoint::on(&["update"]).always().error_code(OPERATION_FAILED);
    let namespace = locks(scene.db.database()).namespace().to_string();
    let failing = must(failing.collection(&namespace).enable(scene.db.uri()).await);
    let said = scene.until_said("renewal failed, ").await;
    assert!(said.contains("error 96, OperationFailed"), "{said}");
    must(failing.clear().await);
    scene.until_said("the lock is renewed again").await;
    // A whole lease later nothing else was said.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let said = scene.said();
    assert_eq!(said.lines().count(), 2, "{said}");
    must(fs::write(scene.file("end"), ""));
    assert_eq!(scene.run.code().await, Some(0));
}
