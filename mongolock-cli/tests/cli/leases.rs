//! Leases that outlive the program: `acquire`, `extend`, `release --handle`, `run --resume` and `hold`.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use mongodb::bson::DateTime;
use mongolock::{LeaseHandle, LockError, LockInfo, LockProvider, LockState, LossReason};
use mongolock_tests::{AMPLE, TestDb, eventually, must, test_db, until};
use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::{Running, mongolock, output, processes, provider};

/// What the text of each handle begins with, and no output has in it.
const HANDLE: &str = "mlh1.eyJ";

/// The locks of a test, and a directory for the files with handles.
pub(crate) struct Scene {
    pub(crate) db: TestDb,
    pub(crate) provider: LockProvider,
    pub(crate) directory: TempDir,
}

/// What a command has printed, and its exit code.
type Ended = (Option<i32>, String, String);

impl Scene {
    pub(crate) async fn new() -> Self {
        let db = test_db().await;
        let provider = provider(&db).await;
        let directory = must(tempfile::tempdir());
        Self {
            db,
            provider,
            directory,
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The number of files.
    fn files(&self) -> usize {
        must(fs::read_dir(self.directory.path())).count()
    }

    /// The program in the directory of the files. `-v` shows all that it can show of an error.
    pub(crate) fn command(&self, line: &str) -> Command {
        let arguments: Vec<&str> = line.split(' ').collect();
        let mut command = mongolock(&self.db, &[&["-v"], &arguments[..]].concat());
        command.current_dir(self.directory.path());
        command
    }

    fn ran(&self, line: &str) -> Ended {
        ran(self.command(line))
    }

    /// Runs the program, which succeeds, and returns its output.
    fn succeeded(&self, line: &str) -> String {
        let (code, out, said) = self.ran(line);
        assert_eq!((code, said.as_str()), (Some(0), ""), "{line}");
        out
    }

    /// Runs the program, which ends with this code and these words.
    fn fails(&self, line: &str, code: i32, words: &str) -> String {
        let (ended, out, said) = self.ran(line);
        assert!(ended == Some(code) && out.is_empty(), "{line}: {out}{said}");
        assert!(said.contains(words), "{line}: {said}");
        said
    }

    /// Asserts that the lock of this name is released.
    async fn is_released(&self, name: &str) {
        assert_eq!(self.info(name).await.state, LockState::Released);
    }

    /// Asserts that nothing was acquired.
    async fn has_no_document(&self) {
        assert!(must(self.provider.admin().get("a").await).is_none());
    }

    /// Runs a shell script under the lease of a file.
    fn resumed(&self, options: &str, script: &str) -> Ended {
        let mut run = self.command(&format!("run --resume {options} --"));
        run.args(["sh", "-c", script]);
        ran(run)
    }

    pub(crate) fn handle(&self, name: &str) -> LeaseHandle {
        let text = must(fs::read_to_string(self.file(name)));
        let line = text.strip_suffix('\n').expect("it is a line");
        must(line.parse())
    }

    /// Detaches the lease of a lock, as `acquire` does, and writes its handle into a file.
    pub(crate) async fn detach(&self, name: &str, file: &str) {
        let held = must(self.provider.lock(name).acquire().await);
        let handle = must(held.detach(Duration::from_secs(2 * 60 * 60)).await);
        must(fs::write(self.file(file), format!("{}\n", handle.text())));
    }

    async fn info(&self, name: &str) -> LockInfo {
        must(self.provider.admin().get(name).await).expect("it has a document")
    }
}

/// Runs a program. No output has the text of a handle.
fn ran(command: Command) -> Ended {
    let (code, out, said) = output(command);
    assert!(!format!("{out}{said}").contains(HANDLE), "{out}{said}");
    assert!(!said.contains("panicked"), "{said}");
    (code, out, said)
}

fn mode(path: PathBuf) -> u32 {
    must(fs::metadata(path)).permissions().mode() & 0o777
}

#[tokio::test]
async fn a_lease_outlives_acquire_and_is_extended_and_released_by_its_file() {
    let scene = Scene::new().await;
    assert_eq!(scene.succeeded("acquire a --ttl 30m --handle lease"), "");
    assert_eq!(mode(scene.file("lease")), 0o600);
    assert_eq!(scene.handle("lease").names().collect::<Vec<_>>(), ["a"]);
    let info = scene.info("a").await;
    assert!(info.detached && info.state == LockState::Held, "{info:?}");
    let minutes = |number: u64| Duration::from_secs(number * 60);
    let left = info.remaining;
    assert!(left > minutes(28) && left <= minutes(30), "{info:?}");
    assert_eq!(scene.ran("run a --no-wait -- true").0, Some(75));

    let end = scene.succeeded("extend --handle lease --ttl 2h");
    let end = must(DateTime::parse_rfc3339_str(end.trim_end()));
    assert_eq!(end, scene.info("a").await.expires_at);
    let line = scene.succeeded("extend --handle lease --ttl 1s --json");
    let line: Value = must(serde_json::from_str(&line));
    let same = line["expires_at"].as_str().unwrap_or_default();
    let same = must(DateTime::parse_rfc3339_str(same));
    assert_eq!(same, end, "it is never shortened");

    must(fs::copy(scene.file("lease"), scene.file("copy")));
    assert_eq!(scene.succeeded("release --handle lease"), "released a\n");
    assert!(!scene.file("lease").exists());
    scene.is_released("a").await;

    // The handle is used up.
    let over = "mongolock: the detached lease of a has ended, or was resumed\n";
    let said = scene.fails("extend --handle copy --ttl 30m", 124, over);
    assert_eq!(said, over);
    assert!(scene.file("copy").exists());
    let nothing = "nothing released: the detached lease of a";
    scene.fails("release --handle copy", 1, nothing);
    assert!(!scene.file("copy").exists());
    scene.fails("release --handle copy", 1, "copy does not exist");
    for line in ["extend --handle copy --ttl 30m", "run --resume copy -- true"] {
        scene.fails(line, 125, "cannot read copy");
    }
}

#[tokio::test]
async fn a_file_that_exists_is_an_error_before_anything_is_asked() {
    let scene = Scene::new().await;
    must(fs::write(scene.file("lease"), "mine"));
    for path in ["lease", ".", "nowhere/lease"] {
        let acquire = format!("acquire a --ttl 30m --handle {path}");
        let said = scene.fails(&acquire, 125, &format!("cannot create {path}: "));
        let release = "`mongolock release --handle lease --database ";
        assert_eq!(said.contains(release), path == "lease", "{said}");
    }
    assert_eq!(must(fs::read_to_string(scene.file("lease"))), "mine");
    scene.has_no_document().await;
}

#[tokio::test]
async fn a_file_is_removed_if_the_lock_is_not_acquired() {
    let scene = Scene::new().await;
    let _held = must(scene.provider.lock("a").acquire().await);
    for (options, code) in [("--wait 1s", 75), ("--no-wait -E 3", 3)] {
        for line in ["acquire a --ttl 30m --handle lease", "hold a --for 30m"] {
            scene.fails(&format!("{line} {options}"), code, "`a`");
        }
    }
    scene.fails("acquire a b --permits 2 --ttl 30m --handle lease", 125, "");
    assert_eq!(scene.files(), 0);
}

#[tokio::test]
async fn wrong_command_lines_acquire_nothing() {
    let scene = Scene::new().await;
    for (code, line) in [
        (2, "acquire a --ttl 99ms --handle lease"),
        (2, "acquire a --ttl 8d --handle lease"),
        (2, "acquire a --handle lease"),
        (2, "acquire a --ttl 30m"),
        (2, "acquire --ttl 30m --handle lease"),
        (2, "acquire a --ttl 30m --handle lease --owner done:anna"),
        (2, "acquire a --ttl 30m --handle lease --owner="),
        (2, "hold a"),
        (2, "hold --for 30m"),
        (2, "extend --handle lease"),
        (2, "release a --handle lease"),
        (2, "release --owner anna --handle lease"),
        (2, "release --handle lease --all"),
        (125, "run a --resume lease -- true"),
        (125, "run --resume lease --wait 1s -- true"),
        (125, "run --resume lease --permits 2 -- true"),
        (125, "run --resume lease --once-per 1d -- true"),
        (125, "run --resume lease --then-detach 8d -- true"),
        (125, "run --resume - -- true"),
    ] {
        assert!(!scene.fails(line, code, "").is_empty(), "{line}");
    }
    let needs = "--then-detach needs --resume";
    scene.fails("run a --then-detach 30m -- true", 125, needs);
    assert_eq!(scene.files(), 0);
    scene.has_no_document().await;
}

#[tokio::test]
async fn a_text_that_is_no_handle_of_these_locks_is_refused() {
    let scene = Scene::new().await;
    scene.succeeded("acquire a --ttl 30m --handle lease");
    let text = must(fs::read_to_string(scene.file("lease")));
    for wrong in ["\n", "secret", "mlh1.secret", &text[..50]] {
        must(fs::write(scene.file("wrong"), wrong));
        for line in [
            "extend --handle wrong --ttl 30m",
            "release --handle wrong",
            "run --resume wrong -- echo ran",
        ] {
            let said = scene.fails(line, 125, "");
            assert!(!said.is_empty() && !said.contains("secret"), "{said}");
        }
        assert_eq!(must(fs::read_to_string(scene.file("wrong"))), wrong);
    }
    let others = "release --handle lease --collection others";
    scene.fails(others, 125, "the collection of its locks");
    // One changed character of the secret is another handle.
    let mut changed = text.trim_end().to_owned();
    let last = changed.pop();
    changed.push(if last == Some('A') { 'B' } else { 'A' });
    must(fs::write(scene.file("changed"), &changed));
    assert_ne!(scene.ran("run --resume changed -- true").0, Some(0));
    assert!(scene.info("a").await.detached);
    scene.succeeded("release --handle lease");
}

#[tokio::test]
async fn a_handle_goes_through_pipes() {
    let scene = Scene::new().await;
    let (code, text, said) = output(scene.command("acquire a --ttl 30m --handle -"));
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(text.starts_with(HANDLE) && text.lines().count() == 1, "{text}");
    scene.fails("extend --handle - --ttl 2h", 125, "standard input is empty");
    let piped = |line: &str| {
        let (reader, mut writer) = must(std::io::pipe());
        must(writer.write_all(text.as_bytes()));
        drop(writer);
        let mut command = scene.command(line);
        command.stdin(reader);
        let (code, out, _) = output(command);
        (code, out)
    };
    assert_eq!(piped("extend --handle - --ttl 2h").0, Some(0));
    assert_eq!(piped("release --handle -"), (Some(0), "released a\n".to_owned()));
    scene.is_released("a").await;
}

/// The reader of the handle has ended, so nobody could release the lock.
#[tokio::test]
async fn a_handle_without_a_reader_is_released() {
    let scene = Scene::new().await;
    let mut acquire = scene.command("acquire a --ttl 30m --handle -");
    acquire.stdout(Stdio::null());
    let (code, _, said) = output(acquire);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("null device"), "{said}");
    scene.has_no_document().await;

    let (reader, writer) = must(std::io::pipe());
    drop(reader);
    let mut acquire = scene.command("acquire a --ttl 30m --handle -");
    acquire.stdout(writer);
    let (code, _, said) = ran(acquire);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("the lock is released"), "{said}");
    scene.is_released("a").await;
}

