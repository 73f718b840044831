//! The ends of `run`: its exit codes, and what the command gets.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mongolock::LockState;
use mongolock_tests::{TestDb, must, test_db};
use rustix::process::geteuid;
use tempfile::tempdir;

use crate::fixture::{Running, at, ends, mongolock, output, owner, provider, state};

/// The user and the group that own nothing.
const NOBODY: u32 = 65534;

fn run(db: &TestDb, options: &[&str], script: &str) -> (Option<i32>, String, String) {
    let arguments = [&["run"], options, &["--", "sh", "-c", script]].concat();
    output(mongolock(db, &arguments))
}

fn code(db: &TestDb, options: &[&str], script: &str) -> Option<i32> {
    run(db, options, script).0
}

#[tokio::test]
async fn the_code_is_that_of_the_command() {
    let db = test_db().await;
    for wanted in [0, 1, 7, 255] {
        assert_eq!(code(&db, &["a"], &format!("exit {wanted}")), Some(wanted));
    }
    assert_eq!(code(&db, &["a"], "kill -TERM $$"), Some(143));
    assert_eq!(code(&db, &["a"], "kill -KILL $$"), Some(137));
    assert_eq!(state(&db, "a").await, LockState::Released);
}

#[tokio::test]
async fn a_command_that_cannot_run_has_the_codes_of_a_shell() {
    let db = test_db().await;
    for (command, code) in [("no-such-command", 127), ("/etc/passwd", 126)] {
        ends(mongolock(&db, &["run", "a", "--", command]), code, command);
    }
    assert_eq!(state(&db, "a").await, LockState::Released);
}

/// A run without a period is refused by the mark of one, and is told of it instead of a lease.
#[tokio::test]
async fn a_mark_is_named_with_the_command_that_clears_it() {
    let db = test_db().await;
    let provider = owner(&db, "anna").await;
    let week = Duration::from_secs(7 * 24 * 60 * 60);
    let mark = must(provider.lock("the job").once_per(week).acquire().await);
    must(mark.done().await);
    let until = must(provider.admin().get("the job").await)
        .expect("it is marked")
        .expires_at;
    let until = must(until.try_to_rfc3339_string());
    let day = until.split('T').next().unwrap_or_default();
    for wait in [&["--no-wait"][..], &["--wait", "5s"]] {
        let (code, out, said) = run(&db, &[&["other", "the job"], wait].concat(), "echo ran");
        assert_eq!((code, out.as_str()), (Some(75), ""), "{said}");
        let marked = format!("lock `the job` is marked as done by anna until {day}");
        assert!(said.contains(&marked), "{said}");
        let clear = format!("mongolock release 'the job' --done --database {}", db.name());
        assert!(said.contains(&clear), "{said}");
    }
    ends(mongolock(&db, &["release", "the job", "--done", "--yes"]), 0, "");
    assert_eq!(code(&db, &["the job", "--no-wait"], "true"), Some(0));
}

#[tokio::test]
async fn one_attempt_names_the_holder() {
    let db = test_db().await;
    let provider = owner(&db, "anna").await;
    let _lock = must(provider.lock("a").acquire().await);
    let _permit = must(provider.semaphore("p", 1).acquire().await);
    let none_free = "no permit of `p` is free (of 1)";
    for (options, wanted) in [
        (&["a", "--no-wait"][..], "lock `a` is busy"),
        (&["b", "a", "--no-wait"], "lock `a` is busy"),
        (&["p", "--permits=1", "--no-wait"], none_free),
    ] {
        let (code, _, said) = run(&db, options, "true");
        let wanted = &format!("{wanted}: the lease of anna runs for ");
        assert!(code == Some(75) && said.contains(wanted), "{options:?}: {said}");
    }
    assert_eq!(code(&db, &["a", "--no-wait", "-E", "3"], "true"), Some(3));
    let begun = Instant::now();
    let (code, out, said) = run(&db, &["a", "--wait", "2s"], "echo ran");
    assert_eq!((code, out.as_str()), (Some(75), ""), "{said}");
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert!(said.contains("`a` not acquired within"), "{said}");
}

#[tokio::test]
async fn own_failures_have_a_code_of_their_own() {
    let db = test_db().await;
    assert_eq!(output(mongolock(&db, &["show", "run", "--bogus"])).0, Some(2));
    for wrong in [
        &["run", "--bogus"][..],
        // Standard input belongs to the command.
        &["run", "a", "--uri-file", "-", "--", "echo", "started"],
        &["run", "a", "--expiry", "4s", "--", "true"],
        &["run", "a"],
        &["run", "--", "true"],
        &["run", "a", "--wait", "soon", "--", "true"],
        &["run", "a", "--permits", "0", "--", "true"],
        &["run", "a", "b", "--permits", "2", "--", "true"],
        &["run", "a", "b", "--once-per", "1d", "--", "true"],
        &["run", "a\nb", "--", "true"],
        &["run", "a", "--database", "a.b", "--", "true"],
    ] {
        let (code, out, said) = output(mongolock(&db, wrong));
        assert_eq!((code, out.as_str()), (Some(125), ""), "{wrong:?}: {said}");
        assert!(!said.is_empty() && !said.contains("panicked"), "{said}");
    }
    let too_long = mongolock(&db, &["run", "a", "--wait", "8d", "--", "true"]);
    ends(too_long, 125, "mongolock: --wait is 691200s: it must be ");
    let nowhere = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200";
    let run = at(nowhere, &db, &["run", "a", "--no-wait", "--", "true"]);
    ends(run, 125, "127.0.0.1:1");
}

