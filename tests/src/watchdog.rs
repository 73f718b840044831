//! A shell process for each server, which kills the server and removes its directory when this process has ended, also
//! when this process was killed.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::error::{SupportError, locked};

/// The script that the watchdog runs.
const SCRIPT: &str = include_str!("watchdog.sh");
/// The time that the drop of a server waits for the watchdog to end: it kills `mongod` and removes its directory.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(10);

/// The last state that the watchdog has reported.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Starting,
    Running(u32),
    Exited(i32),
    /// The watchdog itself has ended; the text is its last message.
    Gone(String),
}

/// The handle of a watchdog. It holds the only write end of a pipe: when this process ends, the watchdog reads the end
/// of the file and cleans up.
#[derive(Debug)]
pub(crate) struct Watchdog {
    child: Child,
    commands: Mutex<Option<ChildStdin>>,
    state: watch::Receiver<State>,
}

impl Watchdog {
    pub(crate) fn start(directory: &Path, key: &str, command: Vec<OsString>) -> Result<Self, SupportError> {
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, "mongolock-watchdog"])
            .arg(directory)
            .arg(key)
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .current_dir("/")
            // Ctrl-C goes to the whole group of the test process; the watchdog must outlive that.
            .process_group(0)
            .spawn()
            .map_err(SupportError::at("cannot run sh, which supervises mongod"))?;
        let (sender, state) = watch::channel(State::Starting);
        let commands = Mutex::new(child.stdin.take());
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || listen(output, &sender));
        }
        Ok(Self {
            child,
            commands,
            state,
        })
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Waits until the watchdog reports a state that `wanted` accepts, or has ended.
    pub(crate) async fn reaches(&self, wanted: impl Fn(&State) -> bool) {
        let mut state = self.state.clone();
        let reached = |state: &State| wanted(state) || matches!(state, State::Gone(_));
        // Nothing is sent any more when the watchdog has ended.
        let _ = state.wait_for(reached).await;
    }

    /// Starts the server again after it has ended.
    pub(crate) fn start_again(&self) -> Result<(), SupportError> {
        let mut commands = locked(&self.commands);
        let pipe = commands
            .as_mut()
            .ok_or_else(|| std::io::Error::other("the watchdog was dismissed"));
        pipe.and_then(|pipe| pipe.write_all(b"start\n"))
            .map_err(SupportError::at("restart of mongod"))
    }

    /// Makes the watchdog begin to clean up; dropping waits for the end.
    pub(crate) fn dismiss(&self) {
        locked(&self.commands).take();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.dismiss();
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && started.elapsed() < CLEAN_UP_LIMIT {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn listen(output: ChildStdout, state: &watch::Sender<State>) {
    let mut said = String::new();
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if let Some(new) = parse(&line) {
            state.send_replace(new);
        } else {
            said = line;
        }
    }
    state.send_replace(State::Gone(said));
}

fn parse(line: &str) -> Option<State> {
    match line.split_once(' ')? {
        ("started", pid) => pid.parse().ok().map(State::Running),
        ("exited", status) => status.parse().ok().map(State::Exited),
        _ => None,
    }
}