#[tokio::test]
async fn a_command_runs_under_a_resumed_lease_and_the_lock_is_released_after_it() {
    let scene = Scene::new().await;
    let shown = r#"echo "$MONGOLOCK_NAME ${MONGOLOCK_TOKEN-none}"; env | grep -c mlh1; exit 3"#;
    scene.succeeded("acquire a --ttl 30m --handle lock");
    let token = scene.handle("lock").fencing_token();
    let (code, out, said) = scene.resumed("lock", shown);
    assert_eq!(code, Some(3), "{said}");
    let risen = scene.info("a").await.fencing_token;
    assert!(risen > token);
    assert_eq!(out, format!("a {risen}\n0\n"));

    scene.succeeded("acquire c b --ttl 30m --handle set");
    let (_, out, _) = scene.resumed("set", shown);
    let token = async |name: &str| scene.info(name).await.fencing_token;
    assert_eq!(out, format!("b,c {},{}\n0\n", token("b").await, token("c").await));

    scene.succeeded("acquire p --permits 1 --ttl 30m --handle permit");
    assert_eq!(scene.ran("run p --permits 1 --no-wait -- true").0, Some(75));
    assert_eq!(scene.resumed("permit", shown).1, "p none\n0\n");
    assert_eq!(scene.ran("run p --permits 1 --no-wait -- true").0, Some(0));
    scene.succeeded("acquire p --permits 1 --ttl 30m --handle permit");
    assert_eq!(scene.succeeded("release --handle permit"), "released p #0\n");
    for name in ["a", "b", "c"] {
        scene.is_released(name).await;
    }
    assert_eq!(scene.files(), 0, "the files are deleted");
}

