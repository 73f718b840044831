//! `run` as the first process of a PID namespace: the ids in `/proc`, and its own group and session, are outside of it.

use std::process::{Command, Stdio};

use mongolock::LockState;
use mongolock_tests::{BEFORE_EXPIRY, TestDb, eventually, must, test_db, until};
use rustix::process::Signal;

use crate::fixture::{Running, mongolock, output, processes, send, state};
use crate::records::Records;

/// Whether this user may make PID namespaces; others see that a test is skipped.
fn is_possible() -> bool {
    let made = Command::new("unshare").args(["-pf", "true"]).output();
    let is_possible = made.is_ok_and(|made| made.status.success());
    if !is_possible {
        eprintln!("skipped: it takes the right to make PID namespaces");
    }
    is_possible
}

/// `mongolock` with these arguments, as the first process of a namespace whose `/proc` is that of the tests.
fn inside(db: &TestDb, arguments: &[&str]) -> Command {
    let program = mongolock(db, arguments);
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--kill-child"])
        .arg(program.get_program())
        .args(program.get_args())
        .envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))))
        .stdin(Stdio::null());
    command
}

/// The rest of the group is found, although `/proc` has other ids: the lock is released when the last process has ended.
/// In two namespaces side by side the processes have the same ids.
#[tokio::test]
async fn a_child_of_the_command_is_left() {
    if !is_possible() {
        return;
    }
    let scenes = [test_db().await, test_db().await];
    let mut first = Vec::new();
    for db in &scenes {
        let records = Records::new();
        let ended = records.file("ended");
        let file = ended.display();
        let body = format!("(trap 'sleep 1; echo >{file}; exit' TERM; recording -1) & sleep 0.2; exit 3");
        let script = records.script(&body);
        let mut run = inside(db, &["run", "job", "--", "sh", "-c", &script]);
        run.stderr(Stdio::piped());
        first.push((Running::start(run), records));
    }
    for (db, (run, records)) in scenes.iter().zip(&mut first) {
        records.until_begun(0).await;
        let script = records.script("recording 5");
        let second = ["run", "job", "--wait", "50s", "--", "sh", "-c", &script];
        assert_eq!(output(mongolock(db, &second)).0, Some(0));
        assert_eq!(run.code().await, Some(3), "{}", run.said());
        records.assert_one_at_a_time(2);
        assert!(records.file("ended").exists(), "SIGTERM comes before SIGKILL");
    }
}

/// The first process of a namespace is not ended by its own signals: a shell sees the code.
#[tokio::test]
async fn an_interrupt_ends_the_command() {
    if !is_possible() {
        return;
    }
    let db = test_db().await;
    let records = Records::new();
    let script = records.script("recording -1");
    let mut first = Running::start(inside(&db, &["run", "a", "--", "sh", "-c", &script]));
    records.until_begun(0).await;
    let unshare = first.id();
    let child = eventually(BEFORE_EXPIRY, "the program in the namespace", || async move {
        let all = processes();
        let found = all.iter().find(|process| process.parent == unshare);
        found.map(|process| process.id)
    });
    send(must(child.await), Signal::INT);
    assert_eq!(first.code().await, Some(130));
    let released = async || state(&db, "a").await == LockState::Released;
    until("the release", released).await;
}
