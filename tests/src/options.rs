//! The options of a server.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The replica set's name.
pub(crate) const SET_NAME: &str = "mongolock";
/// The user of a server that was started with [`ServerOptions::auth`].
pub(crate) const USER: &str = "root";
/// The password of that user. It may be public, because a server listens only on the loopback address and only during a
/// test.
pub(crate) const PASSWORD: &str = "secret";
/// The common key of the members of a replica set: any base64 text.
const KEY: &str = "bW9uZ29sb2NrIHRlc3RzOiBtZW1iZXJzIG9mIG9uZSBzZXQ=";

/// The parameters of every server.
const PARAMETERS: [&str; 4] = [
    "diagnosticDataCollectionEnabled=false",
    "enableTestCommands=1",
    // In milliseconds. A build of an index locks its collection for a moment, which is longer than the server's default of 5 ms on
    // a busy machine; the transaction of a test would fail for that alone.
    "maxTransactionLockRequestTimeoutMillis=5000",
    "ttlMonitorSleepSecs=1",
];

/// The options of a server: begin with [`standalone`](Self::standalone), [`single`](Self::single) or
/// [`three_members`](Self::three_members), end with [`Server::start`](crate::Server::start).
#[derive(Clone, Debug)]
#[must_use]
pub struct ServerOptions {
    pub(crate) members: usize,
    pub(crate) replica_set: bool,
    pub(crate) auth: bool,
    pub(crate) election_timeout: Duration,
    /// Another `mongod` than that of the other servers.
    pub(crate) binary: Option<PathBuf>,
    /// The size of the oplog, in megabytes.
    oplog: u32,
    arguments: Vec<OsString>,
}

impl ServerOptions {
    /// One server without replication: no change streams, no transactions, no retryable writes.
    pub fn standalone() -> Self {
        Self::new(1, false)
    }

    /// A replica set of one member: it has all features of a replica set and starts in about a second.
    pub fn single() -> Self {
        Self::new(1, true)
    }

    /// A replica set of three members, for elections and lost majorities.
    pub fn three_members() -> Self {
        Self::new(3, true)
    }

    pub(crate) fn new(members: usize, replica_set: bool) -> Self {
        Self {
            members,
            replica_set,
            auth: false,
            election_timeout: Duration::from_secs(2),
            binary: None,
            oplog: 64,
            arguments: Vec::new(),
        }
    }

    /// Access control, and one user who may do everything; [`Server::uri`](crate::Server::uri) names that user.
    pub fn auth(self) -> Self {
        Self { auth: true, ..self }
    }

    /// How long a set waits for a silent primary before it elects another; two seconds if not set.
    pub fn election_timeout(self, election_timeout: Duration) -> Self {
        Self {
            election_timeout,
            ..self
        }
    }

    /// The size of the oplog in megabytes, for tests that fill it; 64 if not set. The server removes nothing that came after
    /// its last checkpoint, so it makes one a second.
    pub fn oplog(self, oplog: u32) -> Self {
        Self { oplog, ..self }.argument("--syncdelay").argument("1")
    }

    /// One more argument of `mongod`.
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// The members' common key; a standalone with access control needs none.
    pub(crate) fn key(&self) -> &'static str {
        if self.auth && self.replica_set { KEY } else { "" }
    }

    /// The whole command line.
    pub(crate) fn command(&self, binary: &Path, directory: &Path, port: u16) -> Vec<OsString> {
        let mut command: Vec<OsString> = vec![binary.into(), "--port".into(), port.to_string().into()];
        let mut path = |name: &str, file| command.extend([name.into(), directory.join(file).into()]);
        path("--dbpath", "data");
        path("--logpath", "log");
        if !self.key().is_empty() {
            path("--keyFile", "key");
        }
        // The log is read from where the last start ended, hence --logappend.
        let fixed = "--logappend --bind_ip 127.0.0.1 --nounixsocket --wiredTigerCacheSizeGB 0.25";
        command.extend(fixed.split(' ').map(OsString::from));
        // The server makes three files of 100 MB for its journal by default.
        let journal = "log=(file_max=32MB,prealloc=false)";
        command.extend(["--wiredTigerEngineConfigString", journal].map(OsString::from));
        if self.replica_set {
            let oplog = self.oplog.to_string();
            command.extend(["--replSet", SET_NAME, "--oplogSize", &oplog].map(OsString::from));
        }
        if self.auth {
            command.push("--auth".into());
        }
        for parameter in PARAMETERS {
            command.extend(["--setParameter", parameter].map(OsString::from));
        }
        command.extend(self.arguments.iter().cloned());
        command
    }
}