#[tokio::test]
async fn a_command_is_not_started_if_its_lease_is_over() {
    let scene = Scene::new().await;
    scene.succeeded("acquire a --ttl 30m --handle lease");
    assert!(must(scene.provider.admin().force_release("a").await));
    let before = must(fs::read_to_string(scene.file("lease")));
    for options in ["lease", "lease --then-detach 30m"] {
        let over = "the detached lease of a has ended, or was resumed; the command was not started";
        scene.fails(&format!("run --resume {options} -- echo ran"), 124, over);
    }
    assert_eq!(must(fs::read_to_string(scene.file("lease"))), before);
    // The file is cleared away.
    assert_eq!(scene.ran("release --handle lease").0, Some(1));
    scene.succeeded("acquire a --ttl 30m --handle lease");
}

#[tokio::test]
async fn a_lease_is_detached_again_whatever_the_exit_code() {
    let scene = Scene::new().await;
    scene.succeeded("acquire a --ttl 30m --handle lease --owner deploy-4711");
    assert_eq!(scene.info("a").await.owner.as_deref(), Some("deploy-4711"));
    let ends = [
        ("exit 0", 0),
        ("exit 5", 5),
        ("kill -TERM $$", 143),
        ("exec no-such", 127),
    ];
    for (script, code) in ends {
        let old = scene.handle("lease");
        let (ended, _, said) = scene.resumed("lease --then-detach 2h", script);
        assert_eq!(ended, Some(code), "{said}");
        let new = scene.handle("lease");
        assert!(new != old && mode(scene.file("lease")) == 0o600);
        let gone = scene.provider.resume(&old).await;
        let is_gone = matches!(&gone, Err(LockError::Lost { reason, .. }) if *reason == LossReason::Gone);
        assert!(is_gone, "{gone:?}");
        let info = scene.info("a").await;
        assert!(info.detached, "{info:?}");
        assert!(info.remaining > Duration::from_secs(60 * 60), "{info:?}");
        assert_eq!(info.owner.as_deref(), Some("deploy-4711"));
        assert_eq!(scene.files(), 1);
    }
    // Nobody else has had the lock meanwhile, and the last handle works.
    let resumed = must(scene.provider.resume(&scene.handle("lease")).await);
    must(resumed.release().await);
}

