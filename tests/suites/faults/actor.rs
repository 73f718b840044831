//! A child process: this test binary runs a second time, and its arguments and environment select the part that it
//! runs.

use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use mongodb::Database;
use mongolock::{LockContext, LockError, LockProvider};
use mongolock_tests::{AMPLE, Event, History, Step, TestDb};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::connect;
use crate::noted::{WORD, acquired, ended, tell};

/// The environment variable with the connection string.
const URI: &str = "MONGOLOCK_ACTOR_URI";
/// The environment variable with the name of the database.
const DATABASE: &str = "MONGOLOCK_ACTOR_DATABASE";
/// The environment variable with the expiry in milliseconds.
const EXPIRY: &str = "MONGOLOCK_ACTOR_EXPIRY_MS";
/// The prefix of lines for the parent, which distinguishes them from lines of the test harness.
const MARK: &str = "@ ";

/// A child process that runs one of the parts below a `#[tokio::test]`, and prints its steps: each line is a word and
/// its details. Lines for the history of the test are kept, and not returned as lines.
pub(crate) struct Actor {
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// The number of the process in histories.
    number: usize,
    /// The steps of the process, and what this test has done to it.
    events: Mutex<Vec<Event>>,
}

impl Actor {
    /// Starts a process that holds the lock `actor`. It prints `held <token>`, then `step` every 20 ms, then how its
    /// call ended.
    pub(crate) fn holder(db: &TestDb, expiry: Duration, environment: &[(&str, String)]) -> Self {
        Self::start("actor::act", db, expiry, environment)
    }

    /// Starts a process that runs the part of this name, which is a test function of this binary.
    pub(crate) fn start(part: &str, db: &TestDb, expiry: Duration, environment: &[(&str, String)]) -> Self {
        let mut command = command(part, db, expiry);
        command.envs(environment.iter().map(|(key, value)| (*key, value)));
        Self::spawn(command)
    }

    /// Starts a process that runs this part on the database of this name.
    pub(crate) fn at(
        part: &str,
        uri: &str,
        database: &str,
        expiry: Duration,
        environment: &[(&str, String)],
    ) -> Self {
        let mut command = command_at(part, uri, database, expiry);
        command.envs(environment.iter().map(|(key, value)| (*key, value)));
        Self::spawn(command)
    }

    /// Starts the process of this command, which prints its steps as the parts below do.
    fn spawn(mut command: Command) -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(1);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            orders,
            lines,
            number: STARTED.fetch_add(1, Ordering::Relaxed),
            events: Mutex::default(),
        }
    }

    /// Sends the process a line. A stopped process reads it when it continues.
    pub(crate) async fn send(&mut self, order: &str) {
        let line = format!("{order}\n");
        self.orders.write_all(line.as_bytes()).await.unwrap();
    }

    /// The first word of the next line that the process prints, and the rest of the line.
    pub(crate) async fn next(&mut self) -> (String, String) {
        let next = self.next_unless_ended().await;
        next.expect("the process has not ended")
    }

    /// [`next`](Self::next) for a process that may end; `None` after its last line.
    pub(crate) async fn next_unless_ended(&mut self) -> Option<(String, String)> {
        loop {
            let line = timeout(AMPLE, self.lines.next_line())
                .await
                .expect("the process prints a line")
                .unwrap();
            if let Some((_, said)) = line?.split_once(MARK) {
                let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
                if word != WORD {
                    return Some((word.to_owned(), rest.to_owned()));
                }
                // A killed process may have written a part of its last line.
                if let Ok(event) = serde_json::from_str::<Event>(rest) {
                    self.events().push(event.of(self.number));
                }
            }
        }
    }

    /// Waits for a line that begins with this word, and returns the rest of the line.
    pub(crate) async fn until(&mut self, word: &str) -> String {
        loop {
            let (said, rest) = self.next().await;
            if said == word {
                return rest;
            }
        }
    }

    /// The id of the process, unless it is known to have ended.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) {
        let note = |step| self.events().push(Event::now(0, step).of(self.number));
        match signal {
            Signal::KILL => note(Step::Killed),
            Signal::STOP => note(Step::Stopped),
            _ => {}
        }
        let id = i32::try_from(self.child.id().expect("the process runs")).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
        if signal == Signal::CONT {
            note(Step::Continued);
        }
    }

    /// Adds what the process has done so far to a history, as far as its lines were read.
    pub(crate) fn tell_so_far(&self, history: &mut History) {
        self.events().drain(..).for_each(|event| history.add(event));
    }

    /// Kills the process if it runs, and adds all that it has done to a history.
    pub(crate) async fn tell(mut self, history: &mut History) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::KILL);
        }
        while self.next_unless_ended().await.is_some() {}
        self.tell_so_far(history);
    }

    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The command for a process that runs the part of this name, which is a test function of this binary.
pub(crate) fn command(part: &str, db: &TestDb, expiry: Duration) -> Command {
    command_at(part, db.uri(), db.name(), expiry)
}

fn command_at(part: &str, uri: &str, database: &str, expiry: Duration) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", part, "--nocapture"])
        .env(URI, uri)
        .env(DATABASE, database)
        .env(EXPIRY, expiry.as_millis().to_string())
        .kill_on_drop(true);
    command
}

/// The database and the expiry that a process gets from the test.
pub(crate) struct Part {
    pub(crate) database: Database,
    pub(crate) expiry: Duration,
}

impl Part {
    /// The values from the environment; `None` in the test process itself, which runs no part.
    pub(crate) async fn given() -> Option<Self> {
        let uri = std::env::var(URI).ok()?;
        // A stopped process cannot notice that its pipes are closed. This signal ends it, so that a killed test run
        // leaves no process behind.
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
        let database = connect(&uri, &std::env::var(DATABASE).unwrap()).await;
        let expiry = Duration::from_millis(std::env::var(EXPIRY).unwrap().parse().unwrap());
        Some(Self { database, expiry })
    }
}

impl Part {
    /// The connection string that names the database; `None` in the test process itself.
    pub(crate) fn uri() -> Option<String> {
        let uri = std::env::var(URI).ok()?;
        let (hosts, options) = uri.split_once("/?").expect("it has options");
        Some(format!("{hosts}/{}?{options}", std::env::var(DATABASE).unwrap()))
    }
}

/// Prints a line for the test.
pub(crate) fn say(what: impl std::fmt::Display) {
    println!("{MARK}{what}");
}

/// The next line from the test; `None` at the end of the input.
pub(crate) async fn order() -> Option<String> {
    let line = spawn_blocking(|| std::io::stdin().lines().next());
    line.await.unwrap().transpose().unwrap()
}

/// The section of the process below: it ends when the body is dropped.
struct Section(LockContext);

impl Section {
    fn begin(context: LockContext) -> Option<Self> {
        tell(&acquired(&context)?);
        Some(Self(context))
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        tell(&ended(&self.0));
    }
}

/// The part of the child process, and not a test: in the test process it returns at once.
#[tokio::test]
async fn act() {
    let Some(Part { database, expiry }) = Part::given().await else {
        return;
    };
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    say(format_args!("clock {}", clock.as_secs()));
    let provider = LockProvider::new(&database);
    let lock = provider.lock("actor").expiry(expiry).acquire_timeout(AMPLE);
    tell(&Event::now(0, Step::Invoke));
    let ended: Result<(), LockError> = lock
        .run(async |context| {
            let _section = Section::begin(context.clone());
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
