//! One `mongod`: starting, killing, stopping and restarting it.

use std::env;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;

use crate::error::SupportError;
use crate::options::{PASSWORD, ServerOptions, USER};
use crate::wait::{AMPLE, eventually};
use crate::watchdog::{State, Watchdog};

/// The number of ports that are tried when other processes take them first.
const PORT_ATTEMPTS: usize = 10;
/// The time after which a client that does not end is left to itself.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// The number of lines of a server's log that an error shows.
const LOG_TAIL: usize = 20;
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
        let mut attempts = 1..PORT_ATTEMPTS;
        loop {
            let node = Self::spawn(binary, options)?;
            match node.ready(0).await {
                Err(_) if node.has_said(PORT_IS_TAKEN, 0) && attempts.next().is_some() => {}
                ready => return ready.map(|()| node),
            }
        }
    }

    fn spawn(binary: &Path, options: &ServerOptions) -> Result<Self, SupportError> {
        let directory = env::temp_dir().join(format!("mongolock-{:016x}", fastrand::u64(..)));
        let port = free_port().map_err(SupportError::at("no free port on 127.0.0.1"))?;
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
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The directory of its data and its log, which is removed when the [`Server`](crate::Server) is dropped.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A connection string for this node alone, whatever its role in a set.
    pub fn uri(&self) -> String {
        let address = &self.address;
        let options = "directConnection=true&serverSelectionTimeoutMS=5000";
        if self.auth {
            return format!("mongodb://{USER}:{PASSWORD}@{address}/?authSource=admin&{options}");
        }
        format!("mongodb://{address}/?{options}")
    }

    /// A connection string without a user, for commands that a server with access control accepts from anyone.
    pub(crate) fn anonymous_uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.address)
    }

    /// A new client for this node alone.
    pub async fn client(&self) -> Result<Client, SupportError> {
        connect(&self.uri()).await
    }

    /// The process id while the process runs. A stopped process runs.
    pub fn pid(&self) -> Option<u32> {
        match self.watchdog.state() {
            State::Running(pid) => Some(pid),
            State::Starting | State::Exited(_) | State::Gone(_) => None,
        }
    }

    /// Kills the process (SIGKILL) and waits for its end. Does nothing if it has already ended.
    pub async fn kill(&self) -> Result<(), SupportError> {
        if self.pid().is_some() {
            self.signal(Signal::KILL)?;
            let is_over = |state: &State| matches!(state, State::Exited(_));
            self.watchdog.reaches(is_over).await;
        }
        Ok(())
    }

    /// Stops the process (SIGSTOP): its connections stay open and silent. On a busy machine its threads go on for a while after
    /// the signal. This returns when all of them are stopped.
    pub fn stop(&self) -> Result<(), SupportError> {
        self.signal(Signal::STOP)?;
        while self.pid().is_some_and(has_running_thread) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Continues the process after [`stop`](Self::stop) (SIGCONT).
    pub fn resume(&self) -> Result<(), SupportError> {
        self.signal(Signal::CONT)
    }

    /// Starts it again with the same data and port, after a [`kill`](Self::kill) if it still runs, and waits until it
    /// accepts connections. A member of a set may need longer to become primary or secondary again.
    pub async fn restart(&self) -> Result<(), SupportError> {
        self.kill().await?;
        let mut attempts = 1..PORT_ATTEMPTS;
        loop {
            let log_start = fs::metadata(self.directory.join("log")).map_or(0, |file| file.len());
            self.watchdog.start_again()?;
            let is_started = |state: &State| matches!(state, State::Running(_));
            self.watchdog.reaches(is_started).await;
            match self.ready(log_start).await {
                Err(_) if self.has_said(PORT_IS_TAKEN, log_start) && attempts.next().is_some() => {}
                ready => return ready,
            }
        }
    }

    /// Begins to clean up; dropping the node waits for the end.
    pub(crate) fn dismiss(&self) {
        self.watchdog.dismiss();
    }

    fn signal(&self, signal: Signal) -> Result<(), SupportError> {
        let pid = self.pid().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let not_running = || SupportError(format!("mongod at {} is not running", self.address));
        let sent = kill_process(pid.ok_or_else(not_running)?, signal);
        sent.map_err(SupportError::at(format!("signal to mongod at {}", self.address)))
    }

    /// Waits until the process listens or has ended. The log shows when it listens, because a reply on the port could
    /// come from another server.
    async fn ready(&self, log_start: u64) -> Result<(), SupportError> {
        let probe = || async {
            match self.watchdog.state() {
                State::Exited(status) => Some(Err(format!("it ended with status {status}"))),
                State::Gone(said) => Some(Err(format!("its watchdog ended: {said}"))),
                State::Starting | State::Running(_) => self
                    .has_said("Waiting for connections", log_start)
                    .then_some(Ok(())),
            }
        };
        let answer = eventually(AMPLE, "the first connection", probe).await;
        let answer = answer.map_err(|late| late.to_string()).flatten();
        answer.map_err(|reason| self.start_error(&reason))?;
        // A member closes its connections while it takes over the configuration of its set.
        let ping = || async { run_admin(&self.anonymous_uri(), doc! { "ping": 1 }).await.ok() };
        let replied = eventually(AMPLE, "the reply to a ping", ping).await;
        replied
            .map(drop)
            .map_err(|late| self.start_error(&late.to_string()))
    }

    /// Whether its log has this text from this byte on.
    fn has_said(&self, text: &str, log_start: u64) -> bool {
        let log = fs::read(self.directory.join("log")).unwrap_or_default();
        let start = usize::try_from(log_start).unwrap_or(0).min(log.len());
        String::from_utf8_lossy(&log[start..]).contains(text)
    }

    fn start_error(&self, reason: &str) -> SupportError {
        let logs = ["log", "console"].map(|name| tail(&self.directory.join(name)));
        SupportError(format!(
            "mongod at {} did not start: {reason}. Look at the end of its log:\n{}",
            self.address,
            logs.concat()
        ))
    }
}

/// The last lines of a file, or nothing if there is none.
fn tail(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LOG_TAIL)..];
    last.iter().flat_map(|line| [*line, "\n"]).collect()
}

/// A free port outside the range that the system uses for outgoing connections. One of those could take the port while
/// a killed server is down.
fn free_port() -> io::Result<u16> {
    let mut ports = (0..100).map(|_| fastrand::u16(12_000..30_000));
    let free = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.ok_or_else(|| io::ErrorKind::AddrInUse.into())
}

/// A new client, for the calling runtime.
pub(crate) async fn connect(uri: &str) -> Result<Client, SupportError> {
    let client = Client::with_uri_str(uri).await;
    client.map_err(SupportError::at("connection string"))
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
    answer.map_err(SupportError::at(name))
}

/// Whether a thread of the process is not stopped.
fn has_running_thread(pid: u32) -> bool {
    let Ok(mut threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    threads.any(|thread| {
        let stat = thread.and_then(|thread| fs::read_to_string(thread.path().join("stat")));
        // The state follows the name, which is in parentheses.
        stat.is_ok_and(|stat| !stat.contains(") T "))
    })
}
