//! One `mongod`: starting, killing, stopping and restarting it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;

use crate::error::SupportError;
use crate::options::{PASSWORD, ServerOptions, USER};
use crate::place::{free_port, random, tail};
use crate::wait::{AMPLE, eventually};
use crate::watchdog::{State, Watchdog};

/// The number of ports that are tried when other processes take them first.
const PORT_ATTEMPTS: usize = 10;
/// The time after which a client that does not end is left to itself.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// What `mongod` says when its port is taken. Its exit status differs: of two servers that bind the same port at the same time,
/// the one that listens later ends with an assertion.
const PORT_IS_TAKEN: &str = "Address already in use";

/// One `mongod` of a [`Server`](crate::Server), on a port and in a directory of its own.
#[derive(Debug)]
pub struct Node {
    address: String,
    directory: PathBuf,
    auth: bool,
    watchdog: Watchdog,
}

impl Node {
    /// Starts a node. If another process takes its port first, another port is tried.
    pub(crate) async fn start(binary: &Path, options: &ServerOptions) -> Result<Self, SupportError> {
        let mut attempt = 1;
        loop {
            let node = Self::spawn(binary, options)?;
            match node.ready(0).await {
                Ok(()) => return Ok(node),
                Err(SupportError::Start {
                    port_is_taken: true, ..
                }) if attempt < PORT_ATTEMPTS => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn spawn(binary: &Path, options: &ServerOptions) -> Result<Self, SupportError> {
        let directory = env::temp_dir().join(format!("mongolock-{:016x}", random()));
        let port = free_port().map_err(SupportError::io("no free port on 127.0.0.1"))?;
        let command = options.command(binary, &directory, port);
        let watchdog = Watchdog::start(&directory, options.key(), command)?;
        Ok(Self {
            address: format!("127.0.0.1:{port}"),
            directory,
            auth: options.auth,
            watchdog,
        })
    }

    /// Host and port.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The directory of its data and its log, which is removed when the [`Server`](crate::Server) is dropped.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A connection string for this node alone, whatever its role in a set.
    #[must_use]
    pub fn uri(&self) -> String {
        let options = "directConnection=true&serverSelectionTimeoutMS=5000";
        if self.auth {
            return format!(
                "mongodb://{USER}:{PASSWORD}@{}/?authSource=admin&{options}",
                self.address
            );
        }
        format!("mongodb://{}/?{options}", self.address)
    }

    /// A connection string without a user, for commands that a server with access control accepts from anyone.
    pub(crate) fn anonymous_uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.address)
    }

    /// A new client for this node alone.
    ///
    /// # Errors
    /// When the driver refuses the connection string.
    pub async fn client(&self) -> Result<Client, SupportError> {
        connect(&self.uri()).await
    }

    /// The process id while the process runs. A stopped process runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match self.watchdog.state() {
            State::Running(pid) => Some(pid),
            State::Starting | State::Exited(_) | State::Gone(_) => None,
        }
    }

    /// Kills the process (SIGKILL) and waits for its end. Does nothing if it has already ended.
    ///
    /// # Errors
    /// When the system refuses the signal.
    pub async fn kill(&self) -> Result<(), SupportError> {
        if self.pid().is_some() {
            self.signal(Signal::KILL)?;
            self.watchdog
                .reaches(|state| matches!(state, State::Exited(_)))
                .await;
        }
        Ok(())
    }

    /// Stops the process (SIGSTOP): its connections stay open and silent.
    ///
    /// # Errors
    /// [`SupportError::NotRunning`] after [`kill`](Self::kill).
    pub fn stop(&self) -> Result<(), SupportError> {
        self.signal(Signal::STOP)
    }

    /// Continues the process after [`stop`](Self::stop) (SIGCONT).
    ///
    /// # Errors
    /// [`SupportError::NotRunning`] after [`kill`](Self::kill).
    pub fn resume(&self) -> Result<(), SupportError> {
        self.signal(Signal::CONT)
    }

    /// Starts it again with the same data and port, after a [`kill`](Self::kill) if it still runs, and waits until it
    /// accepts connections. A member of a set may need longer to become primary or secondary again.
    ///
    /// # Errors
    /// [`SupportError::Start`] when it does not start.
    pub async fn restart(&self) -> Result<(), SupportError> {
        self.kill().await?;
        let mut attempt = 1;
        loop {
            let log_start = fs::metadata(self.directory.join("log")).map_or(0, |file| file.len());
            self.watchdog.start_again()?;
            self.watchdog
                .reaches(|state| matches!(state, State::Running(_)))
                .await;
            match self.ready(log_start).await {
                Err(SupportError::Start {
                    port_is_taken: true, ..
                }) if attempt < PORT_ATTEMPTS => {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    /// Begins to clean up; dropping the node waits for the end.
    pub(crate) fn dismiss(&self) {
        self.watchdog.dismiss();
    }

    fn signal(&self, signal: Signal) -> Result<(), SupportError> {
        let pid = self
            .pid()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| SupportError::NotRunning {
            address: self.address.clone(),
        })?;
        let sent = kill_process(pid, signal);
        sent.map_err(|error| SupportError::io(format!("signal to mongod at {}", self.address))(error.into()))
    }

    /// Waits until the process listens or has ended. The log shows when it listens, because a reply on the port could
    /// come from another server.
    async fn ready(&self, log_start: u64) -> Result<(), SupportError> {
        let probe = || async {
            match self.watchdog.state() {
                State::Exited(status) => {
                    let is_taken = self.has_said(PORT_IS_TAKEN, log_start);
                    Some(Err((format!("it ended with status {status}"), is_taken)))
                }
                State::Gone(said) => Some(Err((format!("its watchdog ended: {said}"), false))),
                State::Starting | State::Running(_) => self
                    .has_said("Waiting for connections", log_start)
                    .then_some(Ok(())),
            }
        };
        let answer = eventually(AMPLE, "start", probe).await;
        let answer = answer.unwrap_or_else(|_| Err((format!("not ready within {AMPLE:?}"), false)));
        answer.map_err(|(reason, is_taken)| self.start_error(reason, is_taken))?;
        // A member closes its connections while it takes over the configuration of its set.
        let ping = || async { run_admin(&self.anonymous_uri(), doc! { "ping": 1 }).await.ok() };
        let replied = eventually(AMPLE, "the reply to a ping", ping).await;
        replied
            .map(drop)
            .map_err(|_| self.start_error("no reply to a ping".to_owned(), false))
    }

    /// Whether its log has this text from this byte on.
    fn has_said(&self, text: &str, log_start: u64) -> bool {
        let log = fs::read(self.directory.join("log")).unwrap_or_default();
        let start = usize::try_from(log_start).unwrap_or(0).min(log.len());
        String::from_utf8_lossy(&log[start..]).contains(text)
    }

    fn start_error(&self, reason: String, port_is_taken: bool) -> SupportError {
        let log = ["log", "console"]
            .map(|name| tail(&self.directory.join(name)))
            .concat();
        SupportError::Start {
            address: self.address.clone(),
            reason,
            log,
            port_is_taken,
        }
    }
}

/// A new client, for the calling runtime.
pub(crate) async fn connect(uri: &str) -> Result<Client, SupportError> {
    Client::with_uri_str(uri)
        .await
        .map_err(SupportError::mongo("connection string"))
}

/// Ends a client and its connections. The driver (3.9.1) waits for its own tasks without a limit, and one of them may not end:
/// that was seen while a replica set was being made.
pub(crate) async fn close(client: Client) {
    let _ = timeout(CLOSE_LIMIT, client.shutdown().immediate(true)).await;
}

/// One command on the admin database, with a client of its own.
pub(crate) async fn run_admin(uri: &str, command: Document) -> Result<Document, SupportError> {
    let name = command.keys().next().cloned().unwrap_or_default();
    let client = connect(uri).await?;
    let answer = client.database("admin").run_command(command).await;
    close(client).await;
    answer.map_err(SupportError::mongo(name))
}