/// The new handle cannot be written, so nobody could release the lock.
#[tokio::test]
async fn a_lease_whose_new_handle_cannot_be_written_is_released() {
    let scene = Scene::new().await;
    must(fs::create_dir(scene.file("d")));
    for (script, code) in [("rm -r d", 125), ("rm -r d; exit 5", 5)] {
        must(fs::create_dir_all(scene.file("d")));
        scene.succeeded("acquire a --ttl 30m --handle d/lease");
        let (ended, _, said) = scene.resumed("d/lease --then-detach 30m", script);
        assert_eq!(ended, Some(code), "{said}");
        let cannot = "cannot replace the handle, so the lock is released: ";
        assert!(said.contains(cannot), "{said}");
        scene.is_released("a").await;
    }
}

/// A file that is mounted, or in a folder that takes no other file, is written in place; what a link leads to is replaced, and not
/// the link.
#[tokio::test]
async fn a_file_that_cannot_be_replaced_is_written_in_place_and_a_link_is_followed() {
    let scene = Scene::new().await;
    scene.succeeded("acquire a --ttl 30m --handle lease");
    must(symlink(scene.file("lease"), scene.file("link")));
    // It is in the way of the new file.
    must(fs::create_dir(scene.file("lease.new")));
    let before = must(fs::read_to_string(scene.file("lease")));
    for _ in 0..2 {
        let (ended, _, said) = scene.resumed("link --then-detach 30m", "true");
        assert_eq!(ended, Some(0), "{said}");
        assert!(must(fs::symlink_metadata(scene.file("link"))).is_symlink());
        let handle = must(fs::read_to_string(scene.file("lease")));
        assert!(handle != before && handle.ends_with('\n'), "{handle}");
        // The second time it is replaced.
        let _ = fs::remove_dir(scene.file("lease.new"));
    }
    assert_eq!(scene.succeeded("release --handle link"), "released a\n");
    scene.is_released("a").await;
}

