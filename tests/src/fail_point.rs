//! Errors that a server produces on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread::panicking;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use tokio::sync::OwnedMutexGuard;

use crate::apart::run_apart;
use crate::database::TestDb;
use crate::error::{SupportError, locked};
use crate::node::run_admin;

/// The code of a rejection for overload.
const OVERLOADED: i32 = 462;

/// The server's `failCommand`: chosen commands fail, hang or cut the connection. The servers that this crate starts
/// allow it; others only with `enableTestCommands`.
#[derive(Clone, Debug)]
#[must_use]
pub struct FailPoint {
    mode: Bson,
    data: Document,
}

impl FailPoint {
    /// A fail point for these commands, as the server knows them (`findAndModify`, `update`, …), which hits once. The
    /// other methods say what happens to a command.
    pub fn on(commands: &[&str]) -> Self {
        Self {
            mode: doc! { "times": 1 }.into(),
            data: doc! { "failCommands": commands },
        }
    }

    /// Hits this many times instead of once.
    pub fn times(mut self, times: u32) -> Self {
        self.mode = doc! { "times": i64::from(times) }.into();
        self
    }

    /// Hits every command until it is cleared.
    pub fn always(mut self) -> Self {
        self.mode = "alwaysOn".into();
        self
    }

    /// Lets this many commands pass, and hits all later ones until it is cleared.
    pub fn after(mut self, commands: u32) -> Self {
        self.mode = doc! { "skip": i64::from(commands) }.into();
        self
    }

    /// Hits this part of the commands, between 0 and 1, at random until it is cleared.
    pub fn part(mut self, part: f64) -> Self {
        self.mode = doc! { "activationProbability": part }.into();
        self
    }

    /// The command is not run, and its reply is this error.
    pub fn error_code(self, code: i32) -> Self {
        self.with("errorCode", code)
    }

    /// The labels of the error, instead of those that the server would give it.
    pub fn error_labels(self, labels: &[&str]) -> Self {
        self.with("errorLabels", labels)
    }

    /// These commands are rejected for overload, as by MongoDB 8.2 and later.
    pub fn rejecting(commands: &[&str]) -> Self {
        let labels = ["SystemOverloadedError", "RetryableError", "NoWritesPerformed"];
        Self::on(commands).error_code(OVERLOADED).error_labels(&labels)
    }

    /// The command is not run, and its connection is closed.
    pub fn close_connection(self) -> Self {
        self.with("closeConnection", true)
    }

    /// The command waits for this time before it is run.
    pub fn block(self, time: Duration) -> Self {
        let milliseconds = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        self.with("blockConnection", true)
            .with("blockTimeMS", milliseconds)
    }

    /// The command is run, and its reply carries this write concern error.
    pub fn write_concern_error(self, code: i32, message: &str) -> Self {
        self.with("writeConcernError", doc! { "code": code, "errmsg": message })
    }

    /// Hits only clients of this application name, so that other tests are not affected. See
    /// [`TestDb::name`](crate::TestDb::name).
    pub fn app_name(self, name: &str) -> Self {
        self.with("appName", name)
    }

    /// Hits only commands on this collection (database and name).
    pub fn collection(self, namespace: &str) -> Self {
        self.with("namespace", namespace)
    }

    /// [`enable`](Self::enable) at the server of this test database, for the clients of the test only.
    pub async fn enable_for(self, db: &TestDb) -> Result<FailPointGuard, SupportError> {
        self.app_name(db.name()).enable(db.uri()).await
    }

    fn with(mut self, key: &str, value: impl Into<Bson>) -> Self {
        self.data.insert(key, value);
        self
    }

    /// Sets it at the server that `uri` names (of a set: at its primary) until the guard is cleared or dropped. A
    /// server has only one fail point, so a second call for the same server waits here. Processes do not wait for each
    /// other.
    pub async fn enable(self, uri: &str) -> Result<FailPointGuard, SupportError> {
        let turn = turn(uri).await;
        let command = doc! { "configureFailPoint": "failCommand", "mode": self.mode, "data": &self.data };
        // The guard is made before the command, so that a lost reply cannot leave the fail point behind.
        let mut guard = FailPointGuard {
            uri: Some(uri.to_owned()),
            data: self.data,
            hits_before: 0,
            _turn: turn,
        };
        guard.hits_before = hits(&run_admin(uri, command).await?);
        Ok(guard)
    }
}

/// A fail point that is set. A test whose fault hits nothing shows nothing, so clearing it fails then.
#[derive(Debug)]
#[must_use = "dropping it clears the fail point"]
pub struct FailPointGuard {
    uri: Option<String>,
    data: Document,
    /// The number of commands that earlier fail points of the server have hit.
    hits_before: i32,
    _turn: OwnedMutexGuard<()>,
}

impl FailPointGuard {
    /// Waits until it has hit a command.
    pub async fn until_hit(&self) -> Result<(), SupportError> {
        let Some(uri) = &self.uri else { return Ok(()) };
        let times = self.hits_before + 1;
        let wait = doc! { "waitForFailPoint": "failCommand", "timesEntered": times, "maxTimeMS": 60_000 };
        run_admin(uri, wait).await.map(drop)
    }

    /// Clears it now; dropping the guard does the same, and blocks for it.
    pub async fn clear(mut self) -> Result<(), SupportError> {
        if self.end().await? == 0 {
            return Err(missed(&self.data));
        }
        Ok(())
    }

    /// Clears it now, and returns how many commands were hit, which may be none.
    pub async fn hits(mut self) -> Result<i32, SupportError> {
        self.end().await
    }

    async fn end(&mut self) -> Result<i32, SupportError> {
        let Some(uri) = &self.uri else { return Ok(0) };
        let reply = run_admin(uri, off()).await?;
        self.uri = None;
        Ok(hits(&reply) - self.hits_before)
    }
}

impl Drop for FailPointGuard {
    fn drop(&mut self) {
        let Some(uri) = self.uri.take() else { return };
        // A server that is gone has no fail point.
        let cleared = run_apart(async move { run_admin(&uri, off()).await.ok() });
        let has_missed = cleared.is_some_and(|reply| hits(&reply) == self.hits_before);
        // A test that fails already is not aborted by a second panic.
        assert!(!has_missed || panicking(), "{}", missed(&self.data));
    }
}

/// The number of commands that all fail points of the server have hit so far.
fn hits(reply: &Document) -> i32 {
    reply.get_i32("count").unwrap_or_default()
}

fn missed(data: &Document) -> SupportError {
    SupportError(format!("this fault has hit no command: {data}"))
}

/// The command that ends the fail point of a server.
pub(crate) fn off() -> Document {
    doc! { "configureFailPoint": "failCommand", "mode": "off" }
}

/// The right to set the fail point of a server: one at a time for each list of hosts.
async fn turn(uri: &str) -> OwnedMutexGuard<()> {
    static TURNS: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>> = Mutex::new(BTreeMap::new());
    let after_user = uri.rsplit('@').next().unwrap_or_default();
    let hosts = after_user.trim_start_matches("mongodb://").split('/').next();
    let hosts = hosts.unwrap_or_default().to_owned();
    let turn = Arc::clone(locked(&TURNS).entry(hosts).or_default());
    turn.lock_owned().await
}
