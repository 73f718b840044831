//! The advice for each error.

use mongodb::error::{Error, ErrorKind};

use super::meaning::{Meaning, OwnFailure};
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
    pub fn help(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => {
                "Retry later, raise `acquire_timeout`, or release a stuck lock with `LockProvider::admin`."
            }
            Self::Busy { .. } => "Retry later, or wait for the lock with `on_busy = \"wait\"`.",
            Self::Done { .. } => "Skip the work: it is done. `LockAdmin::force_release` clears the mark.",
            Self::Lost { reason, .. } => reason.help(),
            Self::Stale { .. } => "Read the data again and repeat the work under a new hold.",
            Self::NoFencingToken => "Hold a lock for the data as well, and write with its token.",
            Self::InvalidFence { .. } => {
                "Choose a top-level field that only fenced writes set, and remove values that are no tokens."
            }
            Self::NoTransaction { .. } => {
                "Start the transaction under the lock, on the replica set or sharded cluster that has the lock."
            }
            Self::NoProvider => {
                "Call `LockProvider::set_global` at start-up, or name a provider with `scope` or `provider = …`."
            }
            Self::ProviderAlreadySet => "Set it once at start-up, and use `LockProvider::scope` in tests.",
            Self::InvalidName { .. } => {
                "Use 1 to 1024 bytes without control characters and without white space at the ends, and give every \
                 placeholder a value that is not empty."
            }
            Self::InvalidOption {
                option: "database", ..
            } => {
                "Name a database of the application: in the path of the connection string, such as \
                 `mongodb://host/app?authSource=admin`, or with `.database(\"app\")` on the builder."
            }
            Self::InvalidOption { .. } => "Set the option to a value within its bounds.",
            Self::Reentrant { .. } => "Use the `LockContext` of the hold, or a call that joins it.",
            Self::ShutDown { .. } => "Acquire before `shutdown`, or make a new provider.",
            Self::InvalidHandle { .. } => {
                "Use the whole text of the handle, with a provider of its collection: `resume_permit` for a permit."
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
                "Repeat the work under a new hold, with a longer `expiry`. If `mongolock.renewal_waiting` came before, \
                 raise `maxPoolSize`, or use `LockProvider::connect`, which has a client of its own."
            }
            Self::Gone => {
                "Repeat the work under a new hold. Look for a forced release (`mongolock.forced`), for another call with the \
                 handle of the lease, and for other programs that write to the lock collection."
            }
            Self::ShutDown => {
                "Repeat the work in another process, or end it before with the grace period of `shutdown_after`."
            }
        }
    }
}

fn mongo_help(error: &Error) -> &'static str {
    match (OwnFailure::of(error), &*error.kind) {
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
                "Grant the database user the privileges of the guide, or name a user and a password in the connection \
                 string: https://docs.rs/mongolock/latest/mongolock/guide/production/index.html."
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
                "Check that MongoDB has a primary, and that the application leaves connections of the pool free. With a \
                 client of your own, `serverSelectionTimeoutMS` below `acquire_timeout` shows why there is no server."
            }
            Self::WrongHosts => {
                "Name hosts of one replica set in the connection string, in all processes the same set, and correct \
                 `replicaSet` there. `mongosh` shows the members of a host's set with `db.hello().hosts`."
            }
            Self::EndedRuntime => {
                "Make client and provider on the runtime that uses them: each `#[tokio::test]` has its own."
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
                "Read the driver's error in `source()`. Transient errors are retried until `acquire_timeout`."
            }
        }
    }
}