/// What cannot be written later is found before the lease is resumed.
#[tokio::test]
async fn a_handle_that_no_file_has_is_not_detached_again() {
    let scene = Scene::new().await;
    scene.succeeded("acquire a --ttl 30m --handle lease");
    let held = scene.info("a").await;
    let script =
        r#"mkfifo p; cat lease > p & "$ML" --database "$DB" run --resume p --then-detach 30m -- true"#;
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script])
        .current_dir(scene.directory.path())
        .env("ML", env!("CARGO_BIN_EXE_mongolock"))
        .env("DB", scene.db.name())
        .env("MONGODB_URI", scene.db.uri());
    let (code, _, said) = output(shell);
    assert_eq!(code, Some(125), "{said}");
    let none = "is no file, so the lease was not resumed";
    assert!(said.contains(none), "{said}");
    assert_eq!(scene.info("a").await.fencing_token, held.fencing_token);
    scene.succeeded("release --handle lease");
}

/// What a command does comes first, and the exit code says it.
#[tokio::test]
async fn an_output_that_takes_nothing_changes_only_hold() {
    let scene = Scene::new().await;
    let full = || must(fs::OpenOptions::new().write(true).open("/dev/full"));
    let ran = |line: &str| {
        let mut command = scene.command(line);
        command.stdout(full());
        let (code, _, said) = output(command);
        (code, said)
    };
    let (code, said) = ran("hold a --for 30m");
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("cannot write the output: "), "{said}");
    assert!(said.contains("; a is released"), "{said}");
    scene.is_released("a").await;
    let of_owner = "release --owner anna --yes";
    for release in ["release a --yes", of_owner, "release --handle lease"] {
        scene.succeeded("acquire a --ttl 30m --handle lease --owner anna");
        let (code, said) = ran(release);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(said.matches("cannot write the output: ").count(), 1, "{said}");
        scene.is_released("a").await;
        let _ = fs::remove_file(scene.file("lease"));
    }
}

