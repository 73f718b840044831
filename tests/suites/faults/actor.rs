//! The processes of these tests: this test binary runs a second time, and its arguments and environment select the part that
//! it runs.

use std::path::Path;
use std::time::{Duration, SystemTime};

use mongodb::Database;
use mongolock::{LockContext, LockError, LockProvider};
use mongolock_tests::{Actor, Event, Step, TestDb, end_with_parent, say, tell};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::act::{Act, acquired, ended, take_turn, tokens};
use crate::connect;

/// The environment variable with the connection string.
const URI: &str = "MONGOLOCK_ACTOR_URI";
/// The environment variable with the name of the database.
const DATABASE: &str = "MONGOLOCK_ACTOR_DATABASE";
/// The environment variable with the expiry in milliseconds.
const EXPIRY: &str = "MONGOLOCK_ACTOR_EXPIRY_MS";
/// The environment variable with what the process acquires, as JSON; a lock if it is not set.
const ACT: &str = "MONGOLOCK_ACTOR_ACT";
/// The environment variables with the number of tasks, and of turns of each; one task takes turns without an end if they are
/// not set.
pub(crate) const TASKS: &str = "MONGOLOCK_ACTOR_TASKS";
pub(crate) const TURNS: &str = "MONGOLOCK_ACTOR_TURNS";

/// The name of what the processes acquire.
pub(crate) const NAME: &str = "actor";

/// The environment of a process whose clock is wrong by so many seconds.
pub(crate) fn wrong(shim: &Path, seconds: i64) -> [(&'static str, String); 2] {
    [
        ("LD_PRELOAD", shim.display().to_string()),
        ("MONGOLOCK_CLOCK_SHIFT", seconds.to_string()),
    ]
}

/// Starts a process that runs the part of this name, which is a test function of this binary.
pub(crate) fn start(part: &str, act: Act, db: &TestDb, expiry: Duration, more: &[(&str, String)]) -> Actor {
    let mut command = command(part, db.uri(), db.name(), expiry);
    command.env(ACT, serde_json::to_string(&act).unwrap());
    command.envs(more.iter().map(|(key, value)| (*key, value)));
    Actor::start(command)
}

/// The command for a process that runs the part of this name on a database.
pub(crate) fn command(part: &str, uri: &str, database: &str, expiry: Duration) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", part, "--nocapture"])
        .env(URI, uri)
        .env(DATABASE, database)
        .env(EXPIRY, expiry.as_millis().to_string());
    command
}

/// A number in the environment, or else this one.
fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |number| number.parse().unwrap())
}

/// What a process gets from the test.
pub(crate) struct Part {
    pub(crate) database: Database,
    pub(crate) expiry: Duration,
    act: Act,
}

impl Part {
    /// The values from the environment; `None` in the test process itself, which runs no part.
    pub(crate) async fn given() -> Option<Self> {
        let uri = std::env::var(URI).ok()?;
        end_with_parent();
        let act = std::env::var(ACT).ok();
        Some(Self {
            database: connect(&uri, &std::env::var(DATABASE).unwrap()).await,
            expiry: Duration::from_millis(std::env::var(EXPIRY).unwrap().parse().unwrap()),
            act: act.map_or(Act::Lock, |act| serde_json::from_str(&act).unwrap()),
        })
    }

    /// The connection string that names the database; `None` in the test process itself.
    pub(crate) fn uri() -> Option<String> {
        let uri = std::env::var(URI).ok()?;
        let (hosts, options) = uri.split_once("/?").expect("it has options");
        Some(format!("{hosts}/{}?{options}", std::env::var(DATABASE).unwrap()))
    }

    /// A provider whose calls wait without a limit.
    pub(crate) fn provider(&self) -> LockProvider {
        let builder = LockProvider::builder(&self.database).expiry(self.expiry);
        builder.acquire_timeout(None).build().unwrap()
    }
}

/// The section of a process: it ends when the body is dropped.
pub(crate) struct Section(LockContext);

impl Section {
    pub(crate) fn begin(context: LockContext) -> Result<Self, LockError> {
        tell(&acquired(&context)?);
        Ok(Self(context))
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        tell(&ended(&self.0));
    }
}

/// A part, and not a test: in the test process it returns at once. It prints `clock <seconds>`, `held`, then `step` every 20
/// ms, then how its call ended.
#[tokio::test]
async fn hold() {
    let Some(part) = Part::given().await else {
        return;
    };
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    say(format_args!("clock {}", clock.as_secs()));
    let provider = part.provider();
    tell(&Event::now(0, Step::Invoke));
    let body = async |context: LockContext| -> Result<(), LockError> {
        let _section = Section::begin(context.clone())?;
        say(format_args!("held {}", context.fencing_token()));
        loop {
            sleep(Duration::from_millis(20)).await;
            say("step");
        }
    };
    let ended = match part.act {
        Act::Lock => provider.lock(NAME).run(body).await,
        Act::Set => provider.lock_all(Act::set(NAME)).run(body).await,
        Act::Permit(permits) => provider.semaphore(NAME, permits).run(body).await,
    };
    match ended {
        Err(LockError::Lost { token, .. }) => say(format_args!("lost {token}")),
        other => say(format_args!("ended {other:?}")),
    }
}

/// A part: it prints `turn` with its tokens after each turn, and `done` after the last one. A turn that was lost, or whose call
/// has failed, does not count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn take_turns() {
    let Some(part) = Part::given().await else {
        return;
    };
    let (provider, mut tasks) = (part.provider(), JoinSet::new());
    for task in 0..number(TASKS, 1) {
        let provider = provider.clone();
        tasks.spawn(async move {
            let mut left = number(TURNS, usize::MAX);
            while left > 0 {
                if let Ok(context) = take_turn(part.act, &provider, NAME, task).await {
                    left -= 1;
                    let tokens: Vec<String> = tokens(&context).map(|token| token.to_string()).collect();
                    say(format_args!("turn {}", tokens.join(" ")));
                }
            }
        });
    }
    tasks.join_all().await;
    provider.shutdown().await;
    say("done");
}
