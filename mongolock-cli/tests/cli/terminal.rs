//! `run` at a terminal: the foreground, Ctrl-C and Ctrl-Z.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use mongolock::LockState;
use mongolock_tests::{AMPLE, TestDb, must, test_db, until};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::fixture::{Running, mongolock, output, owner, state};

/// The variable with the path of the terminal, which a program of a test is moved to.
const TERMINAL: &str = "MONGOLOCK_TEST_TERMINAL";
/// The variable with the script that runs there.
const SCRIPT: &str = "MONGOLOCK_TEST_SCRIPT";

/// The size of a terminal of these tests.
const SIZE: Winsize = Winsize {
    ws_row: 24,
    ws_col: 100,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// A terminal, and the shell that runs a script at it.
pub(crate) struct Terminal {
    keyboard: File,
    output: Receiver<Vec<u8>>,
    /// What was written to it after what was waited for.
    shown: String,
    pub(crate) shell: Running,
}

impl Terminal {
    /// Runs a script at a new terminal, as the leader of its session. `ML` is the program with the locks of the test.
    pub(crate) fn run(db: &TestDb, script: &str) -> Self {
        let controller = must(openpt(
            OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC,
        ));
        must(grantpt(&controller));
        must(unlockpt(&controller));
        must(tcsetwinsize(&controller, SIZE));
        let name = must(ptsname(&controller, Vec::new()));
        let mut command = Command::new(must(std::env::current_exe()));
        command
            .args(["--exact", "terminal::at_the_terminal", "--nocapture"])
            .env(TERMINAL, must(name.to_str()))
            .env(SCRIPT, script)
            .env("ML", env!("CARGO_BIN_EXE_mongolock"))
            .env("MONGODB_URI", db.uri())
            .env("TERM", "xterm")
            .env("DB", db.name())
            .env("PS1", "")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let keyboard = File::from(controller);
        let mut reader = must(keyboard.try_clone());
        let (sender, output) = channel();
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
            output,
            shown: String::new(),
            shell: child,
        }
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        must(self.keyboard.write_all(text.as_bytes()));
    }

    /// Waits until a text is written after what was waited for before, and returns all that was written since, up to its end.
    #[track_caller]
    pub(crate) fn until(&mut self, text: &str) -> String {
        let end = Instant::now() + AMPLE;
        loop {
            if let Some(at) = self.shown.find(text) {
                return self.shown.drain(..at + text.len()).collect();
            }
            if let Err(error) = self.read_until(end) {
                panic!("{text:?} is not shown ({error}): {:?}", self.shown);
            }
        }
    }

    fn read_until(&mut self, end: Instant) -> Result<(), RecvTimeoutError> {
        let left = end.saturating_duration_since(Instant::now());
        let bytes = self.output.recv_timeout(left)?;
        self.shown.push_str(&String::from_utf8_lossy(&bytes));
        Ok(())
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

/// A command at the terminal. A script must `exec` its last program: a shell that gets a signal between vfork and exec may
/// lose an interrupt, and waits for its stopped child without being stopped.
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
    let script = format!("while :; do {RUN} -- sh -c 'echo ready; exec sleep 100'; done");
    let mut terminal = Terminal::run(&db, &script);
    terminal.until("ready");
    terminal.type_in("\x03");
    assert!(!terminal.shell.ended().await.success());
    let shown = &terminal.shown;
    assert!(!shown.contains("ready"), "the loop has ended: {shown:?}");
}

#[tokio::test]
async fn a_short_stop_keeps_the_lock_and_a_long_one_costs_it() {
    let db = test_db().await;
    let mut terminal = Terminal::run(&db, "");
    let line = format!("{RUN} -- sh -c 'echo re\"\"ady; read x; echo \"command: $x\"'; echo code $?\n");
    terminal.type_in(&line);
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

    let line = format!("{RUN} -- sh -c 'echo re\"\"ady; exec sleep 100'; echo code $?\n");
    terminal.type_in(&line);
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

/// A command outside the foreground is stopped when it reads from the terminal. Somebody is told, and Ctrl-C ends it.
#[tokio::test]
async fn a_command_that_may_not_read_is_told_and_can_be_interrupted() {
    let db = test_db().await;
    let script = format!("{RUN} -- sh -c 'read x </dev/tty; echo read' | cat");
    let mut terminal = Terminal::run(&db, &script);
    terminal.until("the command was stopped, and keeps the lock");
    terminal.type_in("\x03");
    assert!(!terminal.shell.ended().await.success());
    let released = async || state(&db, "a").await == LockState::Released;
    until("the release", released).await;
}

/// A person learns of a wait after a second, and a log after five.
#[tokio::test]
async fn the_wait_is_said_soon_at_a_terminal() {
    let db = test_db().await;
    let provider = owner(&db, "anna").await;
    let _guard = must(provider.lock("a").acquire().await);
    let mut terminal = Terminal::run(&db, &format!("{RUN} --wait 3s -- true; echo code $?"));
    terminal.until("waiting for a");
    terminal.until("held by anna");
    terminal.until("code 75");
    let waiting = mongolock(&db, &["run", "a", "--wait", "1500ms", "--", "true"]);
    let (_, out, said) = output(waiting);
    assert!(out.is_empty() && !said.contains("waiting for"), "{said}");
}

/// A person who sees no locks may look at the wrong database.
#[tokio::test]
async fn an_empty_list_names_its_place() {
    let db = test_db().await;
    let ls = r#""$ML" --database "$DB" ls"#;
    let script = format!("{ls}; {ls} --held --collection other; {ls} --json; echo end");
    let mut terminal = Terminal::run(&db, &script);
    terminal.until(&format!("no locks in {}.distributed_locks\r\n", db.name()));
    terminal.until(&format!("no such locks in {}.other\r\nend", db.name()));
    let piped = output(mongolock(&db, &["ls"]));
    let place = format!("mongolock: no locks in {}.distributed_locks\n", db.name());
    assert_eq!(piped, (Some(0), String::new(), place));
}

/// A person is asked, and only a yes releases.
#[tokio::test]
async fn release_asks_at_a_terminal() {
    let db = test_db().await;
    // A holder sees at its next renewal that its lock was released.
    let builder = owner(&db, "anna").await.to_builder();
    let provider = must(builder.renew_interval(Duration::from_secs(2)).build());
    let held = [
        must(provider.lock("a").acquire().await),
        must(provider.lock("b").acquire().await),
        must(provider.lock("c").acquire().await),
    ];
    let release = r#""$ML" --database "$DB" release"#;
    let script = format!(
        "{release} a; echo code $?; {release} a; echo code $?; {release} b --yes; echo code $?; \
         {release} --owner anna; echo code $?"
    );
    let mut terminal = Terminal::run(&db, &script);
    terminal.until("a: held by anna");
    terminal.until("release it? [y/N] ");
    terminal.type_in("\n");
    terminal.until("nothing released");
    terminal.until("code 1");
    terminal.until("release it? [y/N] ");
    let seen = must(provider.admin().get("a").await).map(|info| info.state);
    assert_eq!(seen, Some(LockState::Held), "the empty answer is a no");
    terminal.type_in("y\n");
    terminal.until("a: released");
    terminal.until("code 0");
    held[0].lost().await;
    // Nothing is asked.
    terminal.until("b: released");
    terminal.until("code 0");
    terminal.until("release all locks of anna? [y/N] ");
    terminal.type_in("yes\n");
    terminal.until("released 1 lock of anna");
    terminal.until("code 0");
    held[2].lost().await;
    assert_eq!(terminal.shell.code().await, Some(0));
}
