//! Another process: this test binary once more, told by its arguments and its environment what to do.

use std::process::Stdio;
use std::time::{Duration, SystemTime};

use mongodb::Database;
use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, TestDb};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::connect;

const URI: &str = "MONGOLOCK_ACTOR_URI";
const DATABASE: &str = "MONGOLOCK_ACTOR_DATABASE";
const EXPIRY: &str = "MONGOLOCK_ACTOR_EXPIRY_MS";
/// Marks the lines that are meant for the parent among those of the test harness.
const MARK: &str = "@ ";

/// A process that plays one of the parts below a `#[tokio::test]`, and says what it goes through: a word, and what
/// belongs to it.
pub(crate) struct Actor {
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Actor {
    /// One that holds the lock `actor`: `held <token>`, then a `step` every 20 ms, then how its call ended.
    pub(crate) fn holder(db: &TestDb, expiry: Duration, environment: &[(&str, String)]) -> Self {
        Self::start("actor::act", db, expiry, environment)
    }

    /// One that plays the part of this name.
    pub(crate) fn start(part: &str, db: &TestDb, expiry: Duration, environment: &[(&str, String)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", part, "--nocapture"])
            .env(URI, db.uri())
            .env(DATABASE, db.name())
            .env(EXPIRY, expiry.as_millis().to_string())
            .envs(environment.iter().map(|(key, value)| (*key, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, orders, lines }
    }

    /// Sends it a line; a part that is stopped finds it when it goes on.
    pub(crate) async fn tell(&mut self, order: &str) {
        let line = format!("{order}\n");
        self.orders.write_all(line.as_bytes()).await.unwrap();
    }

    /// The next word that it says, and what follows it.
    pub(crate) async fn next(&mut self) -> (String, String) {
        loop {
            let line = timeout(AMPLE, self.lines.next_line())
                .await
                .expect("it says something")
                .unwrap();
            let line = line.expect("it has not ended");
            if let Some((_, said)) = line.split_once(MARK) {
                let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
                return (word.to_owned(), rest.to_owned());
            }
        }
    }

    pub(crate) async fn until(&mut self, word: &str) -> String {
        loop {
            let (said, rest) = self.next().await;
            if said == word {
                return rest;
            }
        }
    }

    /// Sends a signal to the process that this test has started.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id().expect("it runs")).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }
}

/// What a process that plays a part was given.
pub(crate) struct Part {
    pub(crate) database: Database,
    pub(crate) expiry: Duration,
}

impl Part {
    /// `None` in the test process itself, which has no part.
    pub(crate) async fn given() -> Option<Self> {
        let uri = std::env::var(URI).ok()?;
        // A stopped process does not see its pipes end. This reaches it: a killed test run leaves nothing behind.
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
        let database = connect(&uri, &std::env::var(DATABASE).unwrap()).await;
        let expiry = Duration::from_millis(std::env::var(EXPIRY).unwrap().parse().unwrap());
        Some(Self { database, expiry })
    }
}

pub(crate) fn say(what: impl std::fmt::Display) {
    println!("{MARK}{what}");
}

/// The next line that this process was told; `None` at the end.
pub(crate) async fn order() -> Option<String> {
    let line = spawn_blocking(|| std::io::stdin().lines().next());
    line.await.unwrap().transpose().unwrap()
}

/// Not a test by itself: what the child process does.
#[tokio::test]
async fn act() {
    let Some(Part { database, expiry }) = Part::given().await else {
        return;
    };
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    say(format_args!("clock {}", clock.as_secs()));
    let provider = LockProvider::new(&database);
    let lock = provider.lock("actor").expiry(expiry).acquire_timeout(AMPLE);
    let ended: Result<(), LockError> = lock
        .run(async |context| {
            say(format_args!("held {}", context.fencing_token()));
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                say("step");
            }
        })
        .await;
    match ended {
        Err(LockError::Lost { token, .. }) => say(format_args!("lost {token}")),
        other => say(format_args!("ended {other:?}")),
    }
}