#[tokio::test]
async fn the_work_of_a_period_is_done_once() {
    let db = test_db().await;
    let tick = ["nightly", "--once-per", "7d"];
    assert_eq!(code(&db, &tick, "exit 3"), Some(3));
    assert_eq!(state(&db, "nightly").await, LockState::Released);
    assert_eq!(run(&db, &tick, "echo ran").1, "ran\n");
    assert_eq!(state(&db, "nightly").await, LockState::Done);
    let (code, out, said) = run(&db, &tick, "echo ran");
    assert_eq!((code, out.as_str()), (Some(0), ""));
    let begin = "mongolock: the work of lock `nightly` is done by ";
    assert!(said.starts_with(begin) && said.lines().count() == 1, "{said}");
    assert!(said.ends_with("Z; the command was not run\n"), "{said}");
    let no_wait = [&tick[..], &["--no-wait"]].concat();
    assert_eq!(run(&db, &no_wait, "echo ran").0, Some(0));
}

#[tokio::test]
async fn the_command_knows_its_lock() {
    let db = test_db().await;
    let shown = r#"echo "$MONGOLOCK_NAME ${MONGOLOCK_TOKEN-none} $MONGODB_URI""#;
    let (_, one, _) = run(&db, &["a"], shown);
    let token = must(provider(&db).await.admin().get("a").await)
        .expect("it was held")
        .fencing_token;
    assert_eq!(one, format!("a {token} {}\n", db.uri()));

    let (_, several, said) = run(&db, &["b", "a"], shown);
    let words: Vec<&str> = several.split_whitespace().collect();
    assert_eq!(words.first(), Some(&"b,a"), "{several} {said}");
    let admin = provider(&db).await.admin();
    let (a, b) = (must(admin.get("a").await), must(admin.get("b").await));
    let token = |info: Option<mongolock::LockInfo>| info.expect("it was held").fencing_token;
    assert_eq!(words[1], format!("{},{}", token(b), token(a)));

    let mut permit = mongolock(&db, &["run", "c", "--permits", "2", "--", "sh", "-c", shown]);
    permit.env("MONGOLOCK_TOKEN", "17");
    assert_eq!(output(permit).1, format!("c none {}\n", db.uri()));
}

/// A process of another user in the group of the command, which `run` has no right to kill. Only root can make it; others
/// see that the test is skipped.
#[tokio::test]
async fn a_process_that_cannot_be_killed_keeps_the_lock() {
    if !geteuid().is_root() {
        eprintln!("skipped: it takes root to start processes of two users");
        return;
    }
    let db = test_db().await;
    let directory = must(tempdir());
    let readable = |path: &Path| must(fs::set_permissions(path, Permissions::from_mode(0o755)));
    readable(directory.path());
    // The other user may have no access to the directory of the build.
    let program = directory.path().join("mongolock");
    // A process that another test starts meanwhile would inherit the open copy, and a file that is open for writing cannot run:
    // so another process makes the copy.
    let mut copy = Command::new("cp");
    let copied = must(copy.arg(env!("CARGO_BIN_EXE_mongolock")).arg(&program).status());
    assert!(copied.success());
    readable(&program);
    let end = directory.path().join("end");
    let script = format!("until [ -e '{}' ]; do sleep 0.05; done", end.display());
    let mut run = Command::new(&program);
    run.args(["--database", db.name(), "run", "a", "--", "sh", "-c", &script])
        .env("MONGODB_URI", db.uri())
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let mut run = Running::start(run);
    let guardian = run.guardian().await;
    let mut foreign = Command::new("sleep");
    let mut foreign = must(foreign.arg("100").process_group(guardian).spawn());
    must(fs::write(&end, ""));

    assert_eq!(run.code().await, Some(125));
    assert!(must(foreign.try_wait()).is_none(), "it lives");
    let said = run.said();
    let kept = "1 of the command's processes cannot be killed; the lock is not released";
    assert!(said.contains(kept), "{said}");
    assert_eq!(state(&db, "a").await, LockState::Held);
    assert!(must(provider(&db).await.lock("a").try_acquire().await).is_none());
    must(foreign.kill());
    must(foreign.wait());
}
