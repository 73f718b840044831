//! Another process: this test binary once more, told by its environment what to do.

use std::process::Stdio;
use std::time::{Duration, SystemTime};

use mongolock::{LockError, LockProvider};
use mongolock_tests::TestDb;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::{AMPLE, connect};

const URI: &str = "MONGOLOCK_ACTOR_URI";
const DATABASE: &str = "MONGOLOCK_ACTOR_DATABASE";
const EXPIRY: &str = "MONGOLOCK_ACTOR_EXPIRY_MS";
/// Marks the lines that are meant for the parent among those of the test harness.
const MARK: &str = "@ ";

/// A process that holds the lock `actor` and says what it goes through: `held <token>`, then a `step` every 20 ms, then
/// how its call ended.
pub(crate) struct Actor {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Actor {
    pub(crate) fn start(db: &TestDb, expiry: Duration, environment: &[(&str, String)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "actor::act", "--nocapture"])
            .env(URI, db.uri())
            .env(DATABASE, db.name())
            .env(EXPIRY, expiry.as_millis().to_string())
            .envs(environment.iter().map(|(key, value)| (*key, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
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

fn say(what: impl std::fmt::Display) {
    println!("{MARK}{what}");
}

/// Not a test by itself: what the child process does.
#[tokio::test]
async fn act() {
    let Ok(uri) = std::env::var(URI) else { return };
    let database = std::env::var(DATABASE).unwrap();
    let expiry = Duration::from_millis(std::env::var(EXPIRY).unwrap().parse().unwrap());
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    say(format_args!("clock {}", clock.as_secs()));
    let provider = LockProvider::new(&connect(&uri, &database).await);
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
