//! `run` at a terminal: the foreground, Ctrl-C and Ctrl-Z.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use mongolock_tests::{AMPLE, TestDb, must, test_db};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::fixture::{Running, mongolock};

/// The variable with the path of the terminal, which a program of a test is moved to.
const TERMINAL: &str = "MONGOLOCK_TEST_TERMINAL";
/// The variable with the script that runs there.
const SCRIPT: &str = "MONGOLOCK_TEST_SCRIPT";

/// A terminal, and the shell that runs a script at it.
struct Terminal {
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    shown: String,
    shell: Running,
}

impl Terminal {
    /// Runs a script at a new terminal, as the leader of its session. `ML` is the program with the locks of the test.
    fn run(db: &TestDb, script: &str) -> Self {
        let controller = must(openpt(
            OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC,
        ));
        must(grantpt(&controller));
        must(unlockpt(&controller));
        let name = must(ptsname(&controller, Vec::new()));
        let mut command = Command::new(must(std::env::current_exe()));
        command
            .args(["--exact", "terminal::at_the_terminal", "--nocapture"])
            .env(TERMINAL, must(name.to_str()))
            .env(SCRIPT, script)
            .env("ML", env!("CARGO_BIN_EXE_mongolock"))
            .env("MONGODB_URI", db.uri())
            .env("DB", db.name())
            .env("PS1", "")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let keyboard = File::from(controller);
        let mut reader = must(keyboard.try_clone());
        let (sender, screen) = channel();
        let child = Running::start_in_group_of_parent(command);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // At the end of the session reading fails.
            while let Ok(read) = reader.read(&mut buffer) {
                if read == 0 || sender.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            keyboard,
            screen,
            shown: String::new(),
            shell: child,
        }
    }

    fn type_in(&mut self, text: &str) {
        must(self.keyboard.write_all(text.as_bytes()));
    }

    /// Waits until the screen shows a text after what was waited for before.
    #[track_caller]
    fn until(&mut self, text: &str) {
        let end = Instant::now() + AMPLE;
        loop {
            if let Some(at) = self.shown.find(text) {
                self.shown.drain(..at + text.len());
                return;
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("{text:?} is not shown ({error}): {:?}", self.shown),
            }
        }
    }
}

/// The part of the process at the terminal, and not a test: it becomes the leader of a session, whose terminal is the first
/// one that it opens.
#[test]
fn at_the_terminal() {
    let Some(path) = std::env::var_os(TERMINAL) else {
        return;
    };
    must(rustix::process::setsid());
    let terminal = OwnedFd::from(must(fs::OpenOptions::new().read(true).write(true).open(path)));
    must(dup2_stdin(&terminal));
    must(dup2_stdout(&terminal));
    must(dup2_stderr(&terminal));
    let script = must(std::env::var(SCRIPT));
    let error = if script.is_empty() {
        Command::new("sh").arg("-i").exec()
    } else {
        Command::new("sh").args(["-c", &script]).exec()
    };
    panic!("no shell: {error}");
}

const RUN: &str = r#""$ML" --database "$DB" run a --expiry 5s"#;

#[tokio::test]
async fn the_command_reads_from_the_terminal_and_then_the_shell() {
    let db = test_db().await;
    let script = format!(
        "{RUN} -- sh -c 'echo ready; read x; echo \"command: $x\"'; echo next; read x; echo \"shell: $x\""
    );
    let mut terminal = Terminal::run(&db, &script);
    terminal.until("ready");
    terminal.type_in("one\n");
    terminal.until("command: one");
    terminal.until("next");
    terminal.type_in("two\n");
    terminal.until("shell: two");
    assert_eq!(terminal.shell.code().await, Some(0));
}

