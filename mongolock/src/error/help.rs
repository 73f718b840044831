//! The advice for each error.

use std::io;

use mongodb::error::{Error, ErrorKind};

use super::failure::Failure;
use super::meaning::Meaning;
use super::{LockError, LossReason, no_server};

impl LockError {
    /// What to do about the error, in one or two sentences for the operator or the developer of the program.
    ///
    /// ```
    /// use mongolock::{LockError, LockProvider};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let error = LockProvider::in_memory().lock("").acquire().await.unwrap_err();
    /// assert_eq!(error.to_string(), "lock name \"\" is invalid: it is empty");
    /// assert_eq!(
    ///     error.help(),
    ///     "Use 1 to 1024 bytes without control characters and without white space at the ends, and give every \
    ///      placeholder a value that is not empty."
    /// );
    /// # }
    /// ```
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => {
                "Retry later, raise `acquire_timeout`, or shorten the work under the lock. `LockProvider::admin` shows \
                 and releases a lock whose holder is stuck."
            }
            Self::Busy { .. } => "Retry later, or wait for the lock with `on_busy = \"wait\"`.",
            Self::Done { .. } => {
                "Skip the work: a run of it has succeeded. To run it again before, clear the mark with \
                 `LockAdmin::force_release`."
            }
            Self::Lost { reason, .. } => reason.help(),
            Self::Stale { .. } => "Read the data again and repeat the work under a new hold.",
            Self::NoFencingToken => {
                "Hold a lock for the data as well, and write with its token: tokens of different permits do not order \
                 each other."
            }
            Self::InvalidFence { .. } => {
                "Choose a top-level field that nothing else writes, leave it out of updates, and remove values that \
                 are not fencing tokens from it."
            }
            Self::NoTransaction { .. } => {
                "Start the transaction under the lock, on a client of the deployment that has the lock collection; it \
                 must be a replica set or a sharded cluster."
            }
            Self::NoProvider => {
                "Call `LockProvider::set_global` at start-up, wrap the call in `LockProvider::scope`, or name a \
                 provider with `provider = …`."
            }
            Self::ProviderAlreadySet => "Set it once at start-up, and use `LockProvider::scope` in tests.",
            Self::InvalidName { .. } => {
                "Use 1 to 1024 bytes without control characters and without white space at the ends, and give every placeholder a value that is not empty."
            }
            Self::InvalidOption {
                option: "database", ..
            } => {
                "Name a database of the application: in the connection string, such as \
                 `mongodb://host/app?authSource=admin`, or with `.database(\"app\")` on the builder. `authSource` says \
                 where the user is, and the path where the locks are."
            }
            Self::InvalidOption { .. } => "Set the option to a value within its bounds.",
            Self::Reentrant { .. } => {
                "Use the `LockContext` of the hold, or an annotated function or `run`, which joins the hold."
            }
            Self::ShutDown { .. } => "Acquire before `shutdown`, or make a new provider.",
            Self::InvalidHandle { .. } => {
                "Use the whole text of the handle, with a provider of the collection that has its locks; \
                 `resume_permit` takes the handle of a permit, and `resume` any other."
            }
            Self::CorruptDocument { .. } => "Release the lock by force, which sets the document right.",
            Self::Mongo(error) => mongo_help(error),
        }
    }
}

impl LossReason {
    const fn help(self) -> &'static str {
        match self {
            Self::Expired => {
                "Check what the work has changed and repeat it under a new hold. A longer `expiry` survives longer \
                 pauses and outages. If the event `mongolock.renewal_waiting` came before, raise `maxPoolSize`, or use \
                 `LockProvider::connect`, which has a client of its own."
            }
            Self::Gone => {
                "Check what the work has changed and repeat it under a new hold. The handle of a detached lease is used \
                 up by the first `resume` or `release`. Else look for a forced release in the operator's log \
                 (`mongolock.forced`), and for other programs that write to the lock collection."
            }
            Self::ShutDown => {
                "Repeat the work in another process, or after the restart. `shutdown_after` with a longer grace period lets \
                 work end before."
            }
        }
    }
}

fn mongo_help(error: &Error) -> &'static str {
    match (Failure::of(error), &*error.kind) {
        (Some(failure), _) => failure.help,
        (None, ErrorKind::ServerSelection { message, .. }) => no_server::help(message),
        (None, _) => Meaning::of(error).help(),
    }
}

impl Meaning {
    pub(super) fn help(self) -> &'static str {
        match self {
            Self::LogIn => "Check the user name, the password and `authSource` in the connection string.",
            Self::Right => {
                "Grant the database user the privileges that the guide lists, or name a user and a password in the \
                 connection string: https://docs.rs/mongolock/latest/mongolock/guide/production/index.html."
            }
            Self::Unsupported => {
                "mongolock needs MongoDB 4.4.2 or newer, or a server that runs update pipelines with `$$NOW`. Amazon \
                 DocumentDB, Azure Cosmos DB and FerretDB are not known to."
            }
            Self::Validator => "Remove the validator of the collection: it must admit all lock documents.",
            Self::DuplicateKey => "Drop the unique index that the message names: only `_id` may be unique.",
            Self::DatabaseCase => "Write the name of the database with the case of the one that exists.",
            Self::FullDisk => "Make room on the disk of MongoDB's primary: requests are repeated meanwhile.",
            Self::Overloaded => "Retry later, with fewer calls at a time: the load of MongoDB is too high.",
            Self::NoReply => {
                "Check that MongoDB can be reached, has a primary and is not overloaded, and that the application leaves \
                 connections of the pool free. With a client of your own, set `serverSelectionTimeoutMS` below \
                 `acquire_timeout` to learn why the driver finds no server."
            }
            Self::WrongHosts => {
                "Name hosts of one replica set in the connection string, in all processes the same set, and correct `replicaSet` \
                 there: each process works with the set that answers it first. `mongosh` shows the members of a host's set with \
                 `db.hello().hosts`."
            }
            Self::EndedRuntime => {
                "Make the client and the provider on the runtime that uses them: each `#[tokio::test]` has one of its own."
            }
            Self::RuntimeEnded => "Await the call before the tokio runtime ends.",
            Self::Forked => "Make a provider in each process, after `fork`.",
            Self::Closed => "Await the call before `shutdown`.",
            Self::Blocked => "End transactions on the lock's document: `db.currentOp()` shows operations.",
            Self::NoStreams => "Use a replica set or a sharded cluster: change streams need one.",
            Self::StreamEnded => "Do not drop or rename the lock collection while programs use it.",
            Self::ConnectionString => {
                "Write it on one line as `mongodb://user:password@host:port/database?option=value`, with special \
                 characters percent-encoded. Files of `tls` options are in PEM, with keys that are not encrypted."
            }
            _ => {
                "Read the driver's error in `source()`. Transient errors are retried until `acquire_timeout`; others need a \
                 change of the program, the database or the network."
            }
        }
    }

    /// The kind of the I/O error that wraps a failure that this library has found itself.
    pub(super) fn io(self) -> io::ErrorKind {
        match self {
            Self::NoReply | Self::Overloaded => io::ErrorKind::TimedOut,
            Self::Unreachable => io::ErrorKind::NotConnected,
            Self::WrongHosts | Self::ConnectionString => io::ErrorKind::InvalidInput,
            Self::LogIn => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::Other,
        }
    }
}