/// The lock is lost while the command runs, and no handle can bring it back.
#[tokio::test]
async fn a_lost_lease_is_not_detached_again() {
    let scene = Scene::new().await;
    scene.succeeded("acquire a --ttl 30m --handle lease");
    let mut run = scene.command("run --resume lease --expiry 5s --then-detach 30m -- sleep 100");
    run.stderr(Stdio::null());
    let mut running = Running::start(run);
    until("the hold", async || {
        let is_resumed = !scene.info("a").await.detached;
        is_resumed && must(scene.provider.admin().force_release("a").await)
    })
    .await;
    assert_eq!(running.code().await, Some(124));
    scene.is_released("a").await;
    assert_eq!(scene.ran("release --handle lease").0, Some(1));
}

/// Of all processes, which `ps` shows with their arguments.
#[tokio::test]
async fn no_command_line_has_a_handle() {
    let scene = Scene::new().await;
    scene.succeeded("acquire a --ttl 30m --handle lease");
    let mut running = Running::start(scene.command("run --resume lease -- sleep 100"));
    let guardian = running.guardian().await;
    let command = eventually(AMPLE, "the command", || async {
        processes()
            .into_iter()
            .find(|process| process.group == guardian && process.id != guardian)
    });
    must(command.await);
    let text = must(fs::read_to_string(scene.file("lease")));
    for process in processes() {
        let line = fs::read(format!("/proc/{}/cmdline", process.id)).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        assert!(!line.contains(text.trim_end()), "{line}");
    }
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.code().await, Some(143));
}

#[tokio::test]
async fn a_person_holds_a_lock_without_a_process() {
    let scene = Scene::new().await;
    let said = scene.succeeded("hold a --for 30m");
    let info = scene.info("a").await;
    let owner = info.owner.as_deref().unwrap_or_default();
    let (user, host) = owner.split_once('@').expect("it is `user@host`");
    assert!(!user.is_empty() && !host.is_empty() && info.detached, "{info:?}");
    let until = said.trim_end().rsplit_once(" until ");
    let (before, end) = until.expect("it says until when");
    assert_eq!(before, format!("a: held by {owner}"));
    assert_eq!(must(DateTime::parse_rfc3339_str(end)), info.expires_at);
    assert_eq!(scene.ran("hold a --for 30m --no-wait").0, Some(75));
    let released = scene.succeeded("release a --yes");
    assert!(released.contains("detached"), "{released}");
    assert!(released.ends_with("a: released\n"), "{released}");
    scene.is_released("a").await;
    let said = scene.succeeded("hold c b --for 30m");
    assert!(said.starts_with("b, c: held by "), "{said}");
    let said = scene.succeeded("hold p --permits 1 --for 30m");
    assert!(said.starts_with("p #0: held by "), "{said}");
}

#[tokio::test]
async fn operators_see_which_leases_are_detached() {
    let scene = Scene::new().await;
    scene.succeeded("acquire a --ttl 30m --handle lease");
    let _held = must(scene.provider.lock("b").acquire().await);
    let rows = scene.succeeded("ls");
    let states = rows.lines().map(|row| row.split_whitespace().nth(1));
    assert!(states.eq(["STATE", "detached", "held"].map(Some)), "{rows}");
    let shown = scene.succeeded("show a");
    let detached = "\n  detached   yes, no process renews it\n";
    assert!(shown.contains(detached), "{shown}");
    assert!(!scene.succeeded("show b").contains("detached"));
    for (name, wanted) in [("a", Value::Bool(true)), ("b", Value::Null)] {
        let line = scene.succeeded(&format!("show {name} --json"));
        let line: Value = must(serde_json::from_str(&line));
        assert_eq!((&line["detached"], &line["state"]), (&wanted, &"held".into()));
    }
    assert!(scene.succeeded("ls --help").contains("detached"));
    let read_only = Permissions::from_mode(0o400);
    must(fs::set_permissions(scene.file("lease"), read_only));
    scene.succeeded("release --handle lease");
}