#[tokio::test]
async fn the_guardian_gives_the_terminal_back() {
    let db = test_db().await;
    // The shell sees the end of `run` no later than the guardian does. Until then it is in the background, where reading
    // fails.
    let reading = "while ! read x; do sleep 0.1; done; echo \"shell: $x\"";
    let script = format!("{RUN} -- sh -c 'echo ready; kill -9 $PPID; sleep 100'; echo next; {reading}");
    let mut terminal = Terminal::run(&db, &script);
    terminal.until("next");
    terminal.type_in("two\n");
    terminal.until("shell: two");
    assert_eq!(terminal.shell.code().await, Some(0));
}

#[tokio::test]
async fn an_interrupt_ends_the_command_and_the_loop() {
    let db = test_db().await;
    let script = format!("while :; do {RUN} -- sh -c 'echo ready; sleep 100'; done");
    let mut terminal = Terminal::run(&db, &script);
    terminal.until("ready");
    terminal.type_in("\x03");
    assert!(!terminal.shell.ended().await.success());
    assert!(
        !terminal.shown.contains("ready"),
        "the loop has ended: {:?}",
        terminal.shown
    );
}

#[tokio::test]
async fn a_short_stop_keeps_the_lock_and_a_long_one_costs_it() {
    let db = test_db().await;
    let mut terminal = Terminal::run(&db, "");
    terminal.type_in(&format!(
        "{RUN} -- sh -c 'echo re\"\"ady; read x; echo \"command: $x\"'; echo code $?\n"
    ));
    terminal.until("ready");
    terminal.type_in("\x1a");
    // The shell is in the foreground again. What is typed before it says so may be thrown away with the Ctrl-Z.
    terminal.until("Stopped");
    terminal.type_in("echo shell $((1 + 1))\n");
    terminal.until("shell 2");
    terminal.type_in("fg\n");
    terminal.until("run a");
    terminal.type_in("one\n");
    terminal.until("command: one");

    terminal.type_in(&format!(
        // Without `exec` the stop could hit the child of a vfork, and the shell would wait for it without being stopped.
        "{RUN} -- sh -c 'echo re\"\"ady; exec sleep 100'; echo code $?\n"
    ));
    terminal.until("ready");
    terminal.type_in("\x1a");
    terminal.until("Stopped");
    terminal.type_in("echo shell $((1 + 2))\n");
    terminal.until("shell 3");
    // Another one gets the lock, and the first one is told when it continues.
    terminal.type_in("\"$ML\" --database \"$DB\" run a --wait 30s -- echo oth\"\"er\n");
    terminal.until("other");
    terminal.type_in("fg; echo code $?\n");
    terminal.until("code 124");
}

/// In a pipeline the foreground stays with the pager, and the command writes to it.
#[tokio::test]
async fn a_pager_keeps_the_foreground() {
    let db = test_db().await;
    let pager =
        r#"sh -c 'while read -r line; do echo "page: $line"; done; read x </dev/tty; echo "pager: $x"'"#;
    let script = format!("{RUN} -- sh -c 'echo output' | {pager}");
    let mut terminal = Terminal::run(&db, &script);
    terminal.until("page: output");
    terminal.type_in("one\n");
    terminal.until("pager: one");
    assert_eq!(terminal.shell.code().await, Some(0));
}

/// Progress is for people: a pipe gets none of it.
#[tokio::test]
async fn the_wait_is_shown_at_a_terminal_only() {
    let db = test_db().await;
    let provider = crate::fixture::provider(&db).await;
    let provider = must(provider.to_builder().owner("anna").build());
    let _guard = must(provider.lock("a").acquire().await);
    let mut terminal = Terminal::run(&db, &format!("{RUN} --wait 3s -- true; echo code $?"));
    terminal.until("waiting for a");
    terminal.until("held by anna");
    terminal.until("code 75");
    let waiting = mongolock(&db, &["run", "a", "--wait", "1500ms", "--", "true"]);
    let (_, out, said) = crate::fixture::output(waiting);
    assert!(out.is_empty() && !said.contains("waiting for"), "{said}");
}
