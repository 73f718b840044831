//! Child processes of a test or a benchmark: its own program a second time, which prints lines for its parent.
//!
//! Each line is a word and its details. Steps for the history of the test are lines as well, which are kept.

use std::fmt::Display;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::error::{locked, must};
use crate::history::{Event, History, Step};

/// The prefix of lines for the parent, which distinguishes them from lines of a test harness.
const MARK: &str = "@ ";

/// The word before a step of the history.
const HISTORY: &str = "history";

/// The limit of a wait for a line: 5 min, because a measurement of the benchmark takes 2 min without one.
const LIMIT: Duration = Duration::from_secs(300);

/// A child process. It is killed when this value is dropped.
pub struct Actor {
    child: Child,
    orders: ChildStdin,
    lines: mpsc::UnboundedReceiver<(String, String)>,
    /// The number of the process in histories.
    number: usize,
    /// The steps of the process, and what its parent has done to it.
    events: Arc<Mutex<Vec<Event>>>,
    acquired: watch::Receiver<Duration>,
}

impl Actor {
    /// Starts the process of this command.
    pub fn start(mut command: Command) -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(1);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = must(command.kill_on_drop(true).spawn());
        let orders = child.stdin.take().expect("the input is a pipe");
        let output = child.stdout.take().expect("the output is a pipe");
        let (sender, lines) = mpsc::unbounded_channel();
        let (holds, acquired) = watch::channel(Duration::ZERO);
        let events = Arc::default();
        tokio::spawn(read(output, sender, Arc::clone(&events), holds));
        Self {
            child,
            orders,
            lines,
            number: STARTED.fetch_add(1, Ordering::Relaxed),
            events,
            acquired,
        }
    }

    /// Sends the process a line. A stopped process reads it when it continues.
    pub async fn send(&mut self, order: &str) {
        let line = format!("{order}\n");
        must(self.orders.write_all(line.as_bytes()).await);
    }

    /// The first word of the next line that the process prints, and the rest of the line.
    pub async fn next(&mut self) -> (String, String) {
        let next = self.next_unless_ended().await;
        next.expect("the process has not ended")
    }

    /// [`next`](Self::next) for a process that may end; `None` after its last line.
    pub async fn next_unless_ended(&mut self) -> Option<(String, String)> {
        let next = timeout(LIMIT, self.lines.recv()).await;
        next.expect("the process prints a line")
    }

    /// Waits for a line that begins with this word, and returns the rest of the line.
    pub async fn until(&mut self, word: &str) -> String {
        loop {
            let (said, rest) = self.next().await;
            if said == word {
                return rest;
            }
        }
    }

    /// The id of the process, unless it is known to have ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The time of the last step with which a task of the process has acquired the lock; zero before the first one.
    pub fn acquired(&self) -> watch::Receiver<Duration> {
        self.acquired.clone()
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        let note = |step| locked(&self.events).push(Event::now(0, step));
        match signal {
            Signal::KILL => note(Step::Killed),
            Signal::STOP => note(Step::Stopped),
            _ => {}
        }
        let id = self.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        must(kill_process(id.expect("the process runs"), signal));
        if signal == Signal::CONT {
            note(Step::Continued);
        }
    }

    /// Kills the process if it runs, and adds all that it has done to a history.
    pub async fn tell(mut self, history: &mut History) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::KILL);
        }
        self.end().await;
        let events = std::mem::take(&mut *locked(&self.events));
        for event in events {
            history.add(event.of(self.number));
        }
    }

    /// Waits for the end of the process, which was killed or ends in its own way.
    pub async fn end(&mut self) {
        while self.next_unless_ended().await.is_some() {}
        must(self.child.wait().await);
    }
}

/// Reads the output of a process to its end. A killed process may have written a part of its last line.
async fn read(
    output: ChildStdout,
    lines: mpsc::UnboundedSender<(String, String)>,
    events: Arc<Mutex<Vec<Event>>>,
    acquired: watch::Sender<Duration>,
) {
    let mut output = BufReader::new(output).lines();
    while let Ok(Some(line)) = output.next_line().await {
        let Some((_, said)) = line.split_once(MARK) else {
            continue;
        };
        let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
        if word != HISTORY {
            // The parent may no longer read the lines of a process that goes on.
            let _ = lines.send((word.to_owned(), rest.to_owned()));
        } else if let Ok(event) = serde_json::from_str::<Event>(rest) {
            if let Step::Acquired { .. } = event.step {
                acquired.send_replace(event.at);
            }
            locked(&events).push(event);
        }
    }
}

/// Prints a line for the parent.
pub fn say(what: impl Display) {
    println!("{MARK}{what}");
}

/// Prints a step for the history of the parent.
pub fn tell(event: &Event) {
    say(format_args!("{HISTORY} {}", must(serde_json::to_string(event))));
}

/// The next line from the parent; `None` at the end of the input.
pub async fn order() -> Option<String> {
    let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next());
    must(must(line.await).transpose())
}

/// Ends this process with its parent. A stopped process cannot notice that its pipes are closed, and a killed test run
/// would leave it behind.
pub fn end_with_parent() {
    #[cfg(target_os = "linux")]
    must(rustix::process::set_parent_process_death_signal(Some(
        Signal::KILL,
    )));
}
